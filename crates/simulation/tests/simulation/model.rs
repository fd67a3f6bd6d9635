//! The claim protocol, model-checked exhaustively. The store is the real `domain::solve::Solve`; replicas, crashes,
//! lease ends, lost replies and the provider are modelled around it. Every interleaving is tried.

use domain::{
    challenge::Kind,
    declarations::Guard,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    lease::Fence,
    solve::{AmbiguousPolicy, Decision, Origin, Policy, Solve, Stage},
    time::Timestamp,
};
use stateright::{Checker, Model, Property};

mod steps;

const NOW: Timestamp = Timestamp::from_millis(0);

/// The state of one replica. `Grip` is the lease it believes in.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
enum Replica {
    Idle,
    Leased(Grip),
    /// Its intent for this attempt is durable; it has sent nothing.
    Intended(Grip, u32),
    /// It has sent the request; the reply is on its way.
    Waiting(Grip, u32, Reply),
    /// It has a fact about this attempt that the store may not have.
    Knows(Grip, u32, Reply),
    Crashed,
}

/// The lease of a solve, by its place in the world.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
struct Grip {
    solve: usize,
    fence: Fence,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Reply {
    Task(u8),
    Refused,
    Lost,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct World {
    /// One for each generation of the claim.
    solves: Vec<Solve>,
    /// Callers that repeat the claim's key. Each has seen that it failed and is about to open it again; only a store that
    /// decides in two steps has them.
    callers_about_to_open: u8,
    replicas: Vec<Replica>,
    /// The running leases, by replica.
    alive: Vec<bool>,
    /// Tasks the provider accepted: paid.
    paid: u8,
    orphans: Vec<u8>,
    crashes: u8,
    expiries: u8,
    losses: u8,
    stop: Stop,
    /// The claim's declaration is gone.
    withdrawn: bool,
    /// An intent or an authorisation was granted while it was paused or withdrawn.
    spent_while_stopped: bool,
}

/// One pause, then its end.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Stop {
    NotYet,
    Paused,
    Over,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Step {
    Lease(usize),
    Intend(usize),
    Send(usize),
    SendRefused(usize),
    Hear(usize),
    LoseReply(usize),
    Tell(usize),
    Authorise(usize),
    WriteOff(usize),
    Forbid(usize),
    Pause,
    Resume,
    Withdraw,
    SeeFailure,
    Reopen,
    Crash(usize),
    Restart(usize),
    Expire(usize),
}

/// A protocol to check, and the limits on failures.
#[derive(Clone)]
struct Protocol {
    replicas: usize,
    policy: AmbiguousPolicy,
    crashes: u8,
    expiries: u8,
    losses: u8,
    /// A rule from tutorials: a lease that ends puts the work back into the queue.
    requeues_dead_intents: bool,
    /// Another rule from tutorials: facts of a fenced-off replica are discarded.
    fences_facts: bool,
    /// Whether an operator pauses, resumes and withdraws, and where that is checked.
    stops: Stops,
    /// Whether callers repeat the claim's key after a failure, and what that does.
    keys: Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// They replay the failure.
    Replay,
    /// They open the work again, once, unless it may have been paid.
    Reopen,
    /// A planted bug: they open it again whatever was paid.
    ReopenAnything,
    /// A planted bug: the store looks in one transaction and opens in another.
    ReopenInTwoSteps,
}

/// How many generations a run has at most.
const MOST_GENERATIONS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stops {
    None,
    /// In the transaction that spends.
    CheckedWhenSpending,
    /// Nowhere after the admission.
    CheckedAtAdmission,
}

fn holder(i: usize) -> HolderId {
    HolderId::from_number(i as u64 + 1)
}

fn task(number: u8) -> TaskId {
    TaskId::new(number.to_string()).unwrap()
}

fn fresh_solve(policy: AmbiguousPolicy, generation: u64) -> Solve {
    let claim = ClaimId::from_number(1);
    Solve {
        id: SolveId::from_number(generation),
        origin: Origin::Claim(claim),
        fingerprint: Fingerprint::from_bytes([0; 32]),
        kind: Kind::Turnstile,
        worker: WorkerName::new("w").unwrap(),
        project: Project::new("p").unwrap(),
        claims: vec![claim],
        stage: Stage::Queued,
        fence: Fence::default(),
        holder: None,
        attempt: 0,
        nonce: None,
        task: None,
        opened_at: NOW,
        wanted_until: NOW,
        accepted_at: None,
        due: NOW,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        price: None,
        policy: Policy { ambiguous: policy, ambiguity_budget: 10 },
        ended_at: None,
        reservations: domain::budget::Reservations::default(),
    }
}

impl Protocol {
    fn right(policy: AmbiguousPolicy) -> Self {
        Self {
            replicas: 3,
            policy,
            crashes: 2,
            expiries: 2,
            losses: 2,
            requeues_dead_intents: false,
            fences_facts: false,
            stops: Stops::None,
            keys: Keys::Replay,
        }
    }

    /// Small enough to be quick: a planted bug appears within a few steps.
    fn small() -> Self {
        Self {
            replicas: 2,
            crashes: 1,
            expiries: 1,
            losses: 1,
            ..Self::right(AmbiguousPolicy::Never)
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            solves: vec![fresh_solve(self.policy, 1)],
            callers_about_to_open: 0,
            replicas: vec![Replica::Idle; self.replicas],
            alive: vec![true; self.replicas],
            paid: 0,
            orphans: Vec::new(),
            crashes: 0,
            expiries: 0,
            losses: 0,
            stop: Stop::NotYet,
            withdrawn: false,
            spent_while_stopped: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if self.stops != Stops::None {
            steps.extend([Step::Pause, Step::Resume, Step::Withdraw]);
        }
        match self.keys {
            Keys::Replay => {}
            Keys::Reopen | Keys::ReopenAnything => steps.push(Step::Reopen),
            Keys::ReopenInTwoSteps => steps.extend([Step::SeeFailure, Step::Reopen]),
        }
        for i in 0..self.replicas {
            match &world.replicas[i] {
                Replica::Idle => steps.push(Step::Lease(i)),
                Replica::Leased(_) => {
                    steps.extend([Step::Intend(i), Step::Authorise(i), Step::WriteOff(i)]);
                    steps.extend(world.withdrawn.then_some(Step::Forbid(i)));
                }
                Replica::Intended(..) => steps.extend([Step::Send(i), Step::SendRefused(i)]),
                Replica::Waiting(..) => steps.extend([Step::Hear(i), Step::LoseReply(i)]),
                Replica::Knows(..) => steps.push(Step::Tell(i)),
                Replica::Crashed => steps.push(Step::Restart(i)),
            }
            if world.replicas[i] != Replica::Crashed {
                steps.extend([Step::Crash(i), Step::Expire(i)]);
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        let (nonce, guard) = (Nonce::from_number(1), Guard::open());
        match step {
            Step::Lease(i) => self.lease(&mut next, i)?,
            Step::Intend(i) => self.decide(&mut next, i, &Decision::Intend { guard, nonce })?,
            Step::Authorise(i) => {
                self.decide(&mut next, i, &Decision::Authorise { guard, due: NOW })?;
            }
            Step::WriteOff(i) => self.decide(&mut next, i, &Decision::WriteOff)?,
            Step::Forbid(i) => self.decide(&mut next, i, &Decision::Forbid { guard })?,
            Step::Pause if next.stop == Stop::NotYet => next.stop = Stop::Paused,
            Step::Resume if next.stop == Stop::Paused => next.stop = Stop::Over,
            Step::Withdraw if !next.withdrawn => next.withdrawn = true,
            Step::SeeFailure if self.may_reopen(&next) && next.callers_about_to_open < 2 => {
                next.callers_about_to_open += 1;
            }
            Step::Reopen if self.keys == Keys::ReopenInTwoSteps => self.open_late(&mut next)?,
            Step::Reopen => self.reopen(&mut next)?,
            Step::Send(i) => Self::send(&mut next, i, false)?,
            Step::SendRefused(i) => Self::send(&mut next, i, true)?,
            Step::Hear(i) => {
                let Replica::Waiting(grip, attempt, reply) = next.replicas[i] else { return None };
                next.replicas[i] = Replica::Knows(grip, attempt, reply);
            }
            Step::LoseReply(i) if next.losses < self.losses => {
                let Replica::Waiting(grip, attempt, _) = next.replicas[i] else { return None };
                next.losses += 1;
                next.replicas[i] = Replica::Knows(grip, attempt, Reply::Lost);
            }
            Step::Tell(i) => self.settle(&mut next, i)?,
            Step::Crash(i) if next.crashes < self.crashes => {
                next.crashes += 1;
                next.replicas[i] = Replica::Crashed;
                next.alive[i] = false;
            }
            Step::Restart(i) => {
                next.replicas[i] = Replica::Idle;
                next.alive[i] = true;
            }
            Step::Expire(i) if next.expiries < self.expiries && next.alive[i] => {
                next.expiries += 1;
                next.alive[i] = false;
                // It notices later and continues under a new lease, with only the facts it already has.
            }
            Step::LoseReply(_)
            | Step::Crash(_)
            | Step::Expire(_)
            | Step::Pause
            | Step::Resume
            | Step::Withdraw
            | Step::SeeFailure => return None,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules().into_iter().chain(reached()).collect()
    }
}

fn rules() -> Vec<Property<Protocol>> {
    vec![
        Property::always("paid at most once, or authorised", |_, w: &World| {
            u32::from(w.paid) <= 1 + w.authorised()
        }),
        Property::always("at most one authorised resubmission", |_, w: &World| {
            w.solves.iter().all(|solve| solve.authorised <= 1)
        }),
        Property::always("a task that reached us is never lost", |_, w: &World| {
            w.no_known_task_is_lost()
        }),
        Property::always("nothing is spent while paused or withdrawn", |_, w: &World| {
            !w.spent_while_stopped
        }),
    ]
}

fn reached() -> Vec<Property<Protocol>> {
    vec![
        Property::sometimes("a task is recorded after a pause", |p: &Protocol, w: &World| {
            p.stops == Stops::None || (w.latest().stage == Stage::Submitted && w.stop == Stop::Over)
        }),
        Property::sometimes("withdrawn work ends", |p: &Protocol, w: &World| {
            p.stops == Stops::None
                || (w.withdrawn && w.latest().stage == Stage::Failed && w.paid == 0)
        }),
        Property::sometimes("a key opens its work again", |p: &Protocol, w: &World| {
            p.keys == Keys::Replay || (w.solves.len() > 1 && w.latest().stage == Stage::Submitted)
        }),
        Property::sometimes("a task is recorded", |_, w: &World| {
            w.latest().stage == Stage::Submitted
        }),
        Property::sometimes("an orphan is recorded", |p: &Protocol, w: &World| {
            p.policy == AmbiguousPolicy::Never || !w.orphans.is_empty()
        }),
    ]
}

/// What a model has to reach; everything else is a rule.
const REACHABLE: [&str; 5] = [
    "a key opens its work again",
    "a task is recorded",
    "an orphan is recorded",
    "a task is recorded after a pause",
    "withdrawn work ends",
];

fn broken(protocol: Protocol) -> Vec<&'static str> {
    let checked = protocol.checker().threads(2).spawn_bfs().join();
    assert!(checked.unique_state_count() > 100, "the model moves");
    let found = checked.discoveries();
    for name in REACHABLE {
        assert!(found.contains_key(name), "{name} is reachable");
    }
    found.keys().copied().filter(|name| !REACHABLE.contains(name)).collect()
}

#[test]
fn the_claim_protocol_pays_once_or_writes_it_down() {
    for policy in [AmbiguousPolicy::ResubmitOnce, AmbiguousPolicy::Never] {
        assert_eq!(broken(Protocol::right(policy)), Vec::<&str>::new());
    }
}

#[test]
fn a_lease_that_authorises_a_spend_is_caught() {
    let protocol = Protocol { requeues_dead_intents: true, ..Protocol::small() };
    assert!(broken(protocol).contains(&"paid at most once, or authorised"));
}

#[test]
fn fencing_facts_is_caught_as_lost_work() {
    let protocol = Protocol { fences_facts: true, ..Protocol::small() };
    assert!(broken(protocol).contains(&"a task that reached us is never lost"));
}

#[test]
fn nothing_is_spent_while_paused_or_withdrawn_whatever_happens() {
    for policy in [AmbiguousPolicy::ResubmitOnce, AmbiguousPolicy::Never] {
        let protocol =
            Protocol { replicas: 2, stops: Stops::CheckedWhenSpending, ..Protocol::right(policy) };
        assert_eq!(broken(protocol), Vec::<&str>::new());
    }
}

#[test]
fn a_guard_that_is_checked_at_admission_only_is_caught() {
    let protocol = Protocol { stops: Stops::CheckedAtAdmission, ..Protocol::small() };
    assert_eq!(broken(protocol), ["nothing is spent while paused or withdrawn"]);
}

#[test]
fn keys_open_failed_work_again_once_and_never_what_may_be_paid() {
    for policy in [AmbiguousPolicy::ResubmitOnce, AmbiguousPolicy::Never] {
        let protocol = Protocol { replicas: 2, keys: Keys::Reopen, ..Protocol::right(policy) };
        assert_eq!(broken(protocol), Vec::<&str>::new());
    }
}

#[test]
fn a_key_that_pays_twice_is_found() {
    for keys in [Keys::ReopenAnything, Keys::ReopenInTwoSteps] {
        let protocol = Protocol { keys, ..Protocol::small() };
        assert_eq!(broken(protocol), ["paid at most once, or authorised"], "{keys:?}");
    }
}
