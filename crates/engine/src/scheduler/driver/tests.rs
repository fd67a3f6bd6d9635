use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Allowance, Door},
    declarations::{Declarations, Images},
    id::{Nonce, Project, TaskId, WorkerName},
    ports::{Advanced, Chance, LeaseRequest, NoWebhooks},
    solve::{Decision, Fact},
};
use simulator::{Account, BehaviourConfig, Latency, SimProvider, VirtualClock};

use crate::{
    ClaimRequest, Engine, EngineConfig, Ports, maintenance::lease_renewal, pipeline::settle,
    scheduler::starts::StartPermit,
};

use super::*;

#[derive(Debug)]
struct Fixed;

impl Chance for Fixed {
    fn draw(&self) -> u64 {
        0x9E37_79B9_7F4A_7C15
    }
}

/// An engine of which nothing runs: the test is its driver's loop.
async fn shared() -> Arc<Shared> {
    let backend = stores::open("memory:").unwrap();
    let clock = Arc::new(VirtualClock::new(tokio::time::Instant::now(), Duration::ZERO));
    let account = Account::new(BehaviourConfig::new(7));
    let ports = Ports {
        store: backend.store,
        records: backend.records,
        notifier: backend.notifier,
        provider: Arc::new(SimProvider::new(account, clock.clone(), Latency::default())),
        clock,
        chance: Arc::new(Fixed),
        webhooks: Arc::new(NoWebhooks),
    };
    let images = Some(Images::new("pictures of our own shop"));
    let declarations = Declarations { images, ..Declarations::default() }.into();
    let slots = Slots::Fixed(2);
    let config = EngineConfig { declarations, slots, ..EngineConfig::default() };
    let shared = Arc::new(Shared::new(ports, config));
    lease_renewal::renew(&shared).await.unwrap();
    shared
}

/// A queued solve, leased by this process.
async fn leased(shared: &Arc<Shared>) -> Box<ActiveSolve> {
    let files = [("body".to_owned(), vec![1, 2, 3])].into();
    let parts = ChallengeParts { files, ..ChallengeParts::default() };
    let request = ClaimRequest {
        worker: WorkerName::new("ann").unwrap(),
        project: Project::new("shop").unwrap(),
        door: Door::V1,
        challenge: Challenge::new(Kind::Image, parts).unwrap(),
        key: Some("order-17".into()),
        fresh: false,
        deadline: None,
        allowance: Allowance::default(),
        collect: true,
        callback_url: None,
        address: None,
    };
    Engine(Arc::clone(shared)).claim(request).await.unwrap();
    let lease = lease(shared).await.pop().unwrap();
    Box::new(ActiveSolve::new(lease, 0))
}

/// A driver, and a solve that its process has leased.
async fn driver() -> (Driver, Box<ActiveSolve>) {
    let shared = shared().await;
    let active = leased(&shared).await;
    (Driver::new(&shared, None), active)
}

async fn lease(shared: &Shared) -> Vec<Lease> {
    let request = LeaseRequest::any(shared.scheduler.lease.holder(), LEASE_LIMIT);
    shared.ports.store.lease(request, shared.now()).await.unwrap()
}

/// Gives the solve a slot, starts the step of its submission and writes the intent.
async fn start_submission(driver: &mut Driver, active: &mut ActiveSolve) -> Step {
    active.slot = true;
    let step = Step::new(active, driver.epoch);
    driver.submits_running += 1;
    let store = &driver.shared.ports.store;
    let nonce = Nonce::draw(&Fixed);
    let intend = store.advance(
        &active.lease,
        Decision::Intend { guard: domain::declarations::Guard::open(), nonce },
        driver.shared.now(),
    );
    let Advanced::Done(solve) = intend.await.unwrap() else { panic!("the solve is leased") };
    active.lease.solve = solve;
    step
}

/// The provider accepts the submission, and the store knows the task.
async fn accept(driver: &mut Driver, mut active: Box<ActiveSolve>, submission: Step) {
    let shared = &driver.shared;
    let solve = &active.lease.solve;
    let fact = Fact::Accepted { task: TaskId::new("1").unwrap(), sent_at: shared.now() };
    active.lease.solve = settle::record(shared, solve.id, solve.attempt, fact).await.solve;
    driver.take_step(NextStep::At(driver.shared.now(), active), submission);
}

/// The first half of a resync: the store releases everything except intents.
async fn start_resync(driver: &mut Driver) {
    driver.leases.resync = true;
    assert!(driver.leases.start(driver.shared.now()));
    driver.shared.ports.store.release(driver.scheduler().lease.holder()).await.unwrap();
    lease_renewal::renew(&driver.shared).await.unwrap();
}

