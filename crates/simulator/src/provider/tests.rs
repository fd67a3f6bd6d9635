//! The in-process provider under a clock moved by hand.

use domain::{
    challenge::{ChallengeParts, Kind},
    id::{Nonce, SolveId},
    site::PageUrl,
};
use tokio::sync::watch;

use super::*;
use crate::{BehaviourConfig, answers::task_of, faults::FaultPlan};

mod batch;

/// Time passes only when a test says so.
#[derive(Debug)]
struct SteppedClock(watch::Sender<Timestamp>);

#[async_trait]
impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.0.subscribe().wait_for(|now| *now >= at).await.expect("the clock holds its sender");
    }
}

struct ProviderFixture {
    clock: Arc<SteppedClock>,
    provider: SimProvider,
}

const NONCE: Nonce = Nonce::from_number(9);
const ATTEMPT: AttemptName =
    AttemptName { solve: SolveId::from_number(100_000_000_000_345), attempt: 1, nonce: NONCE };

impl ProviderFixture {
    fn new() -> Self {
        Self::with(BehaviourConfig::new(1).solving_in(Duration::from_secs(10)))
    }

    fn with(config: BehaviourConfig) -> Self {
        let clock = Arc::new(SteppedClock(watch::Sender::new(Timestamp::from_millis(5_000))));
        let provider = SimProvider::new(Account::new(config), clock.clone(), Latency::default());
        Self { clock, provider }
    }

    fn plan(&self, on: Call, fault: Fault, accepted: bool) {
        self.provider.account.plan(Planned { accepted, ..Planned::next(on, fault) });
    }

    fn advance(&self, length: Duration) {
        self.clock.0.send_modify(|now| *now = now.plus(length));
    }

    /// Lets time pass until the call is over.
    async fn run<T>(&self, call: impl Future<Output = T>) -> T {
        tokio::pin!(call);
        for _ in 0..1_000_000 {
            tokio::select! {
                biased;
                done = &mut call => return done,
                () = tokio::task::yield_now() => self.advance(Duration::from_millis(1)),
            }
        }
        panic!("the call does not end");
    }

    async fn submit(&self) -> Submission {
        self.run(self.provider.submit(&turnstile(), ATTEMPT)).await
    }

    async fn poll(&self, task: &TaskId) -> Poll {
        self.run(self.provider.poll(task)).await.poll
    }

    fn paid(&self) -> usize {
        self.provider.account.ledger().tasks_of(NONCE).len()
    }
}

fn turnstile() -> Challenge {
    let pageurl = PageUrl::parse("https://shop.example.com/login").unwrap();
    let draft = ChallengeParts {
        sitekey: Some("0x4".to_owned()),
        pageurl: Some(pageurl),
        ..ChallengeParts::default()
    };
    Challenge::new(Kind::Turnstile, draft).unwrap()
}

fn accepted(submission: Submission) -> TaskId {
    match submission {
        Submission::Accepted(task) => task,
        Submission::Rejected { .. } | Submission::NotSent(_) | Submission::Ambiguous { .. } => {
            panic!("{submission:?}")
        }
    }
}

#[tokio::test]
async fn a_task_is_accepted_polled_and_solved_in_virtual_time() {
    let fixture = ProviderFixture::new();
    let task = accepted(fixture.submit().await);
    assert_eq!(fixture.poll(&task).await, Poll::NotReady);
    fixture.advance(Duration::from_secs(10));
    let polled = fixture.run(fixture.provider.poll(&task)).await;
    let Poll::Solved(answer) = polled.poll else { panic!("{polled:?}") };
    assert_eq!(task_of(answer.text.expose()), Some(task.clone()));
    let ledger = fixture.provider.account.ledger();
    assert_eq!(polled.price, Some(ledger.charged));
    assert_eq!(ledger.tasks_of(NONCE)[0].task, task);
}

#[tokio::test]
async fn every_way_to_lose_a_reply_is_ambiguous_whether_paid_or_not() {
    let faults = [
        Fault::Drop,
        Fault::Hang,
        Fault::Status(502),
        Fault::Garbage,
        Fault::Truncated,
        Fault::Html,
        Fault::Empty,
        Fault::NoId,
        Fault::Huge,
    ];
    for fault in faults {
        for paid in [false, true] {
            let fixture = ProviderFixture::new();
            fixture.plan(Call::Submit, fault.clone(), paid);
            let submission = fixture.submit().await;
            assert!(matches!(submission, Submission::Ambiguous { .. }), "{fault:?} {submission:?}");
            assert_eq!(fixture.paid(), usize::from(paid), "{fault:?}");
            assert_eq!(fixture.provider.account.received_submits(), 1);
        }
    }
}

#[tokio::test]
async fn refusals_and_unsent_submissions_cost_nothing() {
    let fixture = ProviderFixture::new();
    fixture.plan(Call::Submit, Fault::zero_balance(), false);
    fixture.plan(Call::Submit, Fault::TooManyRequests { retry_after: Some(3) }, false);
    fixture.plan(Call::Submit, Fault::Unreachable, false);
    let rejected = |code: &str, wait: Option<u64>| Submission::Rejected {
        code: code.into(),
        retry_after: wait.map(Duration::from_secs),
    };
    assert_eq!(fixture.submit().await, rejected("ERROR_ZERO_BALANCE", None));
    assert_eq!(fixture.submit().await, rejected("HTTP_429", Some(3)));
    assert!(matches!(fixture.submit().await, Submission::NotSent(_)));
    assert_eq!((fixture.paid(), fixture.provider.account.received_submits()), (0, 2));
    accepted(fixture.submit().await);
    assert_eq!(fixture.paid(), 1);
}

