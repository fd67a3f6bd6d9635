//! Reports trouble to the operator by webhook; the same trouble again only after a cooldown.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    budget::{BudgetScope, Budgets, LimitState},
    callback::{Notice, NoticeData},
    dead_letter::DeadLetterClass,
    pool::PoolId,
    ports::{DaySpending, DeadLetterFilter, PoolState, Scope, StoreError, Webhook},
    secret::Secret,
    time::Timestamp,
};

use crate::{Shared, scheduler::circuit_breaker::Breaker};

/// Where alerts go, and what they watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alerts {
    pub url: Secret,
    /// More open dead letters of class `failed` than this are an alert.
    pub dead_letters: u64,
    /// The same alert is repeated after this.
    pub cooldown: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Alarm {
    what: &'static str,
    about: Option<String>,
    /// The limit of a budget. A budget may near two limits at different times.
    limit: Option<&'static str>,
    message: String,
    value: Option<u64>,
    threshold: Option<u64>,
}

/// Short enough that account trouble is reported within ten seconds.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Every sixth check also reads the records.
const READ_EVERY: u32 = 6;
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// The used parts of a budget that are an alert, in percent.
const BUDGET_PARTS: [u64; 2] = [100, 80];

/// By the name, the subject and the limit of the alarm.
type OpenAlerts = BTreeMap<(&'static str, Option<String>, Option<&'static str>), OpenAlert>;

/// An alert that is not delivered yet, or is cooling down. Until it is delivered it keeps its notice and with it its id, so
/// that a receiver recognises a repetition.
struct OpenAlert {
    undelivered: Option<Webhook>,
    next: Timestamp,
}

pub(crate) async fn run(shared: Arc<Shared>, alerts: Alerts) {
    let mut open = OpenAlerts::new();
    let mut check = 0;
    while shared.pause(CHECK_EVERY).await {
        let mut alarms = breakers(&shared);
        if check % READ_EVERY == 0 {
            match records(&shared, &alerts).await {
                Ok(found) => alarms.extend(found),
                Err(error) => tracing::warn!(%error, "failed to read records for alerts"),
            }
        }
        check = (check + 1) % READ_EVERY;
        let now = shared.now();
        open.retain(|_, alert| alert.undelivered.is_some() || alert.next > now);
        for alarm in alarms {
            let key = (alarm.what, alarm.about.clone(), alarm.limit);
            open.entry(key).or_insert_with(|| OpenAlert::new(alarm, &alerts, now));
        }
        deliver(&shared, &alerts, &mut open).await;
    }
}

async fn deliver(shared: &Shared, alerts: &Alerts, open: &mut OpenAlerts) {
    for ((what, ..), alert) in open {
        let Some(webhook) = alert.undelivered.as_ref().filter(|_| alert.next <= shared.now())
        else {
            continue;
        };
        match shared.ports.webhooks.send(webhook).await {
            Ok(()) => {
                *alert = OpenAlert { undelivered: None, next: shared.now().plus(alerts.cooldown) }
            }
            Err(why) => {
                tracing::warn!(alert = what, %why, "failed to deliver alert, retrying");
                alert.next = shared.now().plus(RETRY_AFTER);
                // All alerts have the same receiver, so the others wait for the next check.
                return;
            }
        }
    }
}

// === impl OpenAlert ===

impl OpenAlert {
    fn new(alarm: Alarm, alerts: &Alerts, now: Timestamp) -> Self {
        let id = alarm.message_id(now);
        let Alarm { what, about, message, value, threshold, limit: _ } = alarm;
        let notice = Notice {
            what: format!("alert.{what}"),
            timestamp: now,
            data: NoticeData::Alert { about, message, value, threshold },
        };
        let url = alerts.url.expose().to_owned();
        Self { undelivered: Some(Webhook { worker: None, id, url, notice }), next: now }
    }
}

// === impl Alarm ===

impl Alarm {
    /// The alarm's name, subject, limit and time. It goes into a header, so characters other than those of names and codes are
    /// escaped.
    fn message_id(&self, seen: Timestamp) -> String {
        let plain = |c: char| match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => c.to_string(),
            other => format!("%{:x};", u32::from(other)),
        };
        let about = self.about.iter().flat_map(|about| about.chars().map(plain));
        let limit = self.limit.map(|limit| format!("_{limit}")).unwrap_or_default();
        format!("alert_{}_{}{limit}_{}", self.what, about.collect::<String>(), seen.millis())
    }
}

