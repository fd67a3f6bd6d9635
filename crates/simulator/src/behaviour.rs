//! The logic of the simulated provider: seeded, without a clock and without I/O. `server` serves it over HTTP, `provider` in
//! process.

mod saved;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use domain::{
    challenge::{BadChallenge, Challenge},
    id::{Nonce, TaskId},
    money::Money,
    ports::{Feedback, Threads},
    retry::Code,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{
    answers::{self, MadeUpAnswer},
    bans::Bans,
    config::BehaviourConfig,
    ledger::{Accepted, Ledger, Report, hex},
    pace::LONGEST,
};

#[derive(Clone, Debug)]
pub struct Behaviour {
    pub(crate) config: BehaviourConfig,
    rng: fastrand::Rng,
    tasks: BTreeMap<u64, TaskRecord>,
    /// When each busy thread becomes free.
    at_work: BTreeSet<(Timestamp, u64)>,
    /// Finished tasks, oldest first, for cleanup.
    over: VecDeque<(Timestamp, u64)>,
    last: u64,
    balance: Money,
    bans: Bans,
    /// The tasks that changed since they were last saved; `None` if none are saved.
    changed: Option<BTreeSet<u64>>,
    pub(crate) ledger: Ledger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Solved, unless its sitekey asks for another fate.
    Solved,
    Unsolvable,
    NeverReady,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitEffect {
    /// A task exists and is charged.
    Accepted(Accepted),
    Refused(Code),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollEffect {
    NotReady,
    /// The answer and its cost.
    Solved(MadeUpAnswer, Money),
    Refused(Code),
}

/// A task, as it is kept in memory and in the tasks file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    id: TaskId,
    number: u64,
    at: Timestamp,
    done_at: Timestamp,
    fate: Fate,
    answer: MadeUpAnswer,
    cost: Money,
    is_refunded: bool,
    is_reported: bool,
}

/// The number of threads reported when there is no limit.
const MANY_THREADS: u32 = 1000;
/// How long after the submission reports are accepted.
const REPORT_WINDOW: Duration = Duration::from_secs(15 * 60);
/// How much longer a `slow-` sitekey takes.
const SLOW: Duration = Duration::from_secs(60);
/// Task ids have at least ten digits, even if virtual time starts at zero.
const FIRST_TASK: u64 = 2_000_000_000;

// === impl Behaviour ===

impl Behaviour {
    pub fn new(config: BehaviourConfig) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(config.seed),
            tasks: BTreeMap::new(),
            at_work: BTreeSet::new(),
            over: VecDeque::new(),
            last: FIRST_TASK,
            balance: config.balance,
            bans: Bans::default(),
            changed: None,
            ledger: Ledger::default(),
            config,
        }
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn check_key(&mut self, key: Option<&str>, now: Timestamp) -> Result<(), Code> {
        let known = |key: &str| self.config.key.as_ref().is_none_or(|own| own.expose() == key);
        let code = match key {
            Some(key) if key.chars().count() == 32 && known(key) => return Ok(()),
            Some(key) if key.chars().count() == 32 => "ERROR_KEY_DOES_NOT_EXIST",
            Some(_) | None => "ERROR_WRONG_USER_KEY",
        };
        self.bans.wrong_key(now);
        Err(code.into())
    }

    pub fn submit(
        &mut self,
        challenge: &Challenge,
        nonce: Option<Nonce>,
        fate: Fate,
        now: Timestamp,
    ) -> SubmitEffect {
        self.ledger.received_submits += 1;
        let cost = self.config.price(challenge);
        match self.refusal(cost, now) {
            Some(code) => self.refuse(code, now),
            None => SubmitEffect::Accepted(self.accept(challenge, nonce, fate, now)),
        }
    }

    /// Counts a submission and refuses it without processing.
    pub fn refuse_unseen(&mut self, code: Code, now: Timestamp) -> SubmitEffect {
        self.ledger.received_submits += 1;
        self.refuse(code, now)
    }

    fn refuse(&mut self, code: Code, now: Timestamp) -> SubmitEffect {
        *self.ledger.refused.entry(code.clone()).or_default() += 1;
        self.bans.refused(code.as_str(), now);
        SubmitEffect::Refused(code)
    }

