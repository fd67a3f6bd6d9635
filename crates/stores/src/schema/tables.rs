//! The tables of a store, with their keys and values. Tags and table names are part of the stored format, so a table keeps
//! its old name where its type was renamed.

use std::{fmt, sync::Arc};

use domain::{
    account_share::Stake,
    budget::BudgetBook,
    callback::Callback,
    challenge::{Challenge, Kind},
    claim::Claim,
    dead_letter::DeadLetter,
    fingerprint::{Fingerprint, KeyHash},
    id::{ClaimId, HolderId, Project, SolveId, WorkerName},
    ledger::{Entry, Total},
    pool::Pool,
    ports::LearnedMargin,
    solve::Solve,
    time::{Day, Timestamp},
    token::Token,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::schema::{
    keys::{Key, Text},
    page::LedgerPage,
};

/// One ordered table. The types that implement this have no values; they only name a table.
pub(crate) trait Table: 'static {
    /// The first byte of every stored key. A tag is never reused for another table.
    const TAG: u8;
    /// The name on servers and in error messages.
    const NAME: &'static str;
    type Key: Key;
    type Value: Clone + fmt::Debug + Serialize + DeserializeOwned + Send + 'static;

    /// How many zero bytes complete a row of an earlier release. Fields are only appended, and the zero bytes are read as
    /// their empty values; a row that has the fields ignores them.
    const APPENDED: usize = 0;

    /// Converts a value of an earlier release whose fields meant something else.
    fn convert(_: &mut Self::Value) {}

    /// Whether a value must be sealed: it holds the text of a token, a parameter of a challenge or a callback address.
    fn holds_secret(_: &Self::Value) -> bool {
        false
    }
}

macro_rules! tables {
    ($( $(#[$doc:meta])* $tag:literal $type:ident in $name:ident: $key:ty => $value:ty $(, sealed if $holds_secret:path)? $(, appended $zeros:literal)? $(, converted by $convert:path)?; )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) enum $type {}

            impl Table for $type {
                const TAG: u8 = $tag;
                const NAME: &'static str = stringify!($name);
                type Key = $key;
                type Value = $value;
                $( const APPENDED: usize = $zeros; )?

                $( fn convert(value: &mut $value) {
                    $convert(value);
                } )?

                $( fn holds_secret(value: &$value) -> bool {
                    $holds_secret(value)
                } )?
            }
        )*

        pub(crate) const LAST_TAG: u8 = {
            let tags = [$( $tag, )*];
            tags[tags.len() - 1]
        };

        /// The tag and name of every table.
        #[cfg(any(test, feature = "dynamodb"))]
        pub(crate) const NAMES: &[(u8, &str)] = &[$( ($tag, stringify!($name)), )*];
    };
}

tables! {
    1 Claims in claims: ClaimId => Claim, sealed if Claim::holds_secret, appended 2;
    /// The claim of each idempotency key.
    2 Keys in keys: KeyHash => Keyed;
    3 Solves in solves: SolveId => Solve, appended 2;
    /// The challenge of a solve. It is written once and can have a mebibyte.
    4 Challenges in challenges: SolveId => Arc<Challenge>, sealed if challenge_holds_secret;
    /// Unfinished solves without a holder, by when they are due.
    5 Free in free: (Timestamp, SolveId) => ();
    /// Unfinished solves with a holder, by holder and by when they are due.
    6 Held in held: (HolderId, Timestamp, SolveId) => ();
    /// The lease of each holder.
    7 Holders in holders: HolderId => HolderRow, appended 8;
    /// The waiting claims of a fingerprint, oldest first.
    8 Waiting in waiting: (Fingerprint, Timestamp, ClaimId) => ();
    /// Unfinished solves whose answer several claims may share.
    9 Joinable in joinable: (Fingerprint, SolveId) => ();
    /// Claims by when the sweep has to check them: at a deadline, or when an unfetched token expires.
    10 Watched in watched: (Timestamp, ClaimId) => ();
    /// The unassigned tokens of a fingerprint, earliest expiry first.
    11 Stock in stock: (Fingerprint, Timestamp, SolveId) => Stocked, sealed if always;
    /// The stock by expiry.
    12 Expiries in expiries: (Timestamp, Fingerprint, SolveId) => ();
    /// The ledger. A page holds the entries of one decision, and its key is the number of the last entry.
    13 Pages in pages: u64 => LedgerPage;
    /// The pages of the ledger that have entries about a subject.
    14 LedgerIndex in told: (Subject, u64) => ();
    /// Totals by day and label, each in lanes (`decisions/support/lanes.rs`).
    15 Totals in totals: (Day, Text) => Total, appended 48, converted by Total::convert;
    /// The books of the budgets, by the first day of the month and the budget, or a lane of it (`decisions/support/budgets/rows.rs`). Rows of
    /// releases before 0.2.0 have a day and a worker, and what the worker opened on that day.
    16 Spending in spending: (Day, Text) => BudgetBook, appended 10;
    /// The number of AUTHORISE events of a day.
    17 Authorised in authorised: Day => u32;
    /// Claims by age.
    18 ByTime in by_time: (Timestamp, ClaimId) => ();
    /// The claims of a worker by age.
    19 ByWorker in by_worker: (Text, Timestamp, ClaimId) => ();
    /// The claims of a site key by age.
    20 BySitekey in by_sitekey: (Text, Timestamp, ClaimId) => ();
    21 DeadLetters in dead_letters: SolveId => DeadLetter, appended 1;
    /// Dead letters by age.
    22 Died in died: (Timestamp, SolveId) => ();
    /// The attempt that a task belongs to. Two attempts never share a task.
    23 Tasks in tasks: Text => (SolveId, u32);
    /// When ended records may be deleted.
    24 RetentionQueue in garbage: (Timestamp, Retained) => ();
    /// Callbacks that no receiver has accepted yet.
    25 Callbacks in callbacks: ClaimId => Callback, sealed if always, appended 3;
    /// The callbacks by when they are tried next.
    26 Outbox in outbox: (Timestamp, ClaimId) => ();
    27 Pools in pools: Fingerprint => Pool, sealed if pool_holds_secret;
    /// Unfinished exclusive solves that no claim waits for.
    28 Spare in spare: (Fingerprint, SolveId) => ();
    /// How early a site needs its tokens, by site and kind.
    29 Margins in margins: (Text, Text) => LearnedMargin;
    /// Small values that the engine learned, by name.
    30 Memos in memos: Text => Vec<u8>;
    /// In an archive: how far it holds the ledger of its store. There is one row.
    31 Archived in archived: u8 => ArchiveProgress;
}

fn challenge_holds_secret(challenge: &Arc<Challenge>) -> bool {
    challenge.holds_secret()
}

fn pool_holds_secret(pool: &Pool) -> bool {
    pool.order.challenge.holds_secret()
}

/// For tables whose rows exist because of their secret.
fn always<T>(_: &T) -> bool {
    true
}

#[cfg(feature = "dynamodb")]
pub(crate) fn name_of(tag: u8) -> Option<&'static str> {
    NAMES.iter().find(|(other, _)| *other == tag).map(|(_, name)| *name)
}

