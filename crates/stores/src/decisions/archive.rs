//! Archives the history of another store: its ledger, batch by batch, and the records that the entries are about. An archive
//! takes only the batch that follows the last one, and writes its progress in the same transaction, so a repeated batch changes
//! nothing.

use domain::{
    claim::Claim,
    ledger::{Entry, Event},
    ports::ArchiveBatch,
    time::Timestamp,
};

use crate::{
    Result,
    schema::tables::{ArchiveProgress, Archived, Claims, LedgerIndex, Subject},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::support::{
    dead_letters, indexes,
    ledger::{LedgerEnd, archive_subject, has_entry, raise_total, subject, total_key, write_page},
    merge::claim_progress,
    secrets::without_secrets,
};

/// The key of the only row of its table.
pub(crate) const ARCHIVE_PROGRESS: u8 = 0;

/// Takes a batch; `false` when it does not follow the last one.
pub(crate) fn archive(tx: &mut dyn WriteTx, batch: &ArchiveBatch) -> Result<bool> {
    let before = tx.get::<Archived>(&ARCHIVE_PROGRESS)?;
    if before.as_ref().map(|before| &before.last) != batch.after.as_ref() {
        return Ok(false);
    }
    let Some(last) = batch.entries.last().cloned() else { return Ok(true) };
    let (newest, doubtful_until) = match &before {
        Some(before) if batch.from_start => (before.newest, before.newest),
        Some(before) => (before.newest, before.doubtful_until),
        None => <_>::default(),
    };
    let new = unknown_entries(tx, &batch.entries, doubtful_until)?;
    append(tx, new)?;
    for claim in &batch.claims {
        put_claim(tx, claim)?;
    }
    for entry in batch.entries.iter().filter(|entry| matches!(entry.event, Event::Purged { .. })) {
        if let Some(id) = entry.solve {
            dead_letters::delete(tx, id)?;
        }
    }
    for letter in &batch.dead_letters {
        dead_letters::delete(tx, letter.id)?;
        dead_letters::put(tx, letter.clone())?;
    }
    for total in &batch.totals {
        raise_total(tx, total_key(total, 0), total)?;
    }
    let newest = batch.entries.iter().map(|entry| entry.at).fold(newest, Timestamp::max);
    tx.put::<Archived>(ARCHIVE_PROGRESS, ArchiveProgress { last, newest, doubtful_until })?;
    Ok(true)
}

// === entries ===

/// The entries that the archive does not have yet.
fn unknown_entries(
    tx: &dyn ReadTx,
    entries: &[Entry],
    doubtful_until: Timestamp,
) -> Result<Vec<Entry>> {
    let mut unknown = Vec::with_capacity(entries.len());
    for entry in entries {
        if entry.at > doubtful_until || !is_known(tx, entry)? {
            unknown.push(entry.clone());
        }
    }
    Ok(unknown)
}

/// Whether the archive has the entry, under any number.
fn is_known(tx: &dyn ReadTx, entry: &Entry) -> Result<bool> {
    has_entry(tx, archive_subject(entry), |known| known.has_same_content(entry))
}

/// Appends entries, those of one moment as one page. They keep their numbers unless these are taken, because a store that
/// lost writes uses numbers twice. The archive has a chain of its own: with the same entries under the same numbers it has
/// the same hashes.
fn append(tx: &mut dyn WriteTx, mut entries: Vec<Entry>) -> Result<()> {
    let mut end = LedgerEnd::read(tx)?;
    let mut last = end.seq;
    for entry in &mut entries {
        last = entry.seq.max(last + 1);
        entry.seq = last;
    }
    for page in entries.chunk_by(|a, b| a.at == b.at) {
        let Some(last) = page.last() else { continue };
        if page.iter().any(|entry| subject(entry).is_none()) {
            tx.put::<LedgerIndex>((Subject::Moment(last.at), last.seq), ())?;
        }
        end = write_page(tx, end, page.to_vec())?;
    }
    Ok(())
}

// === claims ===

/// Writes a claim, unless the archive has a newer version. A store that lost writes may send an older one.
fn put_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    match tx.get::<Claims>(&claim.id)? {
        Some(known) if claim_progress(&known) > claim_progress(claim) => return Ok(()),
        Some(known) => indexes::relist_claim(tx, &known, claim)?,
        None => indexes::list_claim(tx, claim, true)?,
    }
    tx.put::<Claims>(claim.id, without_secrets(claim))
}
