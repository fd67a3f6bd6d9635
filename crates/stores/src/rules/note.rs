//! Entries that change no state: refusals and reports.

use domain::{
    ports::{Note, StoreError},
    time::Timestamp,
};

use crate::{shelf::ShelfMut, tables::Claims};

use super::step::{About, Step};

/// Writes the entry.
pub(crate) fn note<S: ShelfMut>(
    shelf: &mut S,
    note: &Note,
    now: Timestamp,
) -> Result<(), StoreError> {
    let known = match note.claim {
        Some(id) => shelf.get::<Claims>(&id)?,
        None => None,
    };
    let about = About {
        claim: note.claim,
        solve: known.and_then(|claim| claim.solve),
        worker: note.worker.clone(),
        project: note.project.clone(),
        kind: note.kind.clone(),
    };
    let mut step = Step::new(shelf, now);
    step.tell(about, note.event.clone());
    step.finish()
}