fn breakers(shared: &Shared) -> Vec<Alarm> {
    let alarm = |what, breaker: &Breaker| {
        let message = breaker.trouble()?;
        let about = breaker.code().map(|code| code.to_string());
        Some(Alarm { what, about, limit: None, message, value: None, threshold: None })
    };
    let breakers = &shared.scheduler.breakers;
    let watched = [
        ("account", &breakers.account),
        ("provider", &breakers.provider),
        ("polling", &breakers.polling),
    ];
    watched.into_iter().filter_map(|(what, breaker)| alarm(what, breaker)).collect()
}

async fn records(shared: &Shared, alerts: &Alerts) -> Result<Vec<Alarm>, StoreError> {
    let mut alarms = Vec::new();
    alarms.extend(dead_letters(shared, alerts.dead_letters).await?);
    let spending = shared.ports.records.spending(shared.now().day()).await?;
    alarms.extend(budgets(&shared.budgets(), &spending));
    let (used, most) = (u64::from(spending.authorised), u64::from(shared.config.ambiguity_budget));
    if used >= most && most > 0 {
        alarms.push(Alarm {
            what: "ambiguity_budget",
            about: None,
            limit: None,
            message: format!(
                "all {most} second attempts of the day are used; lost replies are written off"
            ),
            value: Some(used),
            threshold: Some(most),
        });
    }
    let pools = shared.ports.records.pools(shared.now()).await?;
    alarms.extend(pools.iter().filter_map(starving));
    Ok(alarms)
}

/// A pool without tokens for which claims wait.
fn starving(state: &PoolState) -> Option<Alarm> {
    let target = u64::from(state.pool.target.level);
    if target == 0 || !state.stock.is_empty() || state.waiting == 0 {
        return None;
    }
    let (id, waiting, coming) = (state.pool.id(), state.waiting, state.coming);
    Some(Alarm {
        what: "pool_starving",
        about: Some(id.to_string()),
        limit: None,
        message: format!(
            "pool {id} is empty while {waiting} claims wait; it aims at {target}, {coming} are coming"
        ),
        value: Some(0),
        threshold: Some(target),
    })
}

async fn dead_letters(shared: &Shared, most: u64) -> Result<Option<Alarm>, StoreError> {
    let limit = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
    // Nothing is wrong with solves whose claims lapsed unpaid, and what held them up has an alert of its own.
    let class = Some(DeadLetterClass::Failed);
    let open = DeadLetterFilter { class, ..DeadLetterFilter::open(Scope::All, limit) };
    let found = shared.ports.records.dead_letters(open).await?.items;
    if found.len() < limit {
        return Ok(None);
    }
    let code = found.first().map(|letter| letter.code.to_string()).unwrap_or_default();
    Ok(Some(Alarm {
        what: "dead_letters",
        about: None,
        limit: None,
        message: format!("more than {most} dead letters are open, the latest with {code}"),
        value: Some(u64::try_from(found.len()).unwrap_or(u64::MAX)),
        threshold: Some(most),
    }))
}

/// The limits of budgets that are nearly used.
fn budgets(budgets: &Budgets, spending: &DaySpending) -> Vec<Alarm> {
    let workers = budgets.workers.iter().map(|(name, of)| (BudgetScope::Worker(name.clone()), of));
    let pools = budgets.pools.iter().map(|(pool, of)| (BudgetScope::Pool(PoolId::of(pool)), of));
    let all = workers.chain(pools).chain([(BudgetScope::Account, &budgets.account)]);
    all.flat_map(|(scope, allowance)| {
        let states = spending.states(&scope, allowance);
        states.into_iter().filter_map(move |state| limit_alarm(&scope, &state))
    })
    .collect()
}

/// The alarm of a limit of which much is used.
fn limit_alarm(scope: &BudgetScope, state: &LimitState) -> Option<Alarm> {
    let (limit, used) = (state.limit, percent(state.used, state.most));
    let part = BUDGET_PARTS.into_iter().find(|part| used >= *part)?;
    let about = match scope {
        BudgetScope::Account => "account".to_owned(),
        BudgetScope::Worker(name) => name.to_string(),
        BudgetScope::Pool(id) => id.to_string(),
    };
    Some(Alarm {
        what: if part == 100 { "budget_used" } else { "budget_nearly_used" },
        about: Some(about),
        limit: Some(limit),
        message: format!(
            "{scope} has used {used} % of its budget `{limit}`, which begins again at {}",
            state.resets_at
        ),
        value: Some(used),
        threshold: Some(part),
    })
}

