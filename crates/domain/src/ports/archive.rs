//! Keeps the history that the store itself need not keep. The engine copies the store's ledger into the archive batch by
//! batch; copying a batch twice changes nothing.

use async_trait::async_trait;

use crate::{
    claim::Claim,
    dead_letter::DeadLetter,
    id::ClaimId,
    ledger::{Entry, Total},
    time::Timestamp,
};

use super::{records::Records, store::StoreResult};

/// An archive: the readings over what was copied into it, and the copying.
#[async_trait]
pub trait Archive: Records {
    /// The last entry that was archived, as the store wrote it.
    async fn archived(&self) -> StoreResult<Option<Entry>>;

    /// Writes a batch in one transaction. Returns `false`, and changes nothing, when the batch does not follow the last
    /// archived entry: it was archived before, or another gateway was quicker.
    async fn archive(&self, batch: ArchiveBatch) -> StoreResult<bool>;

    /// A claim as it was last archived.
    async fn archived_claim(&self, id: ClaimId) -> StoreResult<Option<Claim>>;

    /// Deletes records past their retention, at most `limit` of each table, and returns how many.
    async fn drop_old(&self, limit: usize, now: Timestamp) -> StoreResult<usize>;
}

/// A part of a store's ledger, with the records it is about as they stand now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveBatch {
    /// The archive's last entry when the batch was read; the archive refuses the batch if that is no longer so.
    pub after: Option<Entry>,
    /// The store no longer has `after`, so the entries begin at the start of its ledger. The archive may have some of
    /// them already.
    pub from_start: bool,
    /// In the order of the ledger.
    pub entries: Vec<Entry>,
    /// The claims the entries are about.
    pub claims: Vec<Claim>,
    /// The dead letters the entries may have changed.
    pub dead_letters: Vec<DeadLetter>,
    /// The sums of the days the entries fall on.
    pub totals: Vec<Total>,
}

/// Where a store's history is kept for long. The sweep asks this before it deletes anything.
#[derive(Clone, Debug, Default)]
pub enum History {
    /// In the store itself, which therefore keeps everything for the whole retention.
    #[default]
    InStore,
    /// In an archive that has everything up to this entry. The store keeps later entries, however old they are.
    Archived(Option<Box<Entry>>),
}
