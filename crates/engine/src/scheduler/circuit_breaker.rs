//! Circuit breakers. Those for trouble with the account and for a provider that is down pause submissions: claims stay queued,
//! and one submission at a time probes. When they close, submissions come back gradually (`submit_rate`). The one for polling
//! pauses the polls of paid tasks, and opens only when a poll itself is refused; then one poll at a time probes.

use std::{collections::VecDeque, time::Duration};

use domain::{
    retry::{Code, own},
    time::Timestamp,
};
use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct Breakers {
    pub(crate) account: Breaker,
    pub(crate) provider: Breaker,
    pub(crate) polling: Breaker,
    recent: Mutex<RecentSubmissions>,
    /// The provider asked the whole account to slow down.
    pause_until: Mutex<Timestamp>,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    /// What is in trouble.
    what: &'static str,
    /// What is paused while it is open.
    pauses: Paused,
    state: Mutex<State>,
    /// The first and the longest wait; waits double from probe to probe.
    waits: (Duration, Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paused {
    Submissions,
    Polling,
}

#[derive(Debug, Default)]
struct State {
    now: Phase,
    /// Failed probes in a row.
    probes: u32,
    closed_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Closed,
    Open {
        code: Code,
        until: Timestamp,
    },
    /// One request probes; all others wait for it.
    Probing {
        code: Code,
        /// Replies to requests sent before this say nothing about the present.
        since: Timestamp,
    },
}

/// How far a submission came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    Answered,
    /// It may have reached the provider.
    ReplyLost,
    NotConnected,
}

/// How far the last submissions came.
#[derive(Debug, Default)]
struct RecentSubmissions {
    failed_in_a_row: u32,
    unconnected_in_a_row: u32,
    /// Each with whether it was answered.
    seen: VecDeque<(Timestamp, bool)>,
}

/// While a probe is under way, other requests check again after this.
const PROBE_CHECK: Duration = Duration::from_millis(200);
/// A reply that would keep a breaker open for this much longer at most says what is known.
const SAME_NEWS: Duration = Duration::from_secs(2);
/// A probe that ended without a report, because its step panicked, is replaced after this. No request takes as long.
const PROBE_LOST: Duration = Duration::from_secs(300);
/// The provider counts as down after this many failures in a row,
const MAX_FAILED: u32 = 10;
/// or this many in a row without even a connection,
const MAX_UNCONNECTED: u32 = 3;
/// or when half of at least this many submissions failed within the window.
const MIN_SEEN: usize = 20;
const WINDOW: Duration = Duration::from_secs(10);
const MAX_SEEN: usize = 1000;
const PROVIDER_WAITS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

// === impl Breakers ===

impl Breakers {
    pub(crate) fn new(probe_every: Duration) -> Self {
        Self {
            account: Breaker::new("account", Paused::Submissions, (probe_every, probe_every)),
            provider: Breaker::new("provider", Paused::Submissions, PROVIDER_WAITS),
            polling: Breaker::new("polling", Paused::Polling, (probe_every, probe_every)),
            recent: Mutex::default(),
            pause_until: Mutex::default(),
        }
    }

    /// Allows one submission, or says when to try again.
    pub(crate) fn pass(&self, now: Timestamp) -> Result<(), Timestamp> {
        let until = *self.pause_until.lock();
        if now < until {
            return Err(until);
        }
        self.account.pass(now)?;
        self.provider.pass(now).inspect_err(|_| self.account.reopen(now))
    }

    /// Whether submissions may leave without being a probe.
    pub(crate) fn are_closed(&self, now: Timestamp) -> bool {
        now >= *self.pause_until.lock() && !self.account.is_open() && !self.provider.is_open()
    }

    /// Nothing was sent. If it would have been the probe, the next submission is.
    pub(crate) fn hand_back(&self, now: Timestamp) {
        self.account.reopen(now);
        self.provider.reopen(now);
    }

    /// The provider answered a submission.
    pub(crate) fn reached(&self, sent_at: Timestamp, now: Timestamp) {
        self.recent.lock().record(now, Contact::Answered);
        self.provider.close(sent_at, now);
    }

    /// A submission did not reach the provider, or its reply was lost.
    pub(crate) fn missed(&self, contact: Contact, sent_at: Timestamp, now: Timestamp) {
        self.account.learned_nothing(now);
        let is_down = self.recent.lock().record(now, contact);
        if is_down || self.provider.is_open() {
            self.provider.open(Code::from(own::PROVIDER_AWAY), Duration::ZERO, sent_at, now);
        }
    }

    /// The provider asks the account to slow down: nothing is submitted for `length`.
    pub(crate) fn pause(&self, length: Duration, now: Timestamp) {
        let mut pause_until = self.pause_until.lock();
        let until = now.plus(length.min(MAX_PAUSE));
        if *pause_until <= now {
            tracing::info!(%until, "provider asked to slow down, submissions paused");
        }
        *pause_until = (*pause_until).max(until);
    }

    /// What holds submissions up, if the account or the provider is in trouble.
    pub(crate) fn code(&self) -> Option<Code> {
        self.account.code().or_else(|| self.provider.code())
    }

    fn all(&self) -> [&Breaker; 3] {
        [&self.account, &self.provider, &self.polling]
    }

    /// When either closed last; submissions come back gradually from then on.
    pub(crate) fn closed_at(&self) -> Option<Timestamp> {
        self.account.state.lock().closed_at.max(self.provider.state.lock().closed_at)
    }

    /// One word for each open breaker.
    pub(crate) fn failing(&self) -> impl Iterator<Item = &'static str> {
        self.all().into_iter().filter(|breaker| breaker.is_open()).map(|breaker| breaker.what)
    }

    /// One line for each open breaker.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = String> {
        self.all().into_iter().filter_map(Breaker::trouble)
    }
}

