//! Planned faults: one-shot faults for the next calls, and random ones at a rate. Planned in process through
//! [`crate::Account`], or over HTTP:
//!
//! ```text
//! POST /faults {"on":"submit","fault":"drop","accepted":true,"times":2}     the next two submits
//! POST /faults {"on":"poll","fault":{"status":502},"rate":0.1}              one poll in ten
//! POST /faults [{…},{…}]          several at once
//! GET /faults                     the plan
//! DELETE /faults                  clear the plan
//! ```
//!
//! `on`: `submit` (in.php), `poll` (get, get2), `account` (balance, threads, reports).
//! `fault`: `{"code":"ERROR_…"}` · `unreachable` · `drop` · `hang` · `{"status":502}` ·
//! `{"too_many_requests":{"retry_after":3}}` · `garbage` · `truncated` · `html` · `empty` · `no_id` · `huge` ·
//! `{"trickle":3000}` (milliseconds) · `unsolvable` · `never_ready` · `same_task`.
//! `accepted`: whether the request is processed before its reply fails. docs/simulator.md has examples of all.

mod form;

use std::collections::{BTreeMap, VecDeque};

use domain::retry::Code;
use serde::{Deserialize, Serialize};

pub use form::{FAULT_FORMS, read_plan};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Submit,
    Poll,
    /// Balance, threads, reports.
    Account,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A well-formed refusal with this code; the request is not processed.
    Code(Code),
    /// In process: no byte is sent. Over HTTP: the connection closes with the body unread.
    Unreachable,
    /// The request is read, then the connection closes without a reply.
    Drop,
    /// The request is read and never answered.
    Hang,
    /// An HTTP status such as 500 or 502 with an HTML page.
    Status(u16),
    /// HTTP 429; the request is not processed.
    TooManyRequests {
        /// `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// Status 200 with meaningless bytes.
    Garbage,
    /// A reply that ends before its announced length.
    Truncated,
    /// Status 200 with an HTML page.
    Html,
    /// Status 200 with an empty body.
    Empty,
    /// A success without an id or answer.
    NoId,
    /// A reply of many megabytes.
    Huge,
    /// The correct reply, spread over this many milliseconds.
    Trickle(u64),
    /// Submit: the task will be unsolvable. Poll: it is unsolvable from now on.
    Unsolvable,
    /// Submit: the task will never be ready. Poll: it is not ready, this once.
    NeverReady,
    /// Submit: answered with the id of the last task instead of a new one.
    SameTask,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    pub on: Call,
    pub fault: Fault,
    /// Whether the request is processed before its reply fails, where the fault leaves that open.
    #[serde(default)]
    pub accepted: bool,
    /// How many calls, without a rate.
    #[serde(default = "once")]
    pub times: u32,
    /// The probability for every call from now on, instead of the next calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// The planned faults. One-shot faults come first, in order.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    next: BTreeMap<Call, VecDeque<Planned>>,
    rates: Vec<Planned>,
    rng: fastrand::Rng,
}

/// The faults that a swarm chooses from, with their maximum rates.
const SWARM: [(Call, Fault, bool, f64); 22] = [
    (Call::Submit, Fault::Unreachable, false, 0.2),
    (Call::Submit, Fault::Drop, false, 0.1),
    (Call::Submit, Fault::Drop, true, 0.1),
    (Call::Submit, Fault::Hang, false, 0.05),
    (Call::Submit, Fault::Hang, true, 0.05),
    (Call::Submit, Fault::Status(502), false, 0.1),
    (Call::Submit, Fault::Status(500), true, 0.1),
    (Call::Submit, Fault::TooManyRequests { retry_after: Some(3) }, false, 0.2),
    (Call::Submit, Fault::Garbage, true, 0.05),
    (Call::Submit, Fault::Truncated, true, 0.05),
    (Call::Submit, Fault::NoId, true, 0.05),
    (Call::Submit, Fault::Trickle(5_000), true, 0.2),
    (Call::Submit, Fault::Trickle(60_000), true, 0.05),
    (Call::Submit, Fault::Unsolvable, true, 0.1),
    (Call::Submit, Fault::NeverReady, true, 0.02),
    (Call::Submit, Fault::SameTask, false, 0.01),
    (Call::Poll, Fault::Drop, false, 0.2),
    (Call::Poll, Fault::Hang, false, 0.05),
    (Call::Poll, Fault::Status(502), false, 0.2),
    (Call::Poll, Fault::TooManyRequests { retry_after: Some(2) }, false, 0.2),
    (Call::Poll, Fault::Html, false, 0.1),
    (Call::Account, Fault::Status(500), false, 0.3),
];

