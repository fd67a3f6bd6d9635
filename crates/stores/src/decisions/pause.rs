//! Pauses and resumes submissions. All pauses are one row, which every decision that spends reads in its transaction
//! (advance.rs, refill.rs): a pause therefore holds on every gateway as soon as it is written.

use domain::{
    admin_action::AdminAction,
    id::Project,
    ledger::Event,
    pause::{MAX_PAUSES, Pause, Pauses},
    ports::{PauseRequest, PauseResult},
};
use serde::{Deserialize, Serialize};

use crate::{
    Result,
    schema::{
        codec::corrupt,
        keys::Text,
        tables::{Memos, Table as _},
    },
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::support::context::{Attribution, DecisionCtx};

/// The stored row. It is never deleted, so that its version only rises.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PauseRow {
    /// Rises with every change.
    pub(crate) version: u64,
    pub(crate) pauses: Pauses,
}

/// The name of the row among the memos. No memo of the engine begins like this, and no retention deletes it.
pub(crate) const PAUSES_MEMO: &str = "pauses";

/// The project of entries about the gateway itself.
const PROJECT: &str = "gateway";

/// Pauses or resumes a scope.
pub(crate) fn set_pause(ctx: &mut DecisionCtx<'_>, request: &PauseRequest) -> Result<PauseResult> {
    let PauseRow { version, mut pauses } = read_row(ctx.tx)?;
    let scope = &request.scope;
    if request.paused && pauses.len() >= MAX_PAUSES && !pauses.has(scope) {
        return Ok(PauseResult::TooMany);
    }
    let is_new = if request.paused {
        let (scope, by) = (scope.clone(), request.by.clone());
        pauses.add(Pause { scope, since: ctx.now, by })
    } else {
        pauses.end(scope)
    };
    if is_new {
        write_row(ctx.tx, &PauseRow { version: version + 1, pauses: pauses.clone() })?;
        record(ctx, request);
        ctx.tx.require_durable();
    }
    Ok(PauseResult::Done { pauses, is_new })
}

fn record(ctx: &mut DecisionCtx<'_>, request: &PauseRequest) {
    let (scope, by) = (request.scope.clone(), request.by.clone());
    let action =
        if request.paused { AdminAction::Paused { scope } } else { AdminAction::Resumed { scope } };
    let about = Attribution {
        claim: None,
        solve: None,
        worker: by.name.clone(),
        project: Project::new(PROJECT).expect("a valid project"),
        kind: None,
    };
    ctx.record(about, Event::Administered { by, action });
}

/// The pauses in force.
pub(crate) fn pauses(tx: &dyn ReadTx) -> Result<Pauses> {
    Ok(read_row(tx)?.pauses)
}

/// Writes a row that the store lost, unless it has a newer one; `true` when it was written.
pub(crate) fn restore_pauses(tx: &mut dyn WriteTx, lost: &PauseRow) -> Result<bool> {
    let is_newer = read_row(tx)?.version < lost.version;
    if is_newer {
        write_row(tx, lost)?;
    }
    Ok(is_newer)
}

fn read_row(tx: &dyn ReadTx) -> Result<PauseRow> {
    match tx.get::<Memos>(&Text::new(PAUSES_MEMO))? {
        Some(bytes) => {
            postcard::from_bytes(&bytes).map_err(|why| corrupt(tx.backend(), Memos::NAME, why))
        }
        None => Ok(PauseRow::default()),
    }
}

fn write_row(tx: &mut dyn WriteTx, row: &PauseRow) -> Result<()> {
    let bytes = postcard::to_stdvec(row).map_err(|why| corrupt(tx.backend(), Memos::NAME, why))?;
    tx.put::<Memos>(Text::new(PAUSES_MEMO), bytes)
}