#[tokio::test]
async fn a_slow_reply_arrives_unless_the_deadline_comes_first() {
    let fixture = ProviderFixture::new();
    fixture.plan(Call::Submit, Fault::Trickle(20_000), true);
    let before = fixture.clock.now();
    accepted(fixture.submit().await);
    assert!(fixture.clock.now().since(before) >= Duration::from_secs(20));
    fixture.plan(Call::Submit, Fault::Trickle(60_000), true);
    let before = fixture.clock.now();
    assert!(matches!(fixture.submit().await, Submission::Ambiguous { .. }));
    assert_eq!(fixture.clock.now().since(before), Latency::default().deadline);
    assert_eq!(fixture.paid(), 2);
}

#[tokio::test]
async fn a_caller_that_goes_away_on_the_way_back_has_paid() {
    for (waited, paid) in [(30, 0), (60, 1)] {
        let config = BehaviourConfig::new(1);
        let clock = Arc::new(SteppedClock(watch::Sender::new(Timestamp::default())));
        let most = Duration::from_millis(50);
        let latency = Latency { least: most, most, ..Latency::default() };
        let provider = SimProvider::new(Account::new(config), clock.clone(), latency);
        let challenge = turnstile();
        {
            let mut call = std::pin::pin!(provider.submit(&challenge, ATTEMPT));
            for _ in 0..waited {
                assert!(futures_util::poll!(&mut call).is_pending());
                clock.0.send_modify(|now| *now = now.plus(Duration::from_millis(1)));
            }
        }
        assert_eq!(provider.account.ledger().accepted.len(), paid, "{waited}");
    }
}

#[tokio::test]
async fn trouble_with_a_poll_says_nothing_about_the_task() {
    let fixture = ProviderFixture::new();
    let task = accepted(fixture.submit().await);
    fixture.advance(Duration::from_secs(10));
    for fault in [Fault::Drop, Fault::Hang, Fault::Status(500), Fault::Html, Fault::Unreachable] {
        fixture.plan(Call::Poll, fault.clone(), false);
        assert!(matches!(fixture.poll(&task).await, Poll::Fault(_)), "{fault:?}");
    }
    fixture.plan(Call::Poll, Fault::wrong_key(), false);
    assert_eq!(fixture.poll(&task).await, Poll::Code("ERROR_KEY_DOES_NOT_EXIST".into()));
    fixture.plan(Call::Poll, Fault::TooManyRequests { retry_after: Some(2) }, false);
    let Poll::Fault(seen) = fixture.poll(&task).await else { panic!("429 is a fault") };
    assert_eq!(seen.code, Some("HTTP_429".into()));
    assert_eq!(seen.retry_after, Some(Duration::from_secs(2)));
    assert!(matches!(fixture.poll(&task).await, Poll::Solved(_)));
}

#[tokio::test]
async fn fates_and_repeated_names_can_be_planned() {
    let fixture = ProviderFixture::new();
    let first = accepted(fixture.submit().await);
    fixture.plan(Call::Submit, Fault::SameTask, false);
    assert_eq!(accepted(fixture.submit().await), first);
    assert_eq!(fixture.paid(), 1);
    fixture.plan(Call::Submit, Fault::Unsolvable, false);
    fixture.plan(Call::Submit, Fault::NeverReady, false);
    let (lost, never) = (accepted(fixture.submit().await), accepted(fixture.submit().await));
    fixture.advance(Duration::from_secs(500));
    assert_eq!(fixture.poll(&lost).await, Poll::Code("ERROR_CAPTCHA_UNSOLVABLE".into()));
    assert_eq!(fixture.poll(&never).await, Poll::NotReady);
}

#[tokio::test]
async fn the_account_answers_balance_threads_and_reports() {
    let fixture = ProviderFixture::with(BehaviourConfig {
        captchaai: true,
        threads: Some(3),
        ..BehaviourConfig::new(1).solving_in(Duration::from_secs(10))
    });
    let task = accepted(fixture.submit().await);
    let threads = fixture.run(fixture.provider.threads()).await;
    assert_eq!(threads, Ok(Threads { total: 3, working: 1 }));
    fixture.advance(Duration::from_secs(10));
    assert_eq!(fixture.run(fixture.provider.report(&task, Feedback::Good)).await, Ok(()));
    assert!(fixture.run(fixture.provider.report(&task, Feedback::Good)).await.is_err());
    fixture.plan(Call::Account, Fault::Status(500), false);
    assert!(fixture.run(fixture.provider.balance()).await.is_err());
    assert!(fixture.run(fixture.provider.balance()).await.is_ok());
    let plain = ProviderFixture::new();
    let refused = plain.run(plain.provider.threads()).await.unwrap_err();
    assert_eq!(refused.code, Some("ERROR_EMPTY_ACTION".into()));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_history_under_a_swarm_of_faults() {
    async fn history(seed: u64) -> (Vec<Submission>, crate::Ledger, Timestamp) {
        let fixture = ProviderFixture::with(BehaviourConfig {
            threads: Some(8),
            ..BehaviourConfig::new(seed)
        });
        fixture.provider.account.faults(|plan| *plan = FaultPlan::swarm(seed));
        let mut submissions = Vec::new();
        for _ in 0..60 {
            let submission = fixture.submit().await;
            if let Submission::Accepted(task) = &submission {
                fixture.poll(task).await;
            }
            submissions.push(submission);
        }
        (submissions, fixture.provider.account.ledger(), fixture.clock.now())
    }
    for seed in 0..5 {
        assert_eq!(history(seed).await, history(seed).await, "{seed}");
    }
    assert_ne!(history(1).await, history(2).await);
}
