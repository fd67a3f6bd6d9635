//! The effort that a solve took: the figures that a claim shows when it ends.

use domain::{
    claim::Claim,
    id::ClaimId,
    money::Money,
    solve::{Origin, Solve},
};

use crate::{
    Result,
    schema::tables::Solves,
    tx::{ReadTx, TypedRead},
};

pub(crate) struct Effort {
    origin: Option<Origin>,
    pub(crate) attempts: u32,
    pub(crate) polls: u32,
    /// The cost of all attempts; `None` when it is unknown.
    pub(crate) cost: Option<Money>,
    /// See [`Solve::may_have_lost_money`].
    pub(crate) may_have_paid: bool,
}

impl Effort {
    /// For a claim that ends without a solve of its own.
    pub(crate) const NONE: Self =
        Self { origin: None, attempts: 0, polls: 0, cost: None, may_have_paid: false };

    /// A solve that has no answer. Its cost is unknown while an attempt may still be charged.
    pub(crate) fn without_answer(solve: &Solve) -> Self {
        Self::with_answer(solve, (!solve.is_paying()).then_some(Money::ZERO))
    }

    /// A solve that has its answer, with the price of the last attempt.
    pub(crate) fn with_answer(solve: &Solve, price: Option<Money>) -> Self {
        let cost = solve.spent().zip(price).map(|(spent, price)| spent + price);
        Self {
            origin: Some(solve.origin.clone()),
            attempts: solve.attempt,
            polls: solve.polls,
            cost,
            may_have_paid: solve.may_have_lost_money(),
        }
    }

    /// Whether the solve was opened for this claim.
    pub(crate) fn is_for(&self, claim: ClaimId) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.is_for(claim))
    }

    /// The cost of a claim. Only the claim that the solve was opened for bears its cost.
    pub(crate) fn cost_of(&self, claim: ClaimId) -> Option<Money> {
        if self.is_for(claim) { self.cost } else { Some(Money::ZERO) }
    }
}

/// Whether money may have been lost for a claim that ends: an attempt of the solve that it waited for was ambiguous.
pub(crate) fn may_have_paid_for(tx: &dyn ReadTx, claim: &Claim) -> Result<bool> {
    let Some(id) = claim.solve else { return Ok(false) };
    Ok(tx.get::<Solves>(&id)?.is_some_and(|solve| solve.may_have_lost_money()))
}
