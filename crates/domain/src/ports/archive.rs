//! Where history is kept that the store itself need not keep. What the store's ledger says is told to the archive lot by
//! lot, and a lot told twice changes nothing.

use async_trait::async_trait;

use crate::{
    claim::Claim,
    dead_letter::DeadLetter,
    id::ClaimId,
    ledger::{Entry, Total},
    time::Timestamp,
};

use super::{records::Records, store::StoreError};

/// An archive: the readings of what was told to it, and the telling.
#[async_trait]
pub trait Archive: Records {
    /// The last entry it was told, as the store has it.
    async fn archived(&self) -> Result<Option<Entry>, StoreError>;

    /// Takes a lot, in one step. `false`, and nothing changed, when the lot does not follow what was told before: it was
    /// told already, or another was quicker.
    async fn archive(&self, lot: Lot) -> Result<bool, StoreError>;

    /// A claim as it was last told.
    async fn archived_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError>;

    /// Drops what has been kept long enough, at most so many records of each sort; the result is how many.
    async fn drop_old(&self, limit: usize, now: Timestamp) -> Result<usize, StoreError>;
}

/// A piece of a store's ledger, with what it is about as it stands now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lot {
    /// What the archive was told last.
    pub after: Option<Entry>,
    /// The store does not have that entry any more: this is its ledger from the beginning, and the archive may know some
    /// of it.
    pub is_anew: bool,
    /// The entries, in order.
    pub entries: Vec<Entry>,
    /// The claims they are about.
    pub claims: Vec<Claim>,
    /// The dead letters they are about.
    pub letters: Vec<DeadLetter>,
    /// The sums of their days.
    pub totals: Vec<Total>,
}

/// Where a store's history is kept for long.
#[derive(Clone, Debug, Default)]
pub enum History {
    /// In the store itself.
    #[default]
    Here,
    /// In an archive, which was told as far as this entry. What it was not told stays in the store, however old.
    Archived(Option<Box<Entry>>),
}