/// The provider cannot pause submissions for longer than this.
const MAX_PAUSE: Duration = Duration::from_secs(600);

// === impl RecentSubmissions ===

impl RecentSubmissions {
    /// Records a submission; `true` when the provider counts as down.
    fn record(&mut self, now: Timestamp, contact: Contact) -> bool {
        let answered = contact == Contact::Answered;
        let unconnected = contact == Contact::NotConnected;
        let count = |counts: bool, before: u32| if counts { before.saturating_add(1) } else { 0 };
        self.failed_in_a_row = count(!answered, self.failed_in_a_row);
        self.unconnected_in_a_row = count(unconnected, self.unconnected_in_a_row);
        self.seen.push_back((now, answered));
        let old = |at: &Timestamp| now.since(*at) > WINDOW;
        while self.seen.len() > MAX_SEEN || self.seen.front().is_some_and(|(at, _)| old(at)) {
            self.seen.pop_front();
        }
        let failed = self.seen.iter().filter(|(_, answered)| !answered).count();
        let often = self.seen.len() >= MIN_SEEN && failed * 2 >= self.seen.len();
        let in_a_row =
            self.failed_in_a_row >= MAX_FAILED || self.unconnected_in_a_row >= MAX_UNCONNECTED;
        let is_down = !answered && (in_a_row || often);
        if is_down {
            self.seen.clear();
        }
        is_down
    }
}

// === impl Breaker ===

impl Breaker {
    fn new(what: &'static str, pauses: Paused, waits: (Duration, Duration)) -> Self {
        Self { what, pauses, state: Mutex::default(), waits }
    }

    /// Allows one request, or says when to try again. The first request after `until` is the probe.
    pub(crate) fn pass(&self, now: Timestamp) -> Result<(), Timestamp> {
        let mut state = self.state.lock();
        match &state.now {
            Phase::Closed => Ok(()),
            Phase::Open { until, .. } if now < *until => Err(*until),
            Phase::Open { code, .. } => {
                state.now = Phase::Probing { code: code.clone(), since: now };
                Ok(())
            }
            Phase::Probing { code, since } if now.since(*since) >= PROBE_LOST => {
                state.now = Phase::Probing { code: code.clone(), since: now };
                Ok(())
            }
            Phase::Probing { .. } => Err(now.plus(PROBE_CHECK)),
        }
    }

    /// Whether a probe is due. A caller that gets `true` must send one.
    pub(crate) fn take_probe(&self, now: Timestamp) -> bool {
        let due = matches!(&self.state.lock().now, Phase::Open { until, .. } if now >= *until);
        due && self.pass(now).is_ok()
    }

