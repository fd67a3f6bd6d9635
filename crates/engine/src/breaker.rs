//! What stops everybody: trouble with the account, and a provider that is away. Claims stay queued, one submission probes
//! per step, nothing dies of it, and when it is over submissions come back gently (pace.rs).

use std::{collections::VecDeque, sync::Mutex, time::Duration};

use domain::{retry::Code, time::Timestamp};

/// Both breakers and what opens the second one.
#[derive(Debug)]
pub(crate) struct Breakers {
    pub(crate) account: Breaker,
    pub(crate) provider: Breaker,
    recent: Mutex<Recent>,
    /// The provider asked for a pause of everybody.
    pause_until: Mutex<Timestamp>,
}

/// Holds submissions back while something is wrong.
#[derive(Debug)]
pub(crate) struct Breaker {
    what: &'static str,
    state: Mutex<State>,
    /// The first wait, and the longest: waits double from probe to probe.
    waits: (Duration, Duration),
}

#[derive(Debug, Default)]
struct State {
    now: Phase,
    /// Probes in a row that found it as bad as before.
    probes: u32,
    /// When it closed last.
    closed_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Closed,
    /// No submission before `until`.
    Open { code: Code, until: Timestamp },
    /// One submission is out to see; all others wait for it.
    Probing {
        code: Code,
        /// What was sent before tells nothing about now.
        since: Timestamp,
    },
}

/// How far a submission came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To an answer.
    Reached,
    /// To the provider, perhaps.
    Lost,
    /// Nowhere: there was no connection.
    Unreached,
}

/// How the last submissions went, as far as reaching the provider is concerned.
#[derive(Debug, Default)]
struct Recent {
    in_a_row: u32,
    /// Without a connection, in a row.
    unreached: u32,
    seen: VecDeque<(Timestamp, bool)>,
}

/// While a probe is out, others look again after this.
const PROBE_LOOK: Duration = Duration::from_millis(200);
/// The provider is taken for away after so many failures in a row,
const MOST_IN_A_ROW: u32 = 10;
/// or so many without even a connection,
const MOST_UNREACHED: u32 = 3;
/// or when half of at least so many submissions failed within the window.
const LEAST_SEEN: usize = 20;
const WINDOW: Duration = Duration::from_secs(10);
const MOST_SEEN: usize = 1000;
const PROVIDER_WAITS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

// === impl Breakers ===

impl Breakers {
    pub(crate) fn new(probe_every: Duration) -> Self {
        Self {
            account: Breaker::new("account", (probe_every, probe_every)),
            provider: Breaker::new("provider", PROVIDER_WAITS),
            recent: Mutex::default(),
            pause_until: Mutex::default(),
        }
    }

    /// Leave to submit, or when to ask again.
    pub(crate) fn pass(&self, now: Timestamp) -> Result<(), Timestamp> {
        let until = *self.pause_until.lock().expect("no holder of this lock can panic");
        if now < until {
            return Err(until);
        }
        self.account.pass(now)?;
        self.provider.pass(now).inspect_err(|_| self.account.hand_back(now))
    }

    /// Nothing was sent: had it been a probe, another may be sent at once.
    pub(crate) fn hand_back(&self, now: Timestamp) {
        self.account.hand_back(now);
        self.provider.hand_back(now);
    }

    /// The provider answered a submission with something it meant.
    pub(crate) fn reached(&self, sent_at: Timestamp, now: Timestamp) {
        let mut recent = self.recent.lock().expect("no holder of this lock can panic");
        recent.note(now, Reach::Reached);
        drop(recent);
        self.provider.close(sent_at, now);
    }

    /// A submission did not reach the provider, or its reply did not reach us.
    pub(crate) fn missed(&self, reach: Reach, sent_at: Timestamp, now: Timestamp) {
        self.account.learned_nothing(now);
        let away = self.recent.lock().expect("no holder of this lock can panic").note(now, reach);
        if away || self.provider.is_open() {
            self.provider.open(Code::from(AWAY), Duration::ZERO, sent_at, now);
        }
    }

    /// The provider asks everybody to slow down: nothing is submitted for so long.
    pub(crate) fn pause(&self, length: Duration, now: Timestamp) {
        let mut until = self.pause_until.lock().expect("no holder of this lock can panic");
        *until = (*until).max(now.plus(length.min(LONGEST_PAUSE)));
    }

    /// When either closed last: submissions come back gently from then on.
    pub(crate) fn closed_at(&self) -> Option<Timestamp> {
        self.account.closed_at().max(self.provider.closed_at())
    }

