//! What each step of the model does to its world.

use domain::{
    retry::Verdict,
    solve::{Decision, Fact, FactEffect, Solve, Stage},
};

use super::{
    Grip, Keys, MOST_GENERATIONS, NOW, Protocol, Replica, Reply, Stop, Stops, World, fresh_solve,
    holder, task,
};

impl Protocol {
    /// Takes a solve when it is free or its holder is dead.
    pub(super) fn lease(&self, world: &mut World, i: usize) -> Option<()> {
        let solve = world.solves.len() - 1;
        let latest = &mut world.solves[solve];
        let held = latest.holder;
        let free =
            held.is_none_or(|h| (0..self.replicas).all(|j| holder(j) != h || !world.alive[j]));
        let open = matches!(latest.stage, Stage::Queued | Stage::Intent | Stage::Ambiguous);
        if !free || !open || world.replicas[i] != Replica::Idle || !world.alive[i] {
            return None;
        }
        if self.requeues_dead_intents && latest.stage == Stage::Intent {
            latest.stage = Stage::Queued;
        }
        latest.take(holder(i), NOW, NOW);
        world.replicas[i] = Replica::Leased(Grip { solve, fence: latest.fence });
        Some(())
    }

    /// A repeat of the claim's key opens it again, as the store decides it.
    pub(super) fn reopen(&self, world: &mut World) -> Option<()> {
        if !self.may_reopen(world) {
            return None;
        }
        let generation = world.solves.len() as u64 + 1;
        world.solves.push(fresh_solve(self.policy, generation));
        Some(())
    }

    pub(super) fn may_reopen(&self, world: &World) -> bool {
        let last = world.latest();
        let has_failed = last.stage == Stage::Failed && world.solves.len() < MOST_GENERATIONS;
        has_failed
            && match self.keys {
                Keys::Replay => false,
                Keys::Reopen | Keys::ReopenInTwoSteps => !last.may_have_lost_money(),
                Keys::ReopenAnything => true,
            }
    }

    /// Opens the claim on the strength of what a caller saw earlier.
    pub(super) fn open_late(&self, world: &mut World) -> Option<()> {
        world.callers_about_to_open = world.callers_about_to_open.checked_sub(1)?;
        let generation = world.solves.len() as u64 + 1;
        world.solves.push(fresh_solve(self.policy, generation));
        Some(())
    }

    /// A decision as the store carries it out: one that spends is checked against guard and pauses in its transaction.
    pub(super) fn decide(&self, world: &mut World, i: usize, decision: &Decision) -> Option<()> {
        let Replica::Leased(grip) = world.replicas[i] else { return None };
        let spends = matches!(decision, Decision::Intend { .. } | Decision::Authorise { .. });
        let is_stopped = world.withdrawn || world.stop == Stop::Paused;
        if spends && is_stopped && self.stops == Stops::CheckedWhenSpending {
            return None;
        }
        let solve = &mut world.solves[grip.solve];
        if !world.alive[i] || solve.decide(grip.fence, decision, NOW).is_err() {
            return None;
        }
        world.spent_while_stopped |= spends && is_stopped;
        world.replicas[i] = match decision {
            Decision::Intend { .. } => Replica::Intended(grip, solve.attempt),
            Decision::Authorise { .. } => Replica::Leased(grip),
            Decision::WriteOff | Decision::Lapse { .. } | Decision::Forbid { .. } => Replica::Idle,
        };
        Some(())
    }

    pub(super) fn send(world: &mut World, i: usize, refused: bool) -> Option<()> {
        let Replica::Intended(grip, attempt) = world.replicas[i] else { return None };
        let reply = if refused {
            Reply::Refused
        } else {
            world.paid += 1;
            Reply::Task(world.paid)
        };
        world.replicas[i] = Replica::Waiting(grip, attempt, reply);
        Some(())
    }

    pub(super) fn settle(&self, world: &mut World, i: usize) -> Option<()> {
        let Replica::Knows(grip, attempt, reply) = world.replicas[i] else { return None };
        let solve = &mut world.solves[grip.solve];
        world.replicas[i] = Replica::Leased(grip);
        if self.fences_facts && grip.fence != solve.fence {
            return Some(());
        }
        let fact = match reply {
            Reply::Task(number) => Fact::Accepted { task: task(number), sent_at: NOW },
            Reply::Refused => {
                Fact::NotAccepted { code: "ERROR_PAGEURL".into(), verdict: Verdict::GiveUp }
            }
            Reply::Lost => Fact::ReplyLost { why: "lost".into(), due: NOW },
        };
        let learned = solve.apply_fact(attempt, &fact, NOW);
        if let (FactEffect::Orphaned { .. }, Reply::Task(number)) = (learned, reply) {
            world.orphans.push(number);
        }
        Some(())
    }
}

impl World {
    /// The solve of the present generation.
    pub(super) fn latest(&self) -> &Solve {
        &self.solves[self.solves.len() - 1]
    }

    pub(super) fn authorised(&self) -> u32 {
        self.solves.iter().map(|solve| solve.authorised).sum()
    }

    /// Every task that reached a live replica is recorded, or still known to that replica.
    pub(super) fn no_known_task_is_lost(&self) -> bool {
        let delivered_callbacks = |number: u8| {
            self.solves.iter().any(|solve| solve.task == Some(task(number)))
                || self.orphans.contains(&number)
        };
        let known = |number: u8| {
            self.replicas.iter().any(|r| {
                matches!(r, Replica::Waiting(_, _, Reply::Task(t)) | Replica::Knows(_, _, Reply::Task(t)) if *t == number)
            })
        };
        let lost = (1..=self.paid).filter(|n| !delivered_callbacks(*n) && !known(*n)).count();
        // Only a crash or a lost reply can lose a task, one each.
        lost <= usize::from(self.crashes + self.losses)
    }
}
