//! Which of two versions of a record is newer. Archives and restored stores merge versions of different ages.

use domain::{
    claim::{Claim, ClaimState},
    solve::{Solve, Stage},
};

/// How far a claim has come: its generation first. A claim that returned its token ranks above one that has it, so that the
/// token is not delivered twice.
pub(crate) fn claim_progress(claim: &Claim) -> (u32, u8, bool) {
    let rank = match claim.state {
        ClaimState::Waiting => 0,
        ClaimState::Served => 1,
        ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed => 2,
    };
    (claim.reopened, rank, claim.delivered_at.is_some())
}

/// Whether a version of a solve continues the one that the store has.
pub(crate) fn is_newer_solve(other: &Solve, known: &Solve) -> bool {
    let progress = |solve: &Solve| {
        let tried = (solve.attempt, rank(solve.stage), solve.authorised, solve.failures.len());
        (solve.fence, tried, solve.polls)
    };
    !known.stage.is_final() && progress(other) > progress(known)
}

/// How far an attempt has come. Queued ranks above its other stages, because the next attempt begins with its intent.
fn rank(stage: Stage) -> u8 {
    match stage {
        Stage::Intent => 0,
        Stage::Ambiguous => 1,
        Stage::Submitted => 2,
        Stage::Overdue => 3,
        Stage::Queued => 4,
        Stage::Ready | Stage::Failed => 5,
    }
}