    /// What is wrong, for people.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = String> {
        self.account.trouble().into_iter().chain(self.provider.trouble())
    }
}

/// No answer of the provider stops everybody for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Our word for a provider that cannot be reached.
const AWAY: &str = "PROVIDER_AWAY";

// === impl Recent ===

impl Recent {
    /// Remembers how a submission went; `true` when the provider has to be taken for away.
    fn note(&mut self, now: Timestamp, reach: Reach) -> bool {
        let reached = reach == Reach::Reached;
        self.in_a_row = if reached { 0 } else { self.in_a_row.saturating_add(1) };
        self.unreached =
            if reach == Reach::Unreached { self.unreached.saturating_add(1) } else { 0 };
        self.seen.push_back((now, reached));
        let old = |at: &Timestamp| now.since(*at) > WINDOW;
        while self.seen.len() > MOST_SEEN || self.seen.front().is_some_and(|(at, _)| old(at)) {
            self.seen.pop_front();
        }
        let failed = self.seen.iter().filter(|(_, reached)| !reached).count();
        let often = self.seen.len() >= LEAST_SEEN && failed * 2 >= self.seen.len();
        let in_a_row = self.in_a_row >= MOST_IN_A_ROW || self.unreached >= MOST_UNREACHED;
        let away = !reached && (in_a_row || often);
        if away {
            self.seen.clear();
        }
        away
    }
}

// === impl Breaker ===

impl Breaker {
    fn new(what: &'static str, waits: (Duration, Duration)) -> Self {
        Self { what, state: Mutex::default(), waits }
    }

    /// Leave to submit, or when to ask again. The first one after `until` is the probe.
    fn pass(&self, now: Timestamp) -> Result<(), Timestamp> {
        let mut state = self.lock();
        match &state.now {
            Phase::Closed => Ok(()),
            Phase::Open { until, .. } if now < *until => Err(*until),
            Phase::Open { code, .. } => {
                state.now = Phase::Probing { code: code.clone(), since: now };
                Ok(())
            }
            Phase::Probing { .. } => Err(now.plus(PROBE_LOOK)),
        }
    }

    /// Whether a probe is due; taking it is the caller's promise to send one.
    pub(crate) fn take_probe(&self, now: Timestamp) -> bool {
        let due = matches!(&self.lock().now, Phase::Open { until, .. } if now >= *until);
        due && self.pass(now).is_ok()
    }

    /// There is trouble, at least for `floor`; `sent_at` is when the question left that was answered so.
    pub(crate) fn open(&self, code: Code, floor: Duration, sent_at: Timestamp, now: Timestamp) {
        let mut state = self.lock();
        match &state.now {
            Phase::Closed => state.probes = 0,
            Phase::Probing { since, .. } if sent_at < *since => return,
            Phase::Probing { .. } => state.probes += 1,
            // Submissions that left before it opened tell nothing new.
            Phase::Open { until, .. } if now.plus(floor) <= *until => return,
            Phase::Open { .. } => {}
        }
        let until = now.plus(self.wait(state.probes).max(floor));
        tracing::warn!(breaker = self.what, %code, %until, "circuit breaker opened, submissions paused");
        state.now = Phase::Open { code, until };
    }

    fn wait(&self, probes: u32) -> Duration {
        self.waits.0.saturating_mul(2u32.saturating_pow(probes.min(10))).min(self.waits.1)
    }

    /// The probe came back well: whatever was wrong is over. What left before the probe proves nothing.
    pub(crate) fn close(&self, sent_at: Timestamp, now: Timestamp) {
        let mut state = self.lock();
        if matches!(&state.now, Phase::Probing { since, .. } if sent_at >= *since) {
            tracing::info!(breaker = self.what, "circuit breaker closed, submissions resumed");
            *state = State { closed_at: Some(now), ..State::default() };
        }
    }

    /// Nothing was sent: had it been the probe, another may be sent at once.
    fn hand_back(&self, now: Timestamp) {
        self.reopen(now);
    }

    /// A submission ended without telling anything: a probe has to be sent again.
    pub(crate) fn learned_nothing(&self, now: Timestamp) {
        let wait = self.wait(self.lock().probes);
        self.reopen(now.plus(wait));
    }

    fn reopen(&self, until: Timestamp) {
        let mut state = self.lock();
        if let Phase::Probing { code, .. } = &state.now {
            state.now = Phase::Open { code: code.clone(), until };
        }
    }

