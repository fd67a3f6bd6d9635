//! A solve in this process's hands: what the driver, the steps and the calls pass between them.

use std::time::Duration;

use domain::{
    lease::{Fence, Lease},
    solve::Fact,
    time::Timestamp,
};

use crate::{Inner, fair::LaneName, polling::Family};

/// A solve this process moves, and what it knows about it that the store need not know.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    /// What its task is learned with.
    pub(crate) family: Family,
    /// How often the current task was asked for, alone or with others.
    pub(crate) polls: u32,
    /// Calls it took, in hundredths: a call that asks for many is shared by them.
    pub(crate) calls: u32,
    /// Polls in a row that told nothing.
    pub(crate) faults: u32,
    /// When the last question left that was answered "not ready".
    pub(crate) not_ready: Option<Timestamp>,
    /// Whether it occupies one of the provider's threads.
    pub(crate) slot: bool,
    /// The turn its worker took for it.
    pub(crate) turn: Option<Turn>,
    /// Not looked at before then.
    pub(crate) not_before: Timestamp,
    /// Hardly any task of its family is faster.
    pub(crate) worth_asking_from: Duration,
}

/// Tasks that are asked for in one call.
pub(crate) type Lot = Vec<Box<Held>>;

/// A task at the provider: what this process remembers of it even when it has to ask the store what it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// When it was sent.
    pub(crate) at: Timestamp,
    /// The last poll and how many there were.
    pub(crate) polled: Option<(Timestamp, u32)>,
    /// When it is looked at next.
    pub(crate) next: Option<Timestamp>,
    /// The newest lease we had of it.
    pub(crate) fence: Fence,
}

/// A worker's turn: it is charged with slot time, and settled when the slot is free again.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) lane: LaneName,
    pub(crate) charge: u64,
    pub(crate) since: Timestamp,
}

/// What a step leaves.
pub(crate) enum Then {
    /// Look at it again at that time.
    At(Timestamp, Box<Held>),
    /// It is not ours any more, or over.
    Gone,
    /// The store may or may not have taken a decision: ask it afresh what we hold.
    Unsure,
}

/// One call, in hundredths: it never asks for more than a hundred.
pub(crate) const ONE_CALL: u32 = 100;

// === impl Held ===

impl Held {
    pub(crate) fn new(lease: Lease, polls: u32) -> Self {
        Self {
            family: Family::of(&lease),
            lease,
            polls,
            calls: polls.saturating_mul(ONE_CALL),
            faults: 0,
            not_ready: None,
            slot: false,
            turn: None,
            not_before: Timestamp::default(),
            worth_asking_from: Duration::ZERO,
        }
    }

    /// Tells the store a fact about the current attempt and goes on from what it says.
    pub(crate) async fn settle(mut self: Box<Self>, inner: &Inner, fact: Fact) -> Then {
        let accepted = matches!(fact, Fact::Accepted { .. });
        let solve = &self.lease.solve;
        let settled = inner.settle(solve.id, solve.attempt, fact).await;
        // Another holder has it; or we ourselves have leased it afresh meanwhile.
        let ours =
            settled.solve.holder == Some(inner.holder()) && settled.solve.fence == self.lease.fence;
        if !ours || settled.solve.stage.is_final() {
            return Then::Gone;
        }
        self.lease.solve = settled.solve;
        if !accepted {
            return Then::at(self.lease.solve.due, self);
        }
        self.polls = 0;
        self.calls = 0;
        self.faults = 0;
        self.not_ready = None;
        inner.quota.earn(inner.config.polling.most());
        let together = inner.asks_together(&self.lease.solve.kind, inner.now());
        let first = if together { inner.config.polling.min_gap() } else { self.next_poll(inner) };
        Then::at(inner.now().plus(first), self)
    }
}

// === impl Family ===

impl Family {
    /// What a solve's task is learned with.
    pub(crate) fn of(lease: &Lease) -> Self {
        let proxied = lease.challenge.params().contains_key("proxy");
        Self { kind: lease.solve.kind.clone(), proxied }
    }
}

// === impl Then ===

impl Then {
    pub(crate) fn at(at: Timestamp, held: Box<Held>) -> Self {
        Self::At(at, held)
    }
}
