//! Ids and names. JSON and people see an id as it is printed; stores keep its number.

use std::{fmt, str::FromStr, sync::Arc};

use sha2::{Digest as _, Sha256};

use crate::ports::Chance;

/// The id of a claim: fifteen digits without a leading zero. Existing clients expect digits only, and fifteen of them
/// fit into a JavaScript number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(u64);

/// The id of a solve, and of the dead letter it may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SolveId(u64);

/// The id of a gateway process, drawn at every start and never reused. It may say in which place the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(u64);

/// Where a gateway runs. Two living processes are never in one place, so a process has replaced all earlier ones of its place.
/// Used to count gateways only: a wrong place cannot end a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

/// Our name for one attempt, written before the provider can name its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(u64);

/// The full name of an attempt. The provider's pingback carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptName {
    /// The solve it belongs to.
    pub solve: SolveId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The nonce of its intent.
    pub nonce: Nonce,
}

/// The provider's id for an attempt: opaque, 1–64 printable characters without `|` and `,`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(Arc<str>);

/// A worker's name: 1–64 characters of `[A-Za-z0-9._-]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName(Arc<str>);

/// A label that cost is charged to; same form as a worker's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Project(Arc<str>);

/// The text is not an id or name of this type.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a {what}: {why}")]
pub struct BadName {
    pub(crate) what: &'static str,
    pub(crate) why: &'static str,
}

const SMALLEST: u64 = 100_000_000_000_000;
const SPAN: u64 = 9 * SMALLEST;

/// A random number of fifteen digits.
fn fifteen_digits(chance: &dyn Chance) -> u64 {
    SMALLEST + chance.draw() % SPAN
}

fn not_zero(chance: &dyn Chance) -> u64 {
    chance.draw() | 1
}

macro_rules! number_name {
    ($name:ident, $prefix:literal, $what:literal, $draw:path) => {
        impl $name {
            /// Draws a new one.
            pub fn draw(chance: &dyn Chance) -> Self {
                Self($draw(chance))
            }

            /// The id with this number.
            pub const fn from_number(number: u64) -> Self {
                Self(number)
            }

            /// The number of the id.
            pub const fn number(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        serialize_as_text!($name, or u64);

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

number_name!(ClaimId, "", "claim id", fifteen_digits);
number_name!(SolveId, "s", "solve id", fifteen_digits);
number_name!(HolderId, "h", "holder id", not_zero);
number_name!(Nonce, "n", "nonce", not_zero);

/// A holder id with a place has its first bit set, then 23 bits of the place and 40 drawn ones.
const HAS_PLACE: u64 = 1 << 63;
const DRAWN_BITS: u32 = 40;

impl HolderId {
    /// Draws the id of a process in a place.
    pub fn draw_in(place: Place, chance: &dyn Chance) -> Self {
        let drawn = not_zero(chance) & ((1 << DRAWN_BITS) - 1);
        Self(HAS_PLACE | (place.0 << DRAWN_BITS) | drawn)
    }

    /// The place, if the id has one. A drawn id without a place may seem to have one, which no other id shares.
    pub fn place(self) -> Option<Place> {
        (self.0 & HAS_PLACE != 0).then_some(Place((self.0 & !HAS_PLACE) >> DRAWN_BITS))
    }
}

impl Place {
    /// The place with this name: everything that tells it from all others.
    pub fn named(name: &str) -> Self {
        let digest = Sha256::digest(name);
        let first = digest.first_chunk().copied().map(u64::from_be_bytes).expect("32 bytes");
        Self((first & !HAS_PLACE) >> DRAWN_BITS)
    }
}

impl SolveId {
    /// The id of the solve that polls the paid task of `attempt` after this solve stopped waiting for it. It is derived
    /// and not drawn, so that the same late fact, settled twice, opens one solve.
    #[must_use]
    pub fn orphan(self, attempt: u32) -> Self {
        Self(self.0.wrapping_add(SPAN + SMALLEST * u64::from(attempt % 1000)))
    }
}

/// For example `s123-1-n77`.
impl fmt::Display for AttemptName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { solve, attempt, nonce } = self;
        write!(f, "{solve}-{attempt}-{nonce}")
    }
}

macro_rules! text_name {
    ($name:ident, $what:literal, $ok:expr, $why:literal) => {
        impl $name {
            /// Checks the form, so that every value of this type is valid.
            pub fn new(text: impl AsRef<str>) -> Result<Self, BadName> {
                let text = text.as_ref();
                let ok: fn(char) -> bool = $ok;
                if text.is_empty() || text.len() > 64 || !text.chars().all(ok) {
                    return Err(BadName { what: $what, why: $why });
                }
                Ok(Self(text.into()))
            }

            /// The text as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        serialize_as_text!($name);
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

/// Stands for nobody's name in the ledger.
const NOBODY: &str = "-";

impl WorkerName {
    /// The worker of entries about no worker. A worker or admin cannot have this name.
    pub fn nobody() -> Self {
        Self(NOBODY.into())
    }

    /// Whether it is the name of [`WorkerName::nobody`].
    pub fn is_nobody(&self) -> bool {
        *self.0 == *NOBODY
    }
}

impl Project {
    /// The project of entries about no work.
    pub fn nobody() -> Self {
        Self(NOBODY.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Drawn(u64);
    impl Chance for Drawn {
        fn draw(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_claim_id_has_fifteen_digits() {
        for drawn in [0, 1, u64::MAX, SPAN - 1, SPAN] {
            let id = ClaimId::draw(&Drawn(drawn));
            assert_eq!(id.to_string().len(), 15);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn ids_derived_from_a_solve_differ() {
        let solve = SolveId::from_number(123_456_789_012_345);
        let ids = [solve, solve.orphan(1), solve.orphan(2)];
        for (i, a) in ids.iter().enumerate() {
            assert!(ids[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn processes_of_one_place_have_different_ids_that_name_it() {
        let place = Place::named("host/127.0.0.1:8402");
        let ids = [1, 77, u64::MAX].map(|drawn| HolderId::draw_in(place, &Drawn(drawn)));
        assert!(ids.iter().all(|id| id.place() == Some(place)));
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
        assert_ne!(Place::named("host/127.0.0.1:8403"), place);
        assert_eq!(HolderId::from_number(7).place(), None);
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