    /// Until when nothing is to be tried, and why.
    pub(crate) fn open_until(&self, now: Timestamp) -> Option<(Code, Timestamp)> {
        match &self.lock().now {
            Phase::Open { code, until } if now < *until => Some((code.clone(), *until)),
            Phase::Open { .. } | Phase::Closed | Phase::Probing { .. } => None,
        }
    }

    /// Whether something is wrong.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().now != Phase::Closed
    }

    /// The code of the trouble.
    pub(crate) fn code(&self) -> Option<Code> {
        match &self.lock().now {
            Phase::Closed => None,
            Phase::Open { code, .. } | Phase::Probing { code, .. } => Some(code.clone()),
        }
    }

    /// What is wrong, for people.
    pub(crate) fn trouble(&self) -> Option<String> {
        let what = self.what;
        match &self.lock().now {
            Phase::Closed => None,
            Phase::Open { code, until } => {
                Some(format!("{what} trouble {code}, next probe at {until}"))
            }
            Phase::Probing { code, .. } => Some(format!("{what} trouble {code}, probing now")),
        }
    }

    fn closed_at(&self) -> Option<Timestamp> {
        self.lock().closed_at
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn account() -> Breaker {
        Breaker::new("account", (Duration::from_secs(60), Duration::from_secs(60)))
    }

    #[test]
    fn one_probe_per_step_and_closed_by_an_answer() {
        let breaker = account();
        breaker.open("ERROR_ZERO_BALANCE".into(), Duration::ZERO, at(0), at(0));
        assert_eq!(breaker.pass(at(59)), Err(at(60)));
        assert_eq!(breaker.pass(at(60)), Ok(()));
        assert!(breaker.pass(at(60)).is_err(), "the second is not a probe");
        breaker.learned_nothing(at(61));
        assert_eq!(breaker.pass(at(62)), Err(at(121)));
        assert_eq!(breaker.pass(at(121)), Ok(()));
        breaker.hand_back(at(122));
        assert_eq!(breaker.pass(at(122)), Ok(()), "nothing was sent, so the next one is the probe");
        breaker.close(at(50), at(123));
        assert!(breaker.is_open(), "what left before the probe proves nothing");
        breaker.close(at(122), at(123));
        assert_eq!((breaker.pass(at(124)), breaker.trouble()), (Ok(()), None));
        assert_eq!(breaker.closed_at(), Some(at(123)));
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
    fn a_provider_is_away_after_ten_failures_in_a_row_and_probed_ever_less_often() {
        let breakers = Breakers::new(Duration::from_secs(60));
        for n in 0..9 {
            breakers.missed(Reach::Lost, at(n), at(n));
            assert_eq!(breakers.pass(at(n)), Ok(()), "{n}");
        }
        breakers.missed(Reach::Lost, at(9), at(9));
        let mut probes = Vec::new();
        for second in 9..300 {
            if breakers.pass(at(second)).is_ok() {
                probes.push(second);
                breakers.missed(Reach::Lost, at(second), at(second));
            }
        }
        assert_eq!(probes, [19, 39, 79, 139, 199, 259], "10, 20, 40, then every 60 seconds");
        assert_eq!(breakers.pass(at(319)), Ok(()));
        breakers.reached(at(319), at(319));
        assert_eq!(breakers.closed_at(), Some(at(319)));
        assert_eq!(breakers.troubles().count(), 0);
    }

    #[test]
    fn a_provider_is_away_when_half_of_many_fail() {
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
                breakers.missed(Reach::Lost, now, now);
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
                breakers.missed(Reach::Lost, now, now);
            } else {
                breakers.reached(now, now);
            }
            assert!(!breakers.provider.is_open(), "{n}");
        }
    }

    #[test]
    fn three_without_a_connection_are_enough() {
        let breakers = Breakers::new(Duration::from_secs(60));
        for n in 0..3 {
            assert!(!breakers.provider.is_open(), "{n}");
            breakers.missed(Reach::Unreached, at(n), at(n));
        }
        assert!(breakers.provider.is_open());
    }

    #[test]
    fn a_pause_is_everybodys_and_bounded() {
        let breakers = Breakers::new(Duration::from_secs(60));
        breakers.pause(Duration::from_secs(10), at(0));
        breakers.pause(Duration::from_secs(1), at(1));
        assert_eq!(breakers.pass(at(9)), Err(at(10)));
        breakers.pause(Duration::from_secs(86_400), at(10));
        assert_eq!(breakers.pass(at(11)), Err(at(610)));
    }
}