    /// Opens for at least `floor`. `sent_at` is when the request left that was answered with `code`.
    pub(crate) fn open(&self, code: Code, floor: Duration, sent_at: Timestamp, now: Timestamp) {
        let mut state = self.state.lock();
        match &state.now {
            Phase::Closed => state.probes = 0,
            Phase::Probing { since, .. } if sent_at < *since => return,
            Phase::Probing { .. } => state.probes += 1,
            // Replies that come a moment later, to requests that left before it opened, say nothing new.
            Phase::Open { until, .. } if now.plus(floor) <= until.plus(SAME_NEWS) => return,
            Phase::Open { .. } => {}
        }
        let until = now.plus(self.wait(state.probes).max(floor));
        let breaker = self.what;
        match self.pauses {
            Paused::Submissions => {
                tracing::warn!(breaker, %code, %until, "circuit breaker opened, submissions paused");
            }
            Paused::Polling => {
                tracing::warn!(breaker, %code, %until, "circuit breaker opened, polling paused");
            }
        }
        state.now = Phase::Open { code, until };
    }

    fn wait(&self, probes: u32) -> Duration {
        self.waits.0.saturating_mul(2u32.saturating_pow(probes.min(10))).min(self.waits.1)
    }

    /// The probe succeeded. A reply to a request that left before the probe proves nothing.
    pub(crate) fn close(&self, sent_at: Timestamp, now: Timestamp) {
        let mut state = self.state.lock();
        if matches!(&state.now, Phase::Probing { since, .. } if sent_at >= *since) {
            let breaker = self.what;
            match self.pauses {
                Paused::Submissions => {
                    tracing::info!(breaker, "circuit breaker closed, submissions resumed");
                }
                Paused::Polling => {
                    tracing::info!(breaker, "circuit breaker closed, polling resumed");
                }
            }
            *state = State { closed_at: Some(now), ..State::default() };
        }
    }

    /// A request ended and showed nothing. If it was the probe, another one is due after the usual wait.
    pub(crate) fn learned_nothing(&self, now: Timestamp) {
        let wait = self.wait(self.state.lock().probes);
        self.reopen(now.plus(wait));
    }

    /// If a probe is under way, the next one may be sent from `until` on.
    pub(crate) fn reopen(&self, until: Timestamp) {
        let mut state = self.state.lock();
        if let Phase::Probing { code, .. } = &state.now {
            state.now = Phase::Open { code: code.clone(), until };
        }
    }

