//! Account trouble stops everybody: claims stay queued, one submission probes per step, nothing dies of it.

use std::{sync::Mutex, time::Duration};

use domain::{retry::Code, time::Timestamp};

/// Holds submissions back while the account is in trouble.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: Mutex<State>,
    probe_every: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// No submission before `until`.
    Open {
        code: Code,
        until: Timestamp,
    },
    /// One submission is out to see; all others wait for it.
    Probing {
        code: Code,
    },
}

/// While a probe is out, others look again after this.
const PROBE_LOOK: Duration = Duration::from_millis(200);

impl Breaker {
    pub(crate) fn new(probe_every: Duration) -> Self {
        Self { state: Mutex::new(State::Closed), probe_every }
    }

    /// Leave to submit, or when to ask again. The first one after `until` is the probe.
    pub(crate) fn pass(&self, now: Timestamp) -> Result<(), Timestamp> {
        let mut state = self.lock();
        match &*state {
            State::Closed => Ok(()),
            State::Open { until, .. } if now < *until => Err(*until),
            State::Open { code, .. } => {
                *state = State::Probing { code: code.clone() };
                Ok(())
            }
            State::Probing { .. } => Err(now.plus(PROBE_LOOK)),
        }
    }

    /// Whether a probe is due; taking it is the caller's promise to send one.
    pub(crate) fn take_probe(&self, now: Timestamp) -> bool {
        let mut state = self.lock();
        match &*state {
            State::Open { code, until } if now >= *until => {
                *state = State::Probing { code: code.clone() };
                true
            }
            State::Open { .. } | State::Closed | State::Probing { .. } => false,
        }
    }

    /// The account is in trouble, at least for `floor`.
    pub(crate) fn open(&self, code: Code, floor: Duration, now: Timestamp) {
        let until = now.plus(self.probe_every.max(floor));
        tracing::warn!(%code, %until, "account trouble: submissions wait");
        *self.lock() = State::Open { code, until };
    }

    /// The account answered: whatever was wrong is over.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if *state != State::Closed {
            tracing::info!("account is well again: submissions go on");
            *state = State::Closed;
        }
    }

    /// Nothing was sent: had it been the probe, another may be sent at once.
    pub(crate) fn hand_back(&self, now: Timestamp) {
        self.reopen(now);
    }

    /// A submission ended without telling anything about the account: a probe has to be sent again.
    pub(crate) fn learned_nothing(&self, now: Timestamp) {
        self.reopen(now.plus(self.probe_every));
    }

    fn reopen(&self, until: Timestamp) {
        let mut state = self.lock();
        if let State::Probing { code } = &*state {
            *state = State::Open { code: code.clone(), until };
        }
    }

    /// The code of the account's trouble.
    pub(crate) fn code(&self) -> Option<Code> {
        match &*self.lock() {
            State::Closed => None,
            State::Open { code, .. } | State::Probing { code } => Some(code.clone()),
        }
    }

    /// What is wrong, for people.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &*self.lock() {
            State::Closed => None,
            State::Open { code, until } => {
                Some(format!("account trouble {code}, next probe at {until}"))
            }
            State::Probing { code } => Some(format!("account trouble {code}, probing now")),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_probe_per_step_and_closed_by_an_answer() {
        let breaker = Breaker::new(Duration::from_secs(60));
        let at = |s: u64| Timestamp::from_millis(s * 1000);
        breaker.open("ERROR_ZERO_BALANCE".into(), Duration::ZERO, at(0));
        assert_eq!(breaker.pass(at(59)), Err(at(60)));
        assert_eq!(breaker.pass(at(60)), Ok(()));
        assert!(breaker.pass(at(60)).is_err(), "the second is not a probe");
        breaker.learned_nothing(at(61));
        assert_eq!(breaker.pass(at(62)), Err(at(121)));
        assert_eq!(breaker.pass(at(121)), Ok(()));
        breaker.hand_back(at(122));
        assert_eq!(breaker.pass(at(122)), Ok(()), "nothing was sent, so the next one is the probe");
        breaker.close();
        assert_eq!((breaker.pass(at(62)), breaker.trouble()), (Ok(()), None));
    }
}
