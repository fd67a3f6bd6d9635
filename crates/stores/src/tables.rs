//! The tables: what is kept, and by what it is found. Tags are part of the format at rest.

use std::{fmt, sync::Arc};

use domain::{
    callback::Callback,
    challenge::{Challenge, Kind},
    claim::Claim,
    dead_letter::DeadLetter,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Project, SolveId, WorkerName},
    ledger::{Entry, Total},
    pool::Pool,
    ports::{LearnedMargin, Spent},
    solve::Solve,
    time::{Day, Timestamp},
    token::Token,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::keys::{Key, KeyBytes, Text};

/// One ordered table. The types are never made; they only name what is kept where.
pub(crate) trait Table: 'static {
    /// First byte of every key at rest. Never reused for another table.
    const TAG: u8;
    /// Its name in error messages.
    const NAME: &'static str;
    /// What rows are found by.
    type Key: Key;
    /// What a row holds.
    type Value: Clone + fmt::Debug + Serialize + DeserializeOwned + Send + 'static;
}

macro_rules! tables {
    ($( $(#[$doc:meta])* $tag:literal $type:ident in $name:ident: $key:ty => $value:ty; )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) enum $type {}

            impl Table for $type {
                const TAG: u8 = $tag;
                const NAME: &'static str = stringify!($name);
                type Key = $key;
                type Value = $value;
            }
        )*

        /// The highest tag.
        pub(crate) const LAST_TAG: u8 = {
            let tags = [$( $tag, )*];
            tags[tags.len() - 1]
        };

        /// Every table's tag and name.
        #[cfg(any(test, feature = "dynamodb"))]
        pub(crate) const NAMES: &[(u8, &str)] = &[$( ($tag, stringify!($name)), )*];
    };
}

tables! {
    /// Claims by name.
    1 Claims in claims: ClaimId => Claim;
    /// Which claim a key belongs to.
    2 Keys in keys: KeyBytes => Keyed;
    /// Solves by name.
    3 Solves in solves: SolveId => Solve;
    /// What a solve is about: written once, up to a mebibyte.
    4 Challenges in challenges: SolveId => Arc<Challenge>;
    /// Solves under way that nobody holds, by when they are due.
    5 Free in free: (Timestamp, SolveId) => ();
    /// Solves under way that somebody holds, by holder and when they are due.
    6 Held in held: (HolderId, Timestamp, SolveId) => ();
    /// Until when each holder is believed alive.
    7 Holders in holders: HolderId => Timestamp;
    /// Waiting claims of a fingerprint, oldest first.
    8 Waiting in waiting: (Fingerprint, Timestamp, ClaimId) => ();
    /// Solves under way whose answer several claims may have.
    9 Joinable in joinable: (Fingerprint, SolveId) => ();
    /// Claims the sweep has to look at: deadlines, and tokens nobody fetched.
    10 Watched in watched: (Timestamp, ClaimId) => ();
    /// Unassigned tokens of a fingerprint, earliest expiry first.
    11 Stock in stock: (Fingerprint, Timestamp, SolveId) => Stocked;
    /// The stock by expiry.
    12 Expiries in expiries: (Timestamp, Fingerprint, SolveId) => ();
    /// The ledger: the entries of one decision, by the place of the last of them.
    13 Pages in pages: u64 => Vec<Entry>;
    /// Which pages tell about a claim or a solve.
    14 Told in told: (Subject, u64) => ();
    /// Sums by day and label.
    15 Totals in totals: (Day, Text) => Total;
    /// What a worker opened on a day.
    16 Spending in spending: (Day, Text) => Spent;
    /// AUTHORISE events of a day.
    17 Authorised in authorised: Day => u32;
    /// Claims by age.
    18 ByTime in by_time: (Timestamp, ClaimId) => ();
    /// A worker's claims by age.
    19 ByWorker in by_worker: (Text, Timestamp, ClaimId) => ();
    /// A site key's claims by age.
    20 BySitekey in by_sitekey: (Text, Timestamp, ClaimId) => ();
    /// Dead letters by name.
    21 DeadLetters in dead_letters: SolveId => DeadLetter;
    /// Dead letters by age.
    22 Died in died: (Timestamp, SolveId) => ();
    /// Which attempt a task belongs to: two never share one.
    23 Tasks in tasks: Text => (SolveId, u32);
    /// What may be dropped, and when.
    24 Garbage in garbage: (Timestamp, Junk) => ();
    /// Callbacks that no receiver has taken yet.
    25 Callbacks in callbacks: ClaimId => Callback;
    /// The same by when they are tried next.
    26 Outbox in outbox: (Timestamp, ClaimId) => ();
    /// Standing orders.
    27 Pools in pools: Fingerprint => Pool;
    /// Solves under way that nobody waits for and whose token one claim may have.
    28 Spare in spare: (Fingerprint, SolveId) => ();
    /// What was learned about how early tokens have to be used, by site and kind.
    29 Margins in margins: (Text, Text) => LearnedMargin;
    /// Small things learned, by name.
    30 Memos in memos: Text => Vec<u8>;
    /// In an archive: how far it was told the ledger of its store. There is one row.
    31 Archived in archived: u8 => Progress;
}

/// The name of the table with a tag.
#[cfg(feature = "dynamodb")]
pub(crate) fn name_of(tag: u8) -> Option<&'static str> {
    NAMES.iter().find(|(other, _)| *other == tag).map(|(_, name)| *name)
}