    /// Also while probing.
    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().now != Phase::Closed
    }

    pub(crate) fn code(&self) -> Option<Code> {
        match &self.state.lock().now {
            Phase::Closed => None,
            Phase::Open { code, .. } | Phase::Probing { code, .. } => Some(code.clone()),
        }
    }

    /// What is wrong, in one line.
    pub(crate) fn trouble(&self) -> Option<String> {
        let what = self.what;
        let paused = match self.pauses {
            Paused::Submissions => "submissions paused",
            Paused::Polling => "polling of paid tasks paused",
        };
        match &self.state.lock().now {
            Phase::Closed => None,
            Phase::Open { code, until } => {
                Some(format!("{what} trouble {code}: {paused}, next probe at {until}"))
            }
            Phase::Probing { code, .. } => {
                Some(format!("{what} trouble {code}: {paused}, probing now"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn account() -> Breaker {
        let wait = Duration::from_secs(60);
        Breaker::new("account", Paused::Submissions, (wait, wait))
    }

    #[test]
    fn one_submission_probes_per_wait_and_an_answer_closes_the_breaker() {
        let breaker = account();
        breaker.open("ERROR_ZERO_BALANCE".into(), Duration::ZERO, at(0), at(0));
        assert_eq!(breaker.pass(at(59)), Err(at(60)));
        assert_eq!(breaker.pass(at(60)), Ok(()));
        assert!(breaker.pass(at(60)).is_err(), "the second is not a probe");
        breaker.learned_nothing(at(61));
        assert_eq!(breaker.pass(at(62)), Err(at(121)));
        assert_eq!(breaker.pass(at(121)), Ok(()));
        breaker.reopen(at(122));
        assert_eq!(breaker.pass(at(122)), Ok(()), "nothing was sent, so the next one is the probe");
        breaker.close(at(50), at(123));
        assert!(breaker.is_open(), "what left before the probe proves nothing");
        breaker.close(at(122), at(123));
        assert_eq!((breaker.pass(at(124)), breaker.trouble()), (Ok(()), None));
        assert_eq!(breaker.state.lock().closed_at, Some(at(123)));
    }

    #[test]
    fn a_probe_that_never_reports_is_replaced() {
        let breaker = account();
        breaker.open("ERROR: 1005".into(), Duration::ZERO, at(0), at(0));
        assert_eq!(breaker.pass(at(60)), Ok(()));
        assert!(breaker.pass(at(359)).is_err());
        assert_eq!(breaker.pass(at(360)), Ok(()));
        assert!(breaker.pass(at(361)).is_err());
    }

    #[test]
    fn trouble_says_what_is_paused() {
        let breakers = Breakers::new(Duration::from_secs(60));
        breakers.account.open("ERROR_KEY_DOES_NOT_EXIST".into(), Duration::ZERO, at(0), at(0));
        let troubles: Vec<_> = breakers.troubles().collect();
        assert_eq!(troubles.len(), 1, "polling goes on");
        assert!(
            troubles[0].contains("ERROR_KEY_DOES_NOT_EXIST: submissions paused"),
            "{troubles:?}"
        );
        breakers.polling.open("ERROR: 1005".into(), Duration::ZERO, at(0), at(0));
        let polling = breakers.troubles().last().unwrap();
        assert!(polling.starts_with("polling trouble ERROR: 1005: polling of paid"), "{polling}");
        assert_eq!(breakers.failing().collect::<Vec<_>>(), ["account", "polling"]);
    }

    #[test]
    fn a_ban_lasts_as_long_as_the_provider_says() {
        let breaker = account();
        breaker.open("ERROR: 1001".into(), Duration::from_secs(600), at(0), at(0));
        // A late answer to an earlier submission does not shorten it.
        breaker.open("ERROR: 1003".into(), Duration::from_secs(30), at(0), at(1));
        breaker.close(at(0), at(2));
        assert_eq!(breaker.pass(at(599)), Err(at(600)));
    }

    #[test]
    fn ten_failures_in_a_row_open_the_breaker_and_probes_back_off() {
        let breakers = Breakers::new(Duration::from_secs(60));
        for n in 0..9 {
            breakers.missed(Contact::ReplyLost, at(n), at(n));
            assert_eq!(breakers.pass(at(n)), Ok(()), "{n}");
        }
        breakers.missed(Contact::ReplyLost, at(9), at(9));
        let mut probes = Vec::new();
        for second in 9..300 {
            if breakers.pass(at(second)).is_ok() {
                probes.push(second);
                breakers.missed(Contact::ReplyLost, at(second), at(second));
            }
        }
        assert_eq!(probes, [19, 39, 79, 139, 199, 259], "10, 20, 40, then every 60 seconds");
        assert_eq!(breakers.pass(at(319)), Ok(()));
        breakers.reached(at(319), at(319));
        assert_eq!(breakers.closed_at(), Some(at(319)));
        assert_eq!(breakers.troubles().count(), 0);
    }

    #[test]
    fn half_of_many_failing_opens_the_breaker() {
        let breakers = Breakers::new(Duration::from_secs(60));
        for n in 0..40 {
            let now = Timestamp::from_millis(n * 100);
            if breakers.provider.is_open() {
                assert!(n >= 19, "{n}");
                return;
            }
            if n % 2 == 0 {
                breakers.reached(now, now);
            } else {
                breakers.missed(Contact::ReplyLost, now, now);
            }
        }
        panic!("never opened");
    }

    #[test]
    fn single_failures_open_nothing() {
        let breakers = Breakers::new(Duration::from_secs(60));
        for n in 0..1000 {
            let now = Timestamp::from_millis(n * 100);
            if n % 4 == 0 {
                breakers.missed(Contact::ReplyLost, now, now);
            } else {
                breakers.reached(now, now);
            }
            assert!(!breakers.provider.is_open(), "{n}");
        }
    }

    #[test]
    fn three_failed_connections_in_a_row_open_the_breaker() {
        let breakers = Breakers::new(Duration::from_secs(60));
        for n in 0..3 {
            assert!(!breakers.provider.is_open(), "{n}");
            breakers.missed(Contact::NotConnected, at(n), at(n));
        }
        assert!(breakers.provider.is_open());
    }

    #[test]
    fn a_pause_holds_all_submissions_and_is_bounded() {
        let breakers = Breakers::new(Duration::from_secs(60));
        breakers.pause(Duration::from_secs(10), at(0));
        breakers.pause(Duration::from_secs(1), at(1));
        assert_eq!(breakers.pass(at(9)), Err(at(10)));
        breakers.pause(Duration::from_secs(86_400), at(10));
        assert_eq!(breakers.pass(at(11)), Err(at(610)));
    }
}