/// The codes that a swarm may return to submissions.
const SWARM_CODES: [&str; 4] =
    ["ERROR_NO_SLOT_AVAILABLE", "ERROR_ZERO_BALANCE", "ERROR_SERVER_ERROR", "MAX_USER_TURN"];

fn once() -> u32 {
    1
}

// === impl Fault ===

impl Fault {
    pub fn code(code: &str) -> Self {
        Self::Code(code.into())
    }

    pub fn zero_balance() -> Self {
        Self::code("ERROR_ZERO_BALANCE")
    }

    pub fn wrong_key() -> Self {
        Self::code("ERROR_KEY_DOES_NOT_EXIST")
    }
}

// === impl Planned ===

impl Planned {
    /// For the next call of this type, not processed.
    pub fn next(on: Call, fault: Fault) -> Self {
        Self { on, fault, accepted: false, times: 1, rate: None }
    }

    /// Processed before its reply fails.
    #[must_use]
    pub fn accepted(self) -> Self {
        Self { accepted: true, ..self }
    }

    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// For every call from now on, with this probability.
    #[must_use]
    pub fn at_rate(self, rate: f64) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Whether the request is processed. Some faults leave no choice.
    pub fn is_processed(&self) -> bool {
        match self.fault {
            Fault::Code(_)
            | Fault::Unreachable
            | Fault::TooManyRequests { .. }
            | Fault::SameTask => false,
            Fault::Trickle(_) | Fault::Unsolvable | Fault::NeverReady => true,
            Fault::Drop
            | Fault::Hang
            | Fault::Status(_)
            | Fault::Garbage
            | Fault::Truncated
            | Fault::Html
            | Fault::Empty
            | Fault::NoId
            | Fault::Huge => self.accepted,
        }
    }
}

// === impl FaultPlan ===

impl FaultPlan {
    /// An empty plan; `seed` is for rates planned later.
    pub fn new(seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { next: BTreeMap::new(), rates: Vec::new(), rng }
    }

    /// A random third of all faults, each at a random rate: runs without some faults find bugs that runs with all of them hide.
    pub fn swarm(seed: u64) -> Self {
        let mut plan = Self::new(seed);
        for (on, fault, accepted, most) in SWARM {
            plan.maybe(Planned { accepted, ..Planned::next(on, fault) }, most);
        }
        for code in SWARM_CODES {
            plan.maybe(Planned::next(Call::Submit, Fault::code(code)), 0.1);
        }
        plan
    }

    fn maybe(&mut self, planned: Planned, most: f64) {
        let rate = self.rng.f64() * most;
        if self.rng.u8(..3) == 0 {
            self.add(planned.at_rate(rate));
        }
    }

    pub fn add(&mut self, planned: Planned) {
        if planned.rate.is_some() {
            self.rates.push(planned);
        } else if planned.times > 0 {
            self.next.entry(planned.on).or_default().push_back(planned);
        }
    }

    pub fn clear(&mut self) {
        self.next.clear();
        self.rates.clear();
    }

    pub fn list(&self) -> Vec<Planned> {
        self.next.values().flatten().chain(&self.rates).cloned().collect()
    }