/// Whose key it is and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keyed {
    /// The claim.
    pub(crate) claim: ClaimId,
    /// Its challenge: another one under the same key is refused.
    pub(crate) fingerprint: Fingerprint,
}

/// A token that belongs to nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stocked {
    /// The token.
    pub(crate) token: Token,
    /// Of which kind.
    pub(crate) kind: Kind,
    /// Whose it was.
    pub(crate) worker: WorkerName,
    /// What its cost was charged to.
    pub(crate) project: Project,
}

/// How far an archive was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The last entry, as the store had it.
    pub(crate) last: Entry,
    /// No entry that was ever told is later than this.
    pub(crate) newest: Timestamp,
    /// Entries up to here may be told again, because the store's ledger was started over.
    pub(crate) doubtful_until: Timestamp,
}

/// What a page of the ledger is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A claim.
    Claim(ClaimId),
    /// A solve, apart from its claims.
    Solve(SolveId),
    /// Neither: an archive finds it by its time.
    Moment(Timestamp),
}

/// What is dropped when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Junk {
    /// The challenge of an ended solve.
    Challenge(SolveId),
    /// The ended solve itself.
    Solve(SolveId),
    /// An ended claim that is in no list any more.
    Claim(ClaimId),
}

impl Key for Subject {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Claim(id) => (0_u8, *id).write(out),
            Self::Solve(id) => (1_u8, *id).write(out),
            Self::Moment(at) => (2_u8, *at).write(out),
        }
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        match u8::read(input)? {
            0 => Some(Self::Claim(ClaimId::read(input)?)),
            1 => Some(Self::Solve(SolveId::read(input)?)),
            2 => Some(Self::Moment(Timestamp::read(input)?)),
            _ => None,
        }
    }
}

impl Key for Junk {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Challenge(id) => (0_u8, *id).write(out),
            Self::Solve(id) => (1_u8, *id).write(out),
            Self::Claim(id) => (2_u8, *id).write(out),
        }
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        match u8::read(input)? {
            0 => Some(Self::Challenge(SolveId::read(input)?)),
            1 => Some(Self::Solve(SolveId::read(input)?)),
            2 => Some(Self::Claim(ClaimId::read(input)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NAMES;

    #[test]
    fn every_table_has_a_tag_of_its_own() {
        for (i, (tag, name)) in NAMES.iter().enumerate() {
            assert!(NAMES[i + 1..].iter().all(|(other, _)| other != tag), "{name}");
        }
    }
}
