//! Batch polls.

use super::*;

fn geetest() -> Challenge {
    let draft = ChallengeParts {
        sitekey: Some("g1".to_owned()),
        pageurl: Some(PageUrl::parse("https://shop.example.com/login").unwrap()),
        params: [("challenge".to_owned(), "c1".to_owned())].into(),
        ..ChallengeParts::default()
    };
    Challenge::new(Kind::Geetest, draft).unwrap()
}

impl ProviderFixture {
    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        self.run(self.provider.poll_many(tasks)).await
    }

    /// The number of poll requests and of polled tasks.
    fn poll_counts(&self) -> (u64, u64) {
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
}

#[tokio::test]
async fn several_tasks_are_one_call_in_their_order() {
    let fixture = ProviderFixture::new();
    let first = accepted(fixture.submit().await);
    fixture.advance(Duration::from_secs(10));
    let second = accepted(fixture.submit().await);
    let polled = fixture.poll_many(&[second.clone(), first.clone()]).await.unwrap();
    assert_eq!(polled[0], Polled { poll: Poll::NotReady, price: None });
    let Poll::Solved(answer) = &polled[1].poll else { panic!("{polled:?}") };
    assert_eq!((task_of(answer.text.expose()), polled[1].price), (Some(first.clone()), None));
    assert!(answer.extras.is_none(), "there is no place for them on the wire");
    assert_eq!(fixture.poll_counts(), (1, 2));
    assert_eq!(fixture.poll_many(&[]).await, Ok(vec![]));
    assert!(
        fixture.poll_many(&[first]).await.unwrap()[0].price.is_some(),
        "a single task is polled alone"
    );
    assert_eq!(fixture.poll_counts(), (2, 3));
}

#[tokio::test]
async fn what_cannot_be_taken_apart_on_the_wire_cannot_here() {
    let fixture = ProviderFixture::new();
    let mut tasks = fixture.tasks(1).await;
    let submitted = fixture.run(fixture.provider.submit(&geetest(), ATTEMPT)).await;
    tasks.push(accepted(submitted));
    fixture.advance(Duration::from_secs(10));
    assert_eq!(fixture.poll_many(&tasks).await, Err(BatchRefused::Garbled));
    fixture.plan(Call::Poll, Fault::Unsolvable, false);
    fixture.plan(Call::Poll, Fault::Code("ERROR_CAPTCHA_UNSOLVABLE".into()), false);
    let codes = fixture.poll_many(&tasks).await;
    assert_eq!(codes, Err(BatchRefused::Garbled), "solved before: the answer with a bar again");
    assert_eq!(fixture.poll_many(&tasks).await, Err(BatchRefused::Garbled), "whose code is it?");
}

#[tokio::test]
async fn a_provider_without_ids_and_trouble_on_the_way_are_told_apart() {
    let fixture =
        ProviderFixture::with(BehaviourConfig { batch: false, ..BehaviourConfig::new(1) });
    let tasks = fixture.tasks(2).await;
    assert_eq!(fixture.poll_many(&tasks).await, Err(BatchRefused::Unsupported));
    assert_eq!(fixture.poll_counts(), (0, 0));

    let fixture = ProviderFixture::new();
    let tasks = fixture.tasks(2).await;
    for fault in [Fault::Drop, Fault::Hang, Fault::Status(500), Fault::Unreachable] {
        fixture.plan(Call::Poll, fault.clone(), false);
        let polled = fixture.poll_many(&tasks).await;
        assert!(
            matches!(polled, Err(BatchRefused::Fault(ProviderFault { code: None, .. }))),
            "{fault:?}"
        );
    }
    for fault in [Fault::wrong_key(), Fault::TooManyRequests { retry_after: Some(2) }] {
        fixture.plan(Call::Poll, fault.clone(), false);
        let polled = fixture.poll_many(&tasks).await;
        assert!(
            matches!(polled, Err(BatchRefused::Fault(ProviderFault { code: Some(_), .. }))),
            "{fault:?}"
        );
    }
    assert!(fixture.poll_many(&tasks).await.is_ok());
}

/// R > 20 · C + 1200, where R counts requests and not tasks.
#[tokio::test]
async fn a_question_about_many_tasks_counts_once_for_the_ban() {
    let config = BehaviourConfig { bans: true, ..BehaviourConfig::new(1) };
    let fixture = ProviderFixture::with(config.solving_in(Duration::from_secs(100_000)));
    let tasks = fixture.tasks(10).await;
    for poll in 0..1400 {
        assert!(fixture.poll_many(&tasks).await.is_ok(), "{poll}");
    }
    let banned = fixture.poll_many(&tasks).await;
    let Err(BatchRefused::Fault(seen)) = banned else { panic!("{banned:?}") };
    assert_eq!(seen.code, Some("ERROR: 1005".into()));
}