    /// The fault for this call, if any.
    pub fn draw(&mut self, on: Call) -> Option<Planned> {
        if let Some(planned) = self.draw_next(on) {
            return Some(planned);
        }
        let mut lot = self.rng.f64();
        // One draw for all rates, laid end to end, so that a call has at most one fault.
        self.rates.iter().filter(|planned| planned.on == on).find_map(|planned| {
            lot -= planned.rate.unwrap_or(0.0);
            (lot < 0.0).then(|| planned.clone())
        })
    }

    fn draw_next(&mut self, on: Call) -> Option<Planned> {
        let queue = self.next.get_mut(&on)?;
        let first = queue.front_mut()?;
        first.times -= 1;
        if first.times == 0 { queue.pop_front() } else { queue.front().cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shot_faults_strike_in_order_and_then_stop() {
        let mut plan = FaultPlan::new(1);
        plan.add(Planned::next(Call::Submit, Fault::Drop).times(2));
        plan.add(Planned::next(Call::Submit, Fault::Hang).accepted());
        plan.add(Planned::next(Call::Poll, Fault::Html));
        let mut drawn = || plan.draw(Call::Submit).map(|planned| planned.fault);
        assert_eq!(
            [drawn(), drawn(), drawn(), drawn()],
            [Some(Fault::Drop), Some(Fault::Drop), Some(Fault::Hang), None]
        );
        assert_eq!(plan.list().len(), 1);
        plan.clear();
        assert_eq!(plan.draw(Call::Poll), None);
    }

    #[test]
    fn a_rate_strikes_about_that_often() {
        let mut plan = FaultPlan::new(3);
        plan.add(Planned::next(Call::Poll, Fault::Drop).at_rate(0.2));
        plan.add(Planned::next(Call::Poll, Fault::Html).at_rate(0.1));
        let drawn: Vec<_> = (0..10_000).filter_map(|_| plan.draw(Call::Poll)).collect();
        let drops = drawn.iter().filter(|planned| planned.fault == Fault::Drop).count();
        assert!((1_850..2_150).contains(&drops), "{drops}");
        assert!((2_800..3_200).contains(&drawn.len()), "{}", drawn.len());
        assert_eq!(plan.draw(Call::Submit), None);
    }

    #[test]
    fn the_same_seed_makes_the_same_swarm_and_other_seeds_others() {
        assert_eq!(FaultPlan::swarm(5).list(), FaultPlan::swarm(5).list());
        let swarms: Vec<_> = (0..20).map(|seed| FaultPlan::swarm(seed).list()).collect();
        assert!(swarms.iter().any(|swarm| *swarm != swarms[0]));
        assert!(swarms.iter().flatten().all(|planned| planned.rate.is_some_and(|r| r < 0.31)));
    }

    #[test]
    fn the_documented_json_is_read() {
        for (text, fault) in [
            (r#"{"on":"submit","fault":"drop","accepted":true,"times":2}"#, Fault::Drop),
            (r#"{"on":"poll","fault":{"status":502},"rate":0.1}"#, Fault::Status(502)),
            (r#"{"on":"account","fault":{"code":"ERROR_X"}}"#, Fault::code("ERROR_X")),
            (r#"{"on":"submit","fault":{"trickle":3000}}"#, Fault::Trickle(3_000)),
            (
                r#"{"on":"submit","fault":{"too_many_requests":{"retry_after":3}}}"#,
                Fault::TooManyRequests { retry_after: Some(3) },
            ),
        ] {
            let planned: Planned = serde_json::from_str(text).unwrap();
            assert_eq!(planned.fault, fault, "{text}");
            let again: Planned =
                serde_json::from_str(&serde_json::to_string(&planned).unwrap()).unwrap();
            assert_eq!(again, planned);
        }
        assert!(serde_json::from_str::<Planned>(r#"{"on":"submit","falt":"drop"}"#).is_err());
    }
}
