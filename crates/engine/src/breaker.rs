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
    Probing { code: Code },
}

/// How the last submissions went, as far as reaching the provider is concerned.
#[derive(Debug, Default)]
struct Recent {
    in_a_row: u32,
    seen: VecDeque<(Timestamp, bool)>,
}

/// While a probe is out, others look again after this.
const PROBE_LOOK: Duration = Duration::from_millis(200);
/// The provider is taken for away after so many failures in a row,
const MOST_IN_A_ROW: u32 = 10;
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
        }
    }

    /// Leave to submit, or when to ask again.
    pub(crate) fn pass(&self, now: Timestamp) -> Result<(), Timestamp> {
        self.account.pass(now)?;
        self.provider.pass(now).inspect_err(|_| self.account.hand_back(now))
    }

    /// Nothing was sent: had it been a probe, another may be sent at once.
    pub(crate) fn hand_back(&self, now: Timestamp) {
        self.account.hand_back(now);
        self.provider.hand_back(now);
    }

    /// The provider answered a submission with something it meant.
    pub(crate) fn reached(&self, now: Timestamp) {
        self.recent.lock().expect("no holder of this lock can panic").note(now, true);
        self.provider.close(now);
    }

    /// A submission did not reach the provider, or its reply did not reach us.
    pub(crate) fn missed(&self, now: Timestamp) {
        self.account.learned_nothing(now);
        let away = self.recent.lock().expect("no holder of this lock can panic").note(now, false);
        if away || self.provider.is_open() {
            self.provider.open(Code::from(AWAY), Duration::ZERO, now);
        }
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

/// Our word for a provider that cannot be reached.
const AWAY: &str = "PROVIDER_AWAY";

// === impl Recent ===

impl Recent {
    /// Remembers how a submission went; `true` when the provider has to be taken for away.
    fn note(&mut self, now: Timestamp, reached: bool) -> bool {
        self.in_a_row = if reached { 0 } else { self.in_a_row.saturating_add(1) };
        self.seen.push_back((now, reached));
        let old = |at: &Timestamp| now.since(*at) > WINDOW;
        while self.seen.len() > MOST_SEEN || self.seen.front().is_some_and(|(at, _)| old(at)) {
            self.seen.pop_front();
        }
        let failed = self.seen.iter().filter(|(_, reached)| !reached).count();
        let often = self.seen.len() >= LEAST_SEEN && failed * 2 >= self.seen.len();
        let away = !reached && (self.in_a_row >= MOST_IN_A_ROW || often);
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
                state.now = Phase::Probing { code: code.clone() };
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

    /// There is trouble, at least for `floor`.
    pub(crate) fn open(&self, code: Code, floor: Duration, now: Timestamp) {
        let mut state = self.lock();
        match &state.now {
            Phase::Closed => state.probes = 0,
            Phase::Probing { .. } => state.probes += 1,
            // Submissions that left before it opened tell nothing new.
            Phase::Open { until, .. } if now.plus(floor) <= *until => return,
            Phase::Open { .. } => {}
        }
        let until = now.plus(self.wait(state.probes).max(floor));
        tracing::warn!(breaker = self.what, %code, %until, "trouble: submissions wait");
        state.now = Phase::Open { code, until };
    }

    fn wait(&self, probes: u32) -> Duration {
        self.waits.0.saturating_mul(2u32.saturating_pow(probes.min(10))).min(self.waits.1)
    }

    /// Whatever was wrong is over.
    pub(crate) fn close(&self, now: Timestamp) {
        let mut state = self.lock();
        if state.now != Phase::Closed {
            tracing::info!(breaker = self.what, "well again: submissions go on");
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
        if let Phase::Probing { code } = &state.now {
            state.now = Phase::Open { code: code.clone(), until };
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
            Phase::Open { code, .. } | Phase::Probing { code } => Some(code.clone()),
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
            Phase::Probing { code } => Some(format!("{what} trouble {code}, probing now")),
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
        breaker.open("ERROR_ZERO_BALANCE".into(), Duration::ZERO, at(0));
        assert_eq!(breaker.pass(at(59)), Err(at(60)));
        assert_eq!(breaker.pass(at(60)), Ok(()));
        assert!(breaker.pass(at(60)).is_err(), "the second is not a probe");
        breaker.learned_nothing(at(61));
        assert_eq!(breaker.pass(at(62)), Err(at(121)));
        assert_eq!(breaker.pass(at(121)), Ok(()));
        breaker.hand_back(at(122));
        assert_eq!(breaker.pass(at(122)), Ok(()), "nothing was sent, so the next one is the probe");
        breaker.close(at(123));
        assert_eq!((breaker.pass(at(124)), breaker.trouble()), (Ok(()), None));
        assert_eq!(breaker.closed_at(), Some(at(123)));
    }

    #[test]
    fn a_ban_lasts_as_long_as_the_provider_says() {
        let breaker = account();
        breaker.open("ERROR: 1001".into(), Duration::from_secs(600), at(0));
        // A late answer to an earlier submission does not shorten it.
        breaker.open("ERROR: 1003".into(), Duration::from_secs(30), at(1));
        assert_eq!(breaker.pass(at(599)), Err(at(600)));
    }

    #[test]
    fn a_provider_is_away_after_ten_failures_in_a_row_and_probed_ever_less_often() {
        let breakers = Breakers::new(Duration::from_secs(60));
        for n in 0..9 {
            breakers.missed(at(n));
            assert_eq!(breakers.pass(at(n)), Ok(()), "{n}");
        }
        breakers.missed(at(9));
        let mut probes = Vec::new();
        for second in 9..300 {
            if breakers.pass(at(second)).is_ok() {
                probes.push(second);
                breakers.missed(at(second));
            }
        }
        assert_eq!(probes, [19, 39, 79, 139, 199, 259], "10, 20, 40, then every 60 seconds");
        assert_eq!(breakers.pass(at(319)), Ok(()));
        breakers.reached(at(319));
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
                breakers.reached(now);
            } else {
                breakers.missed(now);
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
                breakers.missed(now);
            } else {
                breakers.reached(now);
            }
            assert!(!breakers.provider.is_open(), "{n}");
        }
    }
}
