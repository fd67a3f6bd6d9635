//! The effort that a solve took: the figures that a claim shows when it ends.

use domain::{
    id::ClaimId,
    money::Money,
    solve::{Origin, Solve},
};

pub(crate) struct Effort {
    origin: Option<Origin>,
    pub(crate) attempts: u32,
    pub(crate) polls: u32,
    /// The cost of all attempts; `None` when it is unknown.
    pub(crate) cost: Option<Money>,
}

impl Effort {
    /// For a claim that ends without a solve of its own.
    pub(crate) const NONE: Self = Self { origin: None, attempts: 0, polls: 0, cost: None };

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
