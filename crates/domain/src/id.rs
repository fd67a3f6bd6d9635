//! The names of things. Claims and solves carry the virtual shard of their fingerprint in their last
//! three digits, so that a store split over many machines finds them by their name alone. People and JSON see names as
//! they are printed, stores keep their numbers.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{fingerprint::Fingerprint, ports::Chance};

/// How many virtual shards there are. Fixed in the data: names already given out carry it.
pub const SHARDS: u64 = 1000;

/// A claim's name: fifteen digits without a leading zero, because real clients insist on digits and
/// JavaScript reads them as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(u64);

/// A solve's name; also the name of the dead letter it may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SolveId(u64);

/// One life of one gateway process: drawn anew at every start, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(u64);

/// Names one attempt before the provider has named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(u64);

/// An attempt's full name: of which solve, which one, and under which nonce. A pingback carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptName {
    /// The solve it belongs to.
    pub solve: SolveId,
    /// Which of the solve's attempts, from 1.
    pub attempt: u32,
    /// The name it was intended under.
    pub nonce: Nonce,
}

/// The provider's name for an attempt: opaque, 1–64 printable characters without `|` and `,`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(Arc<str>);

/// A worker's name: 1–64 characters of `[A-Za-z0-9._-]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkerName(Arc<str>);

/// A label that cost is charged to; same form as a worker's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Project(Arc<str>);

/// The text cannot be a name of this sort.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a {what}: {why}")]
pub struct BadName {
    what: &'static str,
    why: &'static str,
}

const SMALLEST: u64 = 100_000_000_000_000;
const SPAN: u64 = 9 * SMALLEST;

/// Fifteen random digits that end in the fingerprint's shard.
fn draw_sharded(chance: &dyn Chance, fingerprint: &Fingerprint) -> u64 {
    draw_beside(chance, fingerprint.shard())
}

/// Fifteen random digits that end in the same shard as `number`.
fn draw_beside(chance: &dyn Chance, number: u64) -> u64 {
    let drawn = SMALLEST + chance.draw() % SPAN;
    drawn - drawn % SHARDS + number % SHARDS
}

macro_rules! number_name {
    ($name:ident, $prefix:literal, $what:literal) => {
        impl $name {
            /// The name with this number.
            pub const fn from_number(number: u64) -> Self {
                Self(number)
            }

            /// The number behind the name.
            pub const fn number(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    serializer.serialize_u64(self.0)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
                } else {
                    u64::deserialize(deserializer).map(Self)
                }
            }
        }

        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                let refused =
                    BadName { what: $what, why: concat!("expected ", $prefix, " and digits") };
                let digits = text.strip_prefix($prefix).ok_or(refused)?;
                let plain = (1..=20).contains(&digits.len())
                    && !digits.starts_with('0')
                    && digits.bytes().all(|b| b.is_ascii_digit());
                let number = if plain { digits.parse().ok() } else { None };
                number
                    .map(Self)
                    .ok_or(BadName { what: $what, why: "expected digits, no leading zero" })
            }
        }
    };
}

number_name!(ClaimId, "", "claim id");
number_name!(SolveId, "s", "solve id");
number_name!(HolderId, "h", "holder id");
number_name!(Nonce, "n", "nonce");

impl BadName {
    /// The text cannot be a `what`, because of `why`.
    pub(crate) const fn new(what: &'static str, why: &'static str) -> Self {
        Self { what, why }
    }
}

impl ClaimId {
    /// Draws a name on the shard of another name.
    pub fn draw_beside(chance: &dyn Chance, number: u64) -> Self {
        Self(draw_beside(chance, number))
    }

    /// Draws a name on the fingerprint's shard.
    pub fn draw(chance: &dyn Chance, fingerprint: &Fingerprint) -> Self {
        Self(draw_sharded(chance, fingerprint))
    }
}

impl SolveId {
    /// Draws a name on the shard of another name.
    pub fn draw_beside(chance: &dyn Chance, number: u64) -> Self {
        Self(draw_beside(chance, number))
    }

    /// Draws a name on the fingerprint's shard.
    pub fn draw(chance: &dyn Chance, fingerprint: &Fingerprint) -> Self {
        Self(draw_sharded(chance, fingerprint))
    }

    /// A second name on the same shard, for the solve that harvests an orphaned task of `attempt`.
    /// Derived, so that the same late fact, told twice, opens one solve.
    #[must_use]
    pub fn orphan(self, attempt: u32) -> Self {
        Self(self.0.wrapping_add(SPAN + SMALLEST * u64::from(attempt % 1000)))
    }
}

impl HolderId {
    /// Draws a name for this life of this process.
    pub fn draw(chance: &dyn Chance) -> Self {
        Self(chance.draw() | 1)
    }
}

impl Nonce {
    /// Draws a name for the coming attempt.
    pub fn draw(chance: &dyn Chance) -> Self {
        Self(chance.draw() | 1)
    }
}

/// `s123-1-n77`.
impl fmt::Display for AttemptName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { solve, attempt, nonce } = self;
        write!(f, "{solve}-{attempt}-{nonce}")
    }
}

macro_rules! text_name {
    ($name:ident, $what:literal, $ok:expr, $why:literal) => {
        impl $name {
            /// Checks the form once; a name that exists is valid.
            pub fn new(text: impl AsRef<str>) -> Result<Self, BadName> {
                let text = text.as_ref();
                let ok: fn(char) -> bool = $ok;
                if text.is_empty() || text.len() > 64 || !text.chars().all(ok) {
                    return Err(BadName { what: $what, why: $why });
                }
                Ok(Self(text.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

text_name!(
    TaskId,
    "task id",
    |c| c.is_ascii_graphic() && c != '|' && c != ',',
    "1-64 printable characters without | and ,"
);
text_name!(
    WorkerName,
    "worker name",
    |c| c.is_ascii_alphanumeric() || "._-".contains(c),
    "1-64 characters of A-Z a-z 0-9 . _ -"
);
text_name!(
    Project,
    "project",
    |c| c.is_ascii_alphanumeric() || "._-".contains(c),
    "1-64 characters of A-Z a-z 0-9 . _ -"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(u64);
    impl Chance for Fixed {
        fn draw(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_claim_id_has_fifteen_digits_and_names_its_shard() {
        let fingerprint = Fingerprint::from_bytes([7; 32]);
        for drawn in [0, 1, u64::MAX, SPAN - 1, SPAN] {
            let id = ClaimId::draw(&Fixed(drawn), &fingerprint);
            assert_eq!(id.to_string().len(), 15);
            assert_eq!(id.number() % SHARDS, fingerprint.shard());
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn names_made_from_a_solve_stay_on_its_shard_and_differ() {
        let solve = SolveId::from_number(123_456_789_012_345);
        let names = [solve, solve.orphan(1), solve.orphan(2)];
        for (i, a) in names.iter().enumerate() {
            assert_eq!(a.number() % SHARDS, 345);
            assert!(names[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn odd_texts_are_no_ids() {
        for bad in ["", "-1", "012", "1 ", "１", "1e3", "99999999999999999999999"] {
            assert!(bad.parse::<ClaimId>().is_err(), "{bad}");
        }
        for bad in ["", "a b", "1|2", "1,2", "a\n"] {
            assert!(TaskId::new(bad).is_err(), "{bad}");
        }
    }
}