/// The second half: what was released is leased again. The store released nothing here.
async fn finish_resync(driver: &mut Driver) {
    let leases = lease(&driver.shared).await;
    assert!(leases.is_empty());
    driver.take_leases(Ok(leases), true);
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_outlives_a_resync_hands_back_a_task_submitted_during_it() {
    let (mut driver, mut active) = driver().await;
    let id = active.lease.solve.id;
    let submission = start_submission(&mut driver, &mut active).await;
    start_resync(&mut driver).await;
    accept(&mut driver, active, submission).await;
    let active = driver.agenda.take_due(driver.shared.now()).unwrap();
    let poll = Step::new(&active, driver.epoch);
    finish_resync(&mut driver).await;
    driver.take_step(NextStep::At(driver.shared.now(), active), poll);

    assert!(driver.drives(id), "the store says that we drive it");
}

#[tokio::test(start_paused = true)]
async fn a_submission_that_ends_in_the_second_resync_since_its_start_is_kept() {
    let (mut driver, mut active) = driver().await;
    let id = active.lease.solve.id;
    let submission = start_submission(&mut driver, &mut active).await;
    start_resync(&mut driver).await;
    finish_resync(&mut driver).await;
    start_resync(&mut driver).await;
    accept(&mut driver, active, submission).await;
    finish_resync(&mut driver).await;

    assert!(driver.drives(id), "the store says that we drive it");
}

fn permit(shared: &Arc<Shared>) -> Option<StartPermit> {
    StartPermit::take(shared, &WorkerName::new("ann").unwrap())
}

/// A driver that has leased all there is.
async fn idle_driver() -> Driver {
    let mut driver = Driver::new(&shared().await, None);
    driver.accepts_starts = true;
    driver.take_leases(Ok(Vec::new()), false);
    driver.start_steps();
    driver
}

#[tokio::test(start_paused = true)]
async fn permits_are_given_while_there_are_slots_and_come_back() {
    let driver = idle_driver().await;
    let shared = &driver.shared;
    let (first, second) = (permit(shared).unwrap(), permit(shared).unwrap());
    assert!(permit(shared).is_none(), "there are two slots");
    drop(first);
    let third = permit(shared);
    assert!(third.is_some());
    drop((second, third));
    assert_eq!(shared.scheduler.slots.used(), 0);
    assert_eq!(shared.scheduler.submit_rate.lock().passed_lately(shared.now()), 0);
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_given_while_anything_stands_against_it() {
    let mut driver = idle_driver().await;
    let shared = Arc::clone(&driver.shared);
    let gives = || permit(&shared).is_some();
    assert!(gives());

    driver.close_starts();
    assert!(!gives(), "the driver takes in what goes first");
    driver.start_steps();
    assert!(gives());

    shared.scheduler.breakers.account.open(
        "ERROR: 1001".into(),
        Duration::ZERO,
        shared.now(),
        shared.now(),
    );
    assert!(!gives(), "a circuit breaker is open");
    let probed = shared.now().plus(Duration::from_secs(60));
    shared.ports.clock.sleep_until(probed).await;
    lease_renewal::renew(&shared).await.unwrap();
    assert!(!gives(), "the probe is for the queue");
    assert!(shared.scheduler.breakers.pass(shared.now()).is_ok());
    shared.scheduler.breakers.account.close(shared.now(), shared.now());
    shared.ports.clock.sleep_until(shared.now().plus(Duration::from_secs(10))).await;
    lease_renewal::renew(&shared).await.unwrap();
    assert!(gives());

    driver.close_starts();
    let waiting = leased(&shared).await;
    enqueue(&shared.scheduler, waiting, false, shared.now());
    shared.scheduler.submissions.lock().starts.set_open(true);
    assert!(!gives(), "another one waits");
    shared.scheduler.queue.lock().remove_where(|_| true);
    assert!(!gives(), "a claim is opened that is not queued yet");
    shared.scheduler.arrivals.forget_up_to(u64::MAX);
    assert!(gives());

    shared.ports.clock.sleep_until(shared.now().plus(LeaseRequest::TERM)).await;
    assert!(!gives(), "the lease has ended");
    lease_renewal::renew(&shared).await.unwrap();
    assert!(gives());
    shared.scheduler.start_draining();
    assert!(!gives());
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_permit_that_is_in_use() {
    let mut driver = idle_driver().await;
    while driver.steps.join_next().await.is_some() {}
    let permit = permit(&driver.shared).unwrap();
    driver.scheduler().start_draining();
    assert!(!driver.is_drained());
    drop(permit);
    assert!(driver.is_drained());
}