    fn refusal(&mut self, cost: Money, now: Timestamp) -> Option<Code> {
        let banned = if self.config.bans { self.bans.submit(now) } else { None };
        if banned.is_some() {
            return banned;
        }
        let threads = self.threads(now);
        if self.config.threads.is_some() && threads.working >= threads.total {
            let full = if self.config.captchaai {
                "ERROR_ZERO_BALANCE"
            } else {
                "ERROR_NO_SLOT_AVAILABLE"
            };
            return Some(full.into());
        }
        (self.balance < cost).then(|| "ERROR_ZERO_BALANCE".into())
    }

    fn accept(
        &mut self,
        challenge: &Challenge,
        nonce: Option<Nonce>,
        fate: Fate,
        now: Timestamp,
    ) -> Accepted {
        self.forget(now);
        // Ids are derived from the time, so that they stay unique after a restart.
        self.last = now.millis().max(self.last + 1);
        let id = TaskId::new(self.last.to_string()).expect("digits make a task id");
        let kind = challenge.kind();
        let (fate, extra) = read_sitekey(challenge.sitekey().unwrap_or_default(), fate);
        let length = self.config.solve_time(kind).draw(&mut self.rng) + extra;
        let answer = answers::answer(challenge, &id, self.config.captchaai, &mut self.rng);
        let done_at = now.plus(if fate == Fate::NeverReady { LONGEST } else { length });
        let cost = self.config.price(challenge);
        let accepted = Accepted {
            task: id.clone(),
            nonce,
            kind: kind.clone(),
            sitekey: challenge.sitekey().map(str::to_owned),
            fingerprint: hex(challenge),
            at: now,
            ready_at: (fate == Fate::Solved).then_some(done_at),
            cost,
        };
        let task = TaskRecord {
            id,
            number: self.last,
            at: now,
            done_at,
            fate,
            answer,
            cost,
            is_refunded: false,
            is_reported: false,
        };
        self.tasks.insert(self.last, task);
        self.has_changed(self.last);
        self.at_work.insert((done_at, self.last));
        self.balance = self.balance + negative(cost);
        self.bans.accepted += 1;
        self.ledger.charged = self.ledger.charged + cost;
        self.ledger.accepted.push(accepted.clone());
        accepted
    }

    /// Removes expired results. Lookups check the time themselves.
    fn forget(&mut self, now: Timestamp) {
        let keep = self.config.retention.max(REPORT_WINDOW);
        while let Some((_, id)) = self.over.pop_front_if(|(done_at, _)| now.since(*done_at) > keep)
        {
            if self.tasks.get(&id).is_some_and(|task| task.fate != Fate::NeverReady) {
                self.tasks.remove(&id);
            }
        }
    }

    /// Counts a request to res.php; returns the code of a ban.
    pub fn fetch(&mut self, now: Timestamp) -> Option<Code> {
        if self.config.bans { self.bans.fetch(now) } else { None }
    }

    pub fn poll(&mut self, id: &str, now: Timestamp) -> PollEffect {
        self.ledger.polls += 1;
        let effect = self.outcome(id, now);
        if let (PollEffect::Solved(..), Ok(task)) = (&effect, find(&mut self.tasks, id)) {
            *self.ledger.answered.entry(task.id.clone()).or_default() += 1;
        }
        effect
    }

    /// When the task ends; `None` if it is never answered.
    pub(crate) fn over_at(&mut self, id: &str) -> Option<Timestamp> {
        let task = find(&mut self.tasks, id).ok()?;
        (task.fate != Fate::NeverReady).then_some(task.done_at)
    }

    /// The result of a task, without counting a poll.
    pub(crate) fn outcome(&mut self, id: &str, now: Timestamp) -> PollEffect {
        let retention = self.config.retention;
        let task = match find(&mut self.tasks, id) {
            Ok(task) => task,
            Err(code) => return PollEffect::Refused(code.into()),
        };
        if task.fate == Fate::NeverReady || now < task.done_at {
            return PollEffect::NotReady;
        }
        if now > task.done_at.plus(retention) {
            return PollEffect::Refused("ERROR_WRONG_CAPTCHA_ID".into());
        }
        if task.fate == Fate::Solved {
            return PollEffect::Solved(task.answer.clone(), task.cost);
        }
        if !std::mem::replace(&mut task.is_refunded, true) {
            let (number, cost) = (task.number, task.cost);
            self.balance = self.balance + cost;
            self.ledger.refunded = self.ledger.refunded + cost;
            self.ledger.charged = self.ledger.charged + negative(cost);
            self.has_changed(number);
        }
        PollEffect::Refused("ERROR_CAPTCHA_UNSOLVABLE".into())
    }