/// The lease of a gateway, and its stakes in the account's limits. In releases before 0.2.0 it has its end only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HolderRow {
    /// When the lease expires.
    pub(crate) until: Timestamp,
    pub(crate) slots: Stake,
    pub(crate) submits: Stake,
    /// The slots that were taken at the last renewal.
    pub(crate) used: u32,
    /// Set when the holder gave up its lease: until then, the slots of the tasks that it released are not free.
    pub(crate) left_until: Timestamp,
}

impl HolderRow {
    /// A lease without stakes.
    pub(crate) fn new(until: Timestamp) -> Self {
        Self {
            until,
            slots: Stake::default(),
            submits: Stake::default(),
            used: 0,
            left_until: Timestamp::default(),
        }
    }
}

/// The owner of an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keyed {
    pub(crate) claim: ClaimId,
    /// Another challenge under the same key is refused.
    pub(crate) fingerprint: Fingerprint,
}

/// An unassigned token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stocked {
    pub(crate) token: Token,
    pub(crate) kind: Kind,
    /// The worker and project that its cost was charged to.
    pub(crate) worker: WorkerName,
    pub(crate) project: Project,
}

/// How far an archive holds the ledger of its store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArchiveProgress {
    /// The last entry of the last lot, as the store had it.
    pub(crate) last: Entry,
    /// The latest time of any archived entry.
    pub(crate) newest: Timestamp,
    /// The store may send entries up to this time again, because it lost its ledger.
    pub(crate) doubtful_until: Timestamp,
}

/// The subject that a page of the ledger is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Claim(ClaimId),
    /// A solve, without its claims.
    Solve(SolveId),
    /// For entries about neither, which only an archive indexes.
    Moment(Timestamp),
    /// For entries of the audit trail, by time.
    Audit(Timestamp),
}

/// A record that is deleted after its retention period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Retained {
    /// The challenge of an ended solve.
    Challenge(SolveId),
    Solve(SolveId),
    /// An ended claim that was removed from the indexes of the history.
    Claim(ClaimId),
}

/// A key that is one of several: a byte that says which, then that key.
macro_rules! either_key {
    ($type:ident: $( $byte:literal $variant:ident($key:ty) ),+) => {
        impl Key for $type {
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$variant(key) => ($byte, *key).write(out), )+
                }
            }

            fn read(input: &mut &[u8]) -> Option<Self> {
                match u8::read(input)? {
                    $( $byte => Some(Self::$variant(<$key>::read(input)?)), )+
                    _ => None,
                }
            }

            fn least() -> Self {
                let [least, ..] = [$( Self::$variant(Key::least()) ),+];
                least
            }

            fn most() -> Self {
                let [.., most] = [$( Self::$variant(Key::most()) ),+];
                most
            }
        }
    };
}

either_key!(
    Subject: 0_u8 Claim(ClaimId), 1_u8 Solve(SolveId), 2_u8 Moment(Timestamp), 3_u8 Audit(Timestamp)
);
either_key!(Retained: 0_u8 Challenge(SolveId), 1_u8 Solve(SolveId), 2_u8 Claim(ClaimId));

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
