//! The history of another store: its ledger, lot by lot, and what it is about. A lot is taken together with the place it
//! goes up to, and only by an archive that is where the lot begins: telling it twice changes nothing.

use domain::{
    claim::Claim,
    dead_letter::DeadLetter,
    id::SolveId,
    ledger::{Entry, Event},
    ports::{Lot, StoreError},
    time::Timestamp,
};

use crate::{
    tables::{Archived, Claims, DeadLetters, Died, Pages, Progress, Subject, Told},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{
    garbage::{self, Kept},
    keep,
    restore::{progress, raise_total},
    step::{has_entry, subject, total_key, write_page},
};

/// The only row of its table.
pub(crate) const HOW_FAR: u8 = 0;

/// Takes a lot; `false` when it does not follow what was told before.
pub(crate) fn archive(tx: &mut dyn WriteTx, lot: &Lot) -> Result<bool, StoreError> {
    let before = tx.get::<Archived>(&HOW_FAR)?;
    if before.as_ref().map(|before| &before.last) != lot.after.as_ref() {
        return Ok(false);
    }
    let Some(last) = lot.entries.last().cloned() else { return Ok(true) };
    let (newest, doubtful_until) = match &before {
        Some(before) if lot.is_anew => (before.newest, before.newest),
        Some(before) => (before.newest, before.doubtful_until),
        None => <_>::default(),
    };
    let news = news(tx, &lot.entries, doubtful_until)?;
    append(tx, news)?;
    for claim in &lot.claims {
        keep_claim(tx, claim)?;
    }
    for entry in lot.entries.iter().filter(|entry| matches!(entry.event, Event::Purged { .. })) {
        entry.solve.map_or(Ok(()), |id| forget_letter(tx, id))?;
    }
    for letter in &lot.letters {
        keep_letter(tx, letter)?;
    }
    for total in &lot.totals {
        raise_total(tx, &total_key(total), total)?;
    }
    let newest = lot.entries.iter().map(|entry| entry.at).fold(newest, Timestamp::max);
    tx.put::<Archived>(HOW_FAR, Progress { last, newest, doubtful_until })?;
    Ok(true)
}

/// Drops what an archive has kept long enough.
pub(crate) fn drop_archived(
    tx: &mut dyn WriteTx,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    garbage::drop_old(tx, Kept::Here, limit, now)
}

// === entries ===

/// What of the entries is not there yet.
fn news(
    tx: &dyn ReadTx,
    entries: &[Entry],
    doubtful_until: Timestamp,
) -> Result<Vec<Entry>, StoreError> {
    let mut news = Vec::with_capacity(entries.len());
    for entry in entries {
        if entry.at > doubtful_until || !is_known(tx, entry)? {
            news.push(entry.clone());
        }
    }
    Ok(news)
}

/// Whether the entry is there, under whatever number.
fn is_known(tx: &dyn ReadTx, entry: &Entry) -> Result<bool, StoreError> {
    has_entry(tx, index(entry), |known| known.says_the_same(entry))
}

fn index(entry: &Entry) -> Subject {
    subject(entry).unwrap_or(Subject::Moment(entry.at))
}

/// Entries of one moment are one page. They keep their numbers unless those are taken: a store that lost writes uses
/// numbers twice.
fn append(tx: &mut dyn WriteTx, mut entries: Vec<Entry>) -> Result<(), StoreError> {
    let mut last = tx.last::<Pages>()?.unwrap_or(0);
    for entry in &mut entries {
        last = entry.seq.max(last + 1);
        entry.seq = last;
    }
    for page in entries.chunk_by(|a, b| a.at == b.at) {
        let Some(end) = page.last() else { continue };
        if page.iter().any(|entry| subject(entry).is_none()) {
            tx.put::<Told>((Subject::Moment(end.at), end.seq), ())?;
        }
        write_page(tx, end.seq, page.to_vec())?;
    }
    Ok(())
}

// === what they are about ===

/// A store that lost writes may tell of a claim as it was: what is known goes on from there.
fn keep_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    match tx.get::<Claims>(&claim.id)? {
        Some(known) if progress(&known) > progress(claim) => return Ok(()),
        Some(_) => {}
        None => keep::list_claim(tx, claim)?,
    }
    tx.put::<Claims>(claim.id, claim.clone())
}

fn keep_letter(tx: &mut dyn WriteTx, letter: &DeadLetter) -> Result<(), StoreError> {
    forget_letter(tx, letter.id)?;
    tx.put::<Died>((letter.died_at, letter.id), ())?;
    tx.put::<DeadLetters>(letter.id, letter.clone())
}

fn forget_letter(tx: &mut dyn WriteTx, id: SolveId) -> Result<(), StoreError> {
    if let Some(known) = tx.take::<DeadLetters>(&id)? {
        tx.take::<Died>(&(known.died_at, id))?;
    }
    Ok(())
}