    /// Makes an unfinished task unsolvable from now on.
    pub fn give_up(&mut self, id: &str, now: Timestamp) {
        let Ok(task) = find(&mut self.tasks, id) else { return };
        if now >= task.done_at {
            return;
        }
        let (number, planned) = (task.number, task.done_at);
        (task.fate, task.done_at) = (Fate::Unsolvable, now);
        if let Some(accepted) = self.ledger.accepted.iter_mut().rfind(|a| a.task == task.id) {
            accepted.ready_at = None;
        }
        self.at_work.remove(&(planned, number));
        self.at_work.insert((now, number));
        self.has_changed(number);
    }

    pub fn report(&mut self, id: &str, feedback: Feedback, now: Timestamp) -> Result<(), Code> {
        let task = find(&mut self.tasks, id).map_err(Code::from)?;
        if now < task.done_at || now > task.at.plus(REPORT_WINDOW) {
            return Err("ERROR_REPORT_NOT_RECORDED".into());
        }
        if std::mem::replace(&mut task.is_reported, true) {
            return Err("ERROR_DUPLICATE_REPORT".into());
        }
        let (good, number) = (feedback == Feedback::Good, task.number);
        self.ledger.reports.push(Report { task: task.id.clone(), good, at: now });
        self.has_changed(number);
        Ok(())
    }

    pub fn balance(&self) -> Money {
        self.balance
    }

    pub fn set_balance(&mut self, balance: Money) {
        self.balance = balance;
    }

    /// Changes what tasks cost from now on. The names are those of kinds, and of kinds with `_enterprise`.
    pub fn set_prices(&mut self, prices: BTreeMap<String, Money>) -> Result<(), BadChallenge> {
        let (mut kinds, mut enterprise) = (Vec::new(), Vec::new());
        for (name, price) in prices {
            match name.strip_suffix("_enterprise") {
                Some(kind) => enterprise.push((kind.parse()?, price)),
                None => kinds.push((name.parse()?, price)),
            }
        }
        self.config.prices.extend(kinds);
        self.config.enterprise_prices.extend(enterprise);
        Ok(())
    }

    /// Changes the number of threads. Running tasks continue.
    pub fn set_threads(&mut self, threads: Option<u32>) {
        self.config.threads = threads;
    }

    pub fn threads(&mut self, now: Timestamp) -> Threads {
        while self.at_work.first().is_some_and(|(done_at, _)| *done_at <= now) {
            self.over.extend(self.at_work.pop_first());
        }
        let working = u32::try_from(self.at_work.len()).unwrap_or(u32::MAX);
        Threads { total: self.config.threads.unwrap_or(MANY_THREADS), working }
    }

    /// The reply to `threadsinfo`, which only CaptchaAI has.
    pub fn threads_info(&mut self, now: Timestamp) -> Result<Threads, Code> {
        if self.config.captchaai { Ok(self.threads(now)) } else { Err("ERROR_EMPTY_ACTION".into()) }
    }
}

fn negative(amount: Money) -> Money {
    Money::from_micros(-amount.micros())
}

/// The fate and delay that a special sitekey asks for.
fn read_sitekey(sitekey: &str, fate: Fate) -> (Fate, Duration) {
    let slow = if sitekey.starts_with("slow-") { SLOW } else { Duration::ZERO };
    let fate = match fate {
        Fate::Solved if sitekey.starts_with("unsolvable-") => Fate::Unsolvable,
        Fate::Solved if sitekey.starts_with("never-ready-") => Fate::NeverReady,
        Fate::Solved | Fate::Unsolvable | Fate::NeverReady => fate,
    };
    (fate, slow)
}

fn find<'a>(
    tasks: &'a mut BTreeMap<u64, TaskRecord>,
    id: &str,
) -> Result<&'a mut TaskRecord, &'static str> {
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
        return Err("ERROR_WRONG_ID_FORMAT");
    }
    let found = id.parse().ok().and_then(|number: u64| tasks.get_mut(&number));
    found.ok_or("ERROR_WRONG_CAPTCHA_ID")
}

#[cfg(test)]
mod tests;
