//! Things that callers may repeat without end: answers of a claim that cannot change, and reports about one task. They are
//! counted or marked in a memo, because a ledger entry for each would let one caller fill the store.

use domain::{
    claim::Repeats,
    id::{ClaimId, TaskId},
};

use crate::{
    Result,
    schema::{codec::corrupt, keys::Text, tables::Claims, tables::Memos, tables::Table as _},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

// === answers ===

fn answers_memo(claim: ClaimId) -> Text {
    Text::new(&format!("repeats/{claim}"))
}

/// How often the claim was answered again.
pub(crate) fn repeats(tx: &dyn ReadTx, claim: ClaimId) -> Result<Repeats> {
    match tx.get::<Memos>(&answers_memo(claim))? {
        Some(bytes) => {
            postcard::from_bytes(&bytes).map_err(|why| corrupt(tx.backend(), Memos::NAME, why))
        }
        None => Ok(Repeats::default()),
    }
}

/// Adds to the counts of a claim; returns what they were before.
pub(crate) fn add(tx: &mut dyn WriteTx, claim: ClaimId, more: Repeats) -> Result<Repeats> {
    let before = repeats(tx, claim)?;
    let after = Repeats {
        fetched: before.fetched.saturating_add(more.fetched),
        replayed: before.replayed.saturating_add(more.replayed),
    };
    let bytes =
        postcard::to_stdvec(&after).map_err(|why| corrupt(tx.backend(), Memos::NAME, why))?;
    tx.put::<Memos>(answers_memo(claim), bytes)?;
    Ok(before)
}

/// Adds fetches of tokens that were handed out before.
pub(crate) fn add_fetches(tx: &mut dyn WriteTx, fetches: &[(ClaimId, u64)]) -> Result<()> {
    for (claim, fetched) in fetches {
        if tx.has::<Claims>(claim)? {
            add(tx, *claim, Repeats { fetched: *fetched, ..Repeats::default() })?;
        }
    }
    Ok(())
}

/// Forgets the counts of a deleted claim.
pub(crate) fn forget(tx: &mut dyn WriteTx, claim: ClaimId) -> Result<()> {
    tx.take::<Memos>(&answers_memo(claim)).map(drop)
}

// === reports ===

fn report_memo(task: &TaskId) -> Text {
    Text::new(&format!("reported/{task}"))
}

/// Marks the task as reported; `false` when it was before.
pub(crate) fn mark_reported(tx: &mut dyn WriteTx, task: &TaskId) -> Result<bool> {
    let memo = report_memo(task);
    let is_first = !tx.has::<Memos>(&memo)?;
    if is_first {
        tx.put::<Memos>(memo, Vec::new())?;
    }
    Ok(is_first)
}

/// Forgets the report about a task whose entries are deleted.
pub(crate) fn forget_report(tx: &mut dyn WriteTx, task: &TaskId) -> Result<()> {
    tx.take::<Memos>(&report_memo(task)).map(drop)
}