fn percent(used: u64, most: u64) -> u64 {
    used.saturating_mul(100).checked_div(most).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use domain::{
        budget::{Allowance, BudgetBook},
        fingerprint::Fingerprint,
        id::WorkerName,
        time::Day,
    };

    use super::*;

    fn alarm(about: Option<&str>) -> Alarm {
        let about = about.map(ToOwned::to_owned);
        let message = String::new();
        Alarm { what: "account", about, limit: None, message, value: None, threshold: None }
    }

    #[test]
    fn alerts_of_one_moment_have_different_ids_that_fit_into_a_header() {
        let at = Timestamp::from_millis(7);
        let id = |about| alarm(about).message_id(at);
        assert_eq!(id(None), "alert_account__7");
        assert_eq!(id(Some("ERROR_ZERO_BALANCE")), "alert_account_ERROR_ZERO_BALANCE_7");
        assert_eq!(id(Some("HTTP 429: é")), "alert_account_HTTP%20;429%3a;%20;%e9;_7");
    }

    #[test]
    fn a_budget_is_reported_at_eighty_and_at_a_hundred_percent() {
        let worker = BudgetScope::Worker(WorkerName::new("ann").unwrap());
        let allowance = Allowance { solves_per_day: Some(10), ..Allowance::default() };
        let today = Day::default();
        let states = |opened, allowance: &Allowance| {
            let mut book = BudgetBook::default();
            (0..opened).for_each(|_| book.book(today, |sums| sums.reserve(None)));
            let books = [(worker.clone(), book)].into();
            DaySpending { books, ..DaySpending::default() }.states(&worker, allowance)
        };
        let reported = |opened, allowance: &Allowance| {
            let states = states(opened, allowance);
            let alarms = states.iter().filter_map(|state| limit_alarm(&worker, state));
            alarms.map(|alarm| (alarm.what, alarm.value.unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(reported(7, &allowance), []);
        assert_eq!(reported(8, &allowance), [("budget_nearly_used", 80)]);
        assert_eq!(reported(10, &allowance), [("budget_used", 100)]);
        // A limit that is used up does not hide another one that is nearly.
        let both = Allowance { solves_per_month: Some(8), ..allowance };
        assert_eq!(reported(8, &both), [("budget_nearly_used", 80), ("budget_used", 100)]);
        assert_eq!(reported(10, &Allowance::default()), []);
    }

    #[test]
    fn two_limits_of_a_budget_that_are_neared_together_are_two_alerts() {
        let allowance = Allowance {
            solves_per_day: Some(100),
            solves_per_month: Some(95),
            ..Allowance::default()
        };
        let (mut book, today) = (BudgetBook::default(), Day::default());
        (0..82).for_each(|_| book.book(today, |sums| sums.reserve(None)));
        let spending =
            DaySpending { books: [(BudgetScope::Account, book)].into(), ..DaySpending::default() };
        let all = Budgets { account: allowance, ..Budgets::default() };
        let alarms = budgets(&all, &spending);
        let ids: Vec<_> =
            alarms.iter().map(|alarm| alarm.message_id(Timestamp::from_millis(7))).collect();
        let [day, month] = ["day", "month"]
            .map(|period| format!("alert_budget_nearly_used_account_solves_per_{period}_7"));
        assert_eq!(ids, [day, month]);
    }

    #[test]
    fn pools_and_the_account_are_watched_as_workers_are() {
        let (fingerprint, today) = (Fingerprint::from_bytes([7; 32]), Day::default());
        let allowance = Allowance { solves_per_month: Some(1), ..Allowance::default() };
        let all = Budgets {
            account: allowance,
            pools: [(fingerprint, allowance)].into(),
            ..Budgets::default()
        };
        let mut book = BudgetBook::default();
        book.book(today, |sums| sums.reserve(None));
        let pool = BudgetScope::Pool(PoolId::of(&fingerprint));
        let books = [(pool, book.clone()), (BudgetScope::Account, book)].into();
        let alarms = budgets(&all, &DaySpending { books, ..DaySpending::default() });
        let about: Vec<_> = alarms.into_iter().filter_map(|alarm| alarm.about).collect();
        assert_eq!(about, ["070707070707", "account"]);
    }
}
