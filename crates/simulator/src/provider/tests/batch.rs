//! Several tasks in one call, and the calls back.

use super::*;

fn geetest() -> Challenge {
    let draft = Draft {
        sitekey: Some("g1".to_owned()),
        pageurl: Some(PageUrl::parse("https://shop.example.com/login").unwrap()),
        params: [("challenge".to_owned(), "c1".to_owned())].into(),
        ..Draft::default()
    };
    Challenge::new(Kind::Geetest, draft).unwrap()
}

/// What was called back, and when.
type Heard = Arc<Mutex<Vec<(AttemptName, TaskId, Timestamp)>>>;

impl Bench {
    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        self.run(self.provider.poll_many(tasks)).await
    }

    /// How many questions were asked, and about how many tasks.
    fn asked(&self) -> (u64, u64) {
        let ledger = self.provider.account.ledger();
        (ledger.poll_calls, ledger.polls)
    }

    async fn tasks(&self, n: usize) -> Vec<TaskId> {
        let mut tasks = Vec::new();
        for _ in 0..n {
            tasks.push(accepted(self.submit().await));
        }
        tasks
    }

    /// Calls back into the list that is returned.
    fn listened_to(mut self) -> (Self, Heard) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (list, clock) = (Arc::clone(&heard), Arc::clone(&self.clock));
        let hook: PingbackHook = Arc::new(move |attempt, task| {
            list.lock().unwrap().push((attempt, task, clock.now()));
        });
        self.provider = self.provider.with_pingback(hook);
        (self, heard)
    }

    /// Lets time pass for everybody.
    async fn pass(&self, length: Duration) {
        for _ in 0..length.as_millis() {
            self.advance(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn several_tasks_are_one_call_in_their_order() {
    let bench = Bench::new();
    let first = accepted(bench.submit().await);
    bench.advance(Duration::from_secs(10));
    let second = accepted(bench.submit().await);
    let polled = bench.poll_many(&[second.clone(), first.clone()]).await.unwrap();
    assert_eq!(polled[0], Polled { poll: Poll::NotReady, price: None });
    let Poll::Solved(answer) = &polled[1].poll else { panic!("{polled:?}") };
    assert_eq!((task_of(answer.text.expose()), polled[1].price), (Some(first.clone()), None));
    assert!(answer.extras.is_none(), "there is no place for them on the wire");
    assert_eq!(bench.asked(), (1, 2));
    assert_eq!(bench.poll_many(&[]).await, Ok(vec![]));
    assert!(bench.poll_many(&[first]).await.unwrap()[0].price.is_some(), "one is asked for alone");
    assert_eq!(bench.asked(), (2, 3));
}

#[tokio::test]
async fn what_cannot_be_taken_apart_on_the_wire_cannot_here() {
    let bench = Bench::new();
    let mut tasks = bench.tasks(1).await;
    let submitted = bench.run(bench.provider.submit(&geetest(), ATTEMPT)).await;
    tasks.push(accepted(submitted));
    bench.advance(Duration::from_secs(10));
    assert_eq!(bench.poll_many(&tasks).await, Err(BatchRefused::Garbled));
    bench.plan(Call::Poll, Fault::Unsolvable, false);
    bench.plan(Call::Poll, Fault::Code("ERROR_CAPTCHA_UNSOLVABLE".into()), false);
    let codes = bench.poll_many(&tasks).await;
    assert_eq!(codes, Err(BatchRefused::Garbled), "solved before: the answer with a bar again");
    assert_eq!(bench.poll_many(&tasks).await, Err(BatchRefused::Garbled), "whose code is it?");
}

#[tokio::test]
async fn a_provider_without_ids_and_trouble_on_the_way_are_told_apart() {
    let bench = Bench::with(BehaviourConfig { batch: false, ..BehaviourConfig::new(1) });
    let tasks = bench.tasks(2).await;
    assert_eq!(bench.poll_many(&tasks).await, Err(BatchRefused::Unsupported));
    assert_eq!(bench.asked(), (0, 0));

    let bench = Bench::new();
    let tasks = bench.tasks(2).await;
    for fault in [Fault::Drop, Fault::Hang, Fault::Status(500), Fault::Unreachable] {
        bench.plan(Call::Poll, fault.clone(), false);
        let polled = bench.poll_many(&tasks).await;
        assert!(matches!(polled, Err(BatchRefused::Fault(Seen { code: None, .. }))), "{fault:?}");
    }
    for fault in [Fault::wrong_key(), Fault::TooManyRequests { retry_after: Some(2) }] {
        bench.plan(Call::Poll, fault.clone(), false);
        let polled = bench.poll_many(&tasks).await;
        assert!(
            matches!(polled, Err(BatchRefused::Fault(Seen { code: Some(_), .. }))),
            "{fault:?}"
        );
    }
    assert!(bench.poll_many(&tasks).await.is_ok());
}

/// R > 20 · C + 1200, where R counts requests and not tasks.
#[tokio::test]
async fn a_question_about_many_tasks_counts_once_for_the_ban() {
    let config = BehaviourConfig { bans: true, ..BehaviourConfig::new(1) };
    let bench = Bench::with(config.solving_in(Duration::from_secs(100_000)));
    let tasks = bench.tasks(10).await;
    for asked in 0..1400 {
        assert!(bench.poll_many(&tasks).await.is_ok(), "{asked}");
    }
    let banned = bench.poll_many(&tasks).await;
    let Err(BatchRefused::Fault(seen)) = banned else { panic!("{banned:?}") };
    assert_eq!(seen.code, Some("ERROR: 1005".into()));
}

#[tokio::test]
async fn the_end_of_every_task_is_told_in_its_time_also_when_the_reply_was_lost() {
    let (bench, heard) = Bench::new().listened_to();
    bench.plan(Call::Submit, Fault::Drop, true);
    assert!(matches!(bench.submit().await, Submission::Ambiguous { .. }));
    let accepted_at = bench.provider.account.ledger().accepted[0].at;
    bench.pass(Duration::from_secs(9)).await;
    assert!(heard.lock().unwrap().is_empty(), "it is not solved yet");
    bench.pass(Duration::from_secs(2)).await;
    let task = bench.provider.account.ledger().accepted[0].task.clone();
    let heard = heard.lock().unwrap().clone();
    assert!(matches!(&*heard, [(attempt, named, at)]
        if *attempt == ATTEMPT && *named == task && *at >= accepted_at.plus(Duration::from_secs(10))));
    assert_eq!(bench.provider.account.ledger().pingbacks[&task], 1);
    assert!(matches!(bench.poll(&task).await, Poll::Solved(_)), "and asking confirms it");
}

#[tokio::test]
async fn nothing_is_told_of_a_task_that_never_ends_or_was_not_made() {
    let (bench, heard) = Bench::new().listened_to();
    bench.plan(Call::Submit, Fault::NeverReady, false);
    let never = accepted(bench.submit().await);
    bench.plan(Call::Submit, Fault::Drop, false);
    bench.submit().await;
    bench.plan(Call::Submit, Fault::zero_balance(), false);
    bench.submit().await;
    bench.plan(Call::Submit, Fault::Unsolvable, false);
    let lost = accepted(bench.submit().await);
    bench.pass(Duration::from_secs(30)).await;
    let heard: Vec<TaskId> =
        heard.lock().unwrap().iter().map(|(_, task, _)| task.clone()).collect();
    assert_eq!(heard, [lost], "not {never}");
}
