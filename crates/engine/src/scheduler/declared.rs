//! Finds work that the declarations in force no longer allow, before it asks for a slot. Used by driver.rs; the decision that
//! writes an intent checks again.

use std::sync::Arc;

use domain::{
    declarations::Declarations,
    time::{Day, Timestamp},
};

use super::active::ActiveSolve;
use crate::Shared;

/// The declarations that the queue was last checked against, and the day, because a declaration ends with a day.
pub(super) struct DeclarationFilter {
    declarations: Arc<Declarations>,
    day: Day,
}

impl DeclarationFilter {
    pub(super) fn new(shared: &Shared, now: Timestamp) -> Self {
        Self { declarations: shared.declarations(), day: now.day() }
    }

    /// Takes the declarations in force; `true` when they or the day are new.
    pub(super) fn refresh(&mut self, shared: &Shared, now: Timestamp) -> bool {
        let latest = Self::new(shared, now);
        let is_new =
            !Arc::ptr_eq(&latest.declarations, &self.declarations) || latest.day != self.day;
        *self = latest;
        is_new
    }

    /// Whether nobody may have it solved. The intent checks those with several claims, because each may have its worker.
    pub(super) fn forbids(&self, active: &ActiveSolve, now: Timestamp) -> bool {
        let (solve, challenge) = (&active.lease.solve, &active.lease.challenge);
        solve.claims.len() <= 1 && self.declarations.check(challenge, &solve.worker, now).is_err()
    }
}
