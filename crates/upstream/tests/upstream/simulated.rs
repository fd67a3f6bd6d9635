//! Against the simulated provider: the life of a task, and submissions compared with its ledger.

use std::{sync::Arc, time::Duration};

use domain::{
    challenge::Challenge,
    ports::{Feedback, Poll, Provider as _, Submission},
    secret::Secret,
};
use simulator::{BehaviourConfig, Call, Fault, Planned, Sim, SimConfig, SimHandle};
use upstream::{Upstream, UpstreamConfig};

use crate::support::{HandClock, KEY, attempt, challenge, config, short_timeouts, task, upstream};

async fn simulated(captchaai: bool, clock: Arc<HandClock>) -> SimHandle {
    let behaviour = BehaviourConfig {
        threads: Some(4),
        captchaai,
        key: Some(Secret::new(KEY)),
        ..BehaviourConfig::new(1).solving_in(Duration::from_secs(10))
    };
    Sim::start(SimConfig { clock, ..SimConfig::new(behaviour) }).await.unwrap()
}

/// Both dialects, with prices where there are any.
#[tokio::test]
async fn a_task_is_submitted_polled_and_reported() {
    for captchaai in [false, true] {
        let clock = Arc::new(HandClock::default());
        let sim = simulated(captchaai, Arc::clone(&clock)).await;
        let config = UpstreamConfig { priced: !captchaai, ..config(&sim.url()) };
        let upstream = Upstream::new(config, clock.clone()).unwrap();

        let submission = upstream.submit(&challenge(), attempt()).await;
        let Submission::Accepted(task) = submission else { panic!("{submission:?}") };
        assert_eq!(sim.account().ledger().tasks_for(&challenge()).len(), 1, "the same challenge");
        assert_eq!(upstream.poll(&task).await.poll, Poll::NotReady);
        // Only one of the two dialects has threads.
        let threads = upstream.threads().await.ok();
        assert_eq!(threads.map(|t| (t.total, t.working)), captchaai.then_some((4, 1)));

        clock.turn(Duration::from_secs(10));
        let polled = upstream.poll(&task).await;
        assert!(matches!(polled.poll, Poll::Solved(_)), "{polled:?}");
        let cost = sim.account().ledger().task(&task).unwrap().cost;
        assert_eq!(polled.price, (!captchaai).then_some(cost));
        upstream.report(&task, Feedback::Bad).await.unwrap();
        assert!(!sim.account().ledger().reports[0].good);
        assert!(upstream.balance().await.is_ok());
    }
}

#[tokio::test]
async fn an_unknown_task_is_a_code() {
    let sim = simulated(false, Arc::default()).await;
    let polled = upstream(config(&sim.url())).poll(&task("404")).await;
    assert!(matches!(&polled.poll, Poll::Code(code) if code.as_str().starts_with("ERROR_")));
}

/// "Accepted" means one task, "rejected" and "not sent" mean none, whatever the fault and whether or not the provider had
/// processed the submission before it.
#[tokio::test]
async fn what_is_said_about_a_submission_agrees_with_the_providers_ledger() {
    for fault in [
        Fault::zero_balance(),
        Fault::Unreachable,
        Fault::Drop,
        Fault::Hang,
        Fault::Status(500),
        Fault::Status(502),
        Fault::TooManyRequests { retry_after: Some(3) },
        Fault::Garbage,
        Fault::Truncated,
        Fault::Html,
        Fault::Empty,
        Fault::NoId,
        Fault::Huge,
        Fault::Unsolvable,
        Fault::NeverReady,
    ] {
        for planned in [
            Planned::next(Call::Submit, fault.clone()),
            Planned::next(Call::Submit, fault.clone()).accepted(),
        ] {
            let sim = simulated(false, Arc::default()).await;
            sim.account().plan(planned.clone());
            let submission =
                upstream(short_timeouts(&sim.url())).submit(&challenge(), attempt()).await;
            check_against_ledger(&submission, &sim, &challenge(), &planned);
        }
    }
}

fn check_against_ledger(
    submission: &Submission,
    sim: &SimHandle,
    challenge: &Challenge,
    planned: &Planned,
) {
    let ledger = sim.account().ledger();
    let tasks = ledger.tasks_for(challenge).len();
    assert!(ledger.received_submits <= 1, "sent once: {planned:?}");
    match submission {
        Submission::Accepted(task) => assert!(ledger.task(task).is_some(), "{planned:?}"),
        Submission::Rejected { .. } | Submission::NotSent(_) => assert_eq!(tasks, 0, "{planned:?}"),
        Submission::Ambiguous { .. } => assert!(
            !matches!(planned.fault, Fault::Code(_) | Fault::TooManyRequests { .. }),
            "a definite answer was not understood: {planned:?}"
        ),
    }
}
