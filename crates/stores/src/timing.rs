//! The gateway's clock, as its store uses it. A decision takes its time when it is made and not when it was queued, and it is
//! refused while the clock is known to be wrong.

use std::{
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use domain::{
    ports::{Clock, ClockOffset, ServerTime, StoreError},
    time::Timestamp,
};
use parking_lot::Mutex;

use crate::Result;

/// The clock that decisions follow. Without one, as in most tests, they take the time that the caller names.
#[derive(Debug, Default)]
pub struct Timing {
    clock: OnceLock<Arc<dyn Clock>>,
    /// Set while the clock is too far from the server's.
    wrong: Mutex<Option<ClockOffset>>,
}

/// A request that waited longer for its decision is refused, because its caller has probably given up.
const MAX_WAIT: Duration = Duration::from_secs(2);

impl Timing {
    /// From now on decisions follow this clock. Only the first call counts.
    pub fn follow(&self, clock: Arc<dyn Clock>) {
        // A second clock would be a mistake of the assembly, and the first one is as good.
        let _: &Arc<dyn Clock> = self.clock.get_or_init(|| clock);
    }

    /// Fails while the clock is wrong.
    pub fn check(&self) -> Result<()> {
        self.wrong.lock().map_or(Ok(()), |offset| Err(StoreError::WrongClock(offset)))
    }

    /// Compares the clock with the server's, and remembers the result. A clock that is behind catches up with the wall clock
    /// first: the machine may have been suspended.
    pub async fn compare<F>(&self, server_time: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<Option<ServerTime>>>,
    {
        let Some(clock) = self.clock.get() else { return Ok(()) };
        let mut offset = measure(&**clock, &server_time).await?;
        if matches!(offset, Some(ClockOffset::Behind(_)) if offset.is_some_and(ClockOffset::is_too_far))
        {
            clock.catch_up();
            offset = measure(&**clock, &server_time).await?;
        }
        *self.wrong.lock() = offset.filter(|offset| offset.is_too_far());
        self.check()
    }

    /// The time of a decision that is made now and was asked for at `asked`.
    pub(crate) fn at_decision(&self, asked: Timestamp) -> Timestamp {
        self.clock.get().map_or(asked, |clock| clock.now().max(asked))
    }

    /// Fails when a request that was made at `asked` has waited too long.
    pub(crate) fn check_wait(&self, asked: Timestamp) -> Result<()> {
        if self.at_decision(asked).since(asked) > MAX_WAIT {
            return Err(StoreError::unavailable(
                "overloaded",
                "the request waited more than 2 s for its turn, so nothing was decided; retry later",
            ));
        }
        Ok(())
    }
}

async fn measure<F>(clock: &dyn Clock, server_time: impl Fn() -> F) -> Result<Option<ClockOffset>>
where
    F: Future<Output = Result<Option<ServerTime>>>,
{
    let before = clock.now();
    let server = server_time().await?;
    Ok(server.map(|server| ClockOffset::measure(before, server, clock.now())))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use domain::{
        actor::Actor,
        id::{ClaimId, HolderId, SolveId, WorkerName},
        lease::Holder,
        pause::PauseScope,
        ports::{History, PauseRequest, Store as _, SweepRequest},
        solve::Fact,
    };

    use super::*;
    use crate::StoreAdapter;

    /// A clock that is set by hand, and the wall clock that it catches up with, in seconds.
    #[derive(Debug)]
    struct HandClock {
        shown: AtomicU64,
        wall: u64,
    }

    #[async_trait]
    impl Clock for HandClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(1_000 * self.shown.load(Ordering::SeqCst))
        }

        async fn sleep_until(&self, _: Timestamp) {}

        fn catch_up(&self) {
            self.shown.fetch_max(self.wall, Ordering::SeqCst);
        }
    }

    fn following(shown: u64, wall: u64) -> (Timing, Arc<HandClock>) {
        let clock = Arc::new(HandClock { shown: AtomicU64::new(shown), wall });
        let timing = Timing::default();
        timing.follow(Arc::clone(&clock) as Arc<dyn Clock>);
        (timing, clock)
    }

    async fn compared(timing: &Timing, server: u64) -> Result<()> {
        let at = Timestamp::from_millis(1_000 * server);
        timing.compare(|| async { Ok(Some(ServerTime { at, precision: Duration::ZERO })) }).await
    }

    #[tokio::test]
    async fn a_clock_that_is_ahead_stays_refused_until_it_is_right() {
        let (timing, clock) = following(3_700, 3_700);
        let wrong = compared(&timing, 100).await.unwrap_err();
        assert!(matches!(wrong, StoreError::WrongClock(ClockOffset::Ahead(_))), "{wrong:?}");
        assert!(timing.check().is_err());
        clock.shown.store(105, Ordering::SeqCst);
        compared(&timing, 100).await.unwrap();
        timing.check().unwrap();
    }

    #[tokio::test]
    async fn a_clock_that_stood_still_catches_up_with_the_wall_clock() {
        let (timing, clock) = following(100, 3_700);
        compared(&timing, 3_700).await.unwrap();
        assert_eq!(clock.now(), Timestamp::from_millis(3_700_000));
        // The wall clock of this machine is wrong, too.
        let (timing, _) = following(100, 200);
        assert!(compared(&timing, 3_700).await.is_err());
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_leaves_the_verdict_as_it_is() {
        let (timing, _) = following(3_700, 3_700);
        compared(&timing, 100).await.unwrap_err();
        let away = || async { Err(StoreError::unavailable("test", "away")) };
        assert!(matches!(timing.compare(away).await, Err(StoreError::Unavailable { .. })));
        assert!(matches!(timing.check(), Err(StoreError::WrongClock(_))));
    }

    #[tokio::test]
    async fn with_a_wrong_clock_a_store_takes_facts_and_nothing_else() {
        let store = StoreAdapter::in_memory();
        let (timing, clock) = (store.timing(), HandClock { shown: AtomicU64::new(3_700), wall: 0 });
        timing.follow(Arc::new(clock));
        compared(&timing, 100).await.unwrap_err();
        let now = Timestamp::from_millis(3_700_000);
        let holder = Holder::apart(HolderId::from_number(1), now.plus(MAX_WAIT));
        assert!(matches!(store.hold(holder).await, Err(StoreError::WrongClock(_))));
        let sweep = SweepRequest { limit: 1, trouble: None, history: History::InStore };
        assert!(matches!(store.sweep(sweep, now).await, Err(StoreError::WrongClock(_))));
        let claim = ClaimId::from_number(1);
        assert!(matches!(store.deliver(claim, now).await, Err(StoreError::WrongClock(_))));
        // There is no such solve, which only the decision itself can find out.
        let fact = Fact::ReplyLost { why: "test".into(), due: now };
        let settled = store.settle(SolveId::from_number(1), 1, fact, now).await;
        assert!(matches!(settled, Err(StoreError::Corrupt { .. })), "{settled:?}");
        store.release(HolderId::from_number(1)).await.unwrap();
    }

    #[tokio::test]
    async fn submissions_can_be_stopped_with_a_wrong_clock_and_after_a_long_wait() {
        let store = StoreAdapter::in_memory();
        let (timing, clock) = (store.timing(), HandClock { shown: AtomicU64::new(3_700), wall: 0 });
        timing.follow(Arc::new(clock));
        compared(&timing, 100).await.unwrap_err();
        let now = Timestamp::from_millis(3_700_000);
        let by = Actor::process(WorkerName::new("night-shift").unwrap());
        let request =
            |paused| PauseRequest { scope: PauseScope::Everything, paused, by: by.clone() };
        let resumed = store.set_pause(request(false), now).await;
        assert!(matches!(resumed, Err(StoreError::WrongClock(_))), "{resumed:?}");
        store.set_pause(request(true), now).await.unwrap();
        assert_eq!(store.pauses().await.unwrap().len(), 1);
        // Its clock is right, and the request waited for five seconds.
        let waited = StoreAdapter::in_memory();
        waited.timing().follow(Arc::new(HandClock { shown: AtomicU64::new(105), wall: 0 }));
        let asked = Timestamp::from_millis(100_000);
        let resumed = waited.set_pause(request(false), asked).await;
        assert!(matches!(resumed, Err(StoreError::Unavailable { .. })), "{resumed:?}");
        waited.set_pause(request(true), asked).await.unwrap();
        assert_eq!(waited.pauses().await.unwrap().len(), 1);
    }

    #[test]
    fn a_request_that_waited_too_long_is_refused_and_others_take_the_time_of_their_decision() {
        let (timing, _) = following(102, 0);
        let asked = |seconds: u64| Timestamp::from_millis(1_000 * seconds);
        timing.check_wait(asked(100)).unwrap();
        assert_eq!(timing.at_decision(asked(100)), asked(102));
        assert!(matches!(timing.check_wait(asked(99)), Err(StoreError::Unavailable { .. })));
        // A caller whose time is later, such as a test, keeps it.
        assert_eq!(timing.at_decision(asked(110)), asked(110));
    }
}
