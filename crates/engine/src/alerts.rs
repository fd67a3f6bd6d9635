//! Tells the operator about trouble, by webhook, and about the same trouble only now and then.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    callback::{Notice, Told},
    claim::Allowance,
    id::WorkerName,
    money::Money,
    ports::{DeadLetterFilter, Parcel, PoolState, Scope, Spent, StoreError},
    secret::Secret,
    time::Timestamp,
};

use crate::{EngineConfig, Inner};

/// Whom to tell, and about what.
#[derive(Clone, Debug)]
pub struct Alerts {
    /// Where to.
    pub url: Secret,
    /// More open dead letters than this are told.
    pub dead_letters: u64,
    /// The same trouble is told again after this.
    pub cooldown: Duration,
    /// Budgets to watch, until [`Engine::set_allowances`](crate::Engine::set_allowances) names others.
    pub allowances: BTreeMap<WorkerName, Allowance>,
}

/// One trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alarm {
    what: &'static str,
    about: Option<String>,
    message: String,
    value: Option<u64>,
    threshold: Option<u64>,
}

/// How often is looked: account trouble is told within ten seconds.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Every so many looks the records are read too.
const READ_EVERY: u32 = 6;
/// A receiver that did not take an alarm is tried again after this.
const AGAIN: Duration = Duration::from_secs(30);
/// Parts of a budget that are told, in percent.
const PARTS: [u64; 2] = [100, 80];

/// Which trouble: its sort, and what it is about.
type Trouble = (&'static str, Option<String>);

/// Troubles that were seen and are not to be told anew yet.
type Troubles = BTreeMap<Trouble, Seen>;

/// A trouble since it was first seen. Until it is told it keeps its notice and with it its id, so that a receiver that
/// took it and could not say so recognises it.
struct Seen {
    untold: Option<Parcel>,
    next: Timestamp,
}

/// Runs until the driver is done.
pub(crate) async fn run(inner: Arc<Inner>, alerts: Alerts) {
    let mut troubles = Troubles::new();
    let mut look = 0;
    while inner.pause(LOOK_EVERY).await {
        let mut alarms = breakers(&inner);
        if look % READ_EVERY == 0 {
            match records(&inner, &alerts).await {
                Ok(found) => alarms.extend(found),
                Err(error) => tracing::warn!(%error, "failed to read records for alerts"),
            }
        }
        look = (look + 1) % READ_EVERY;
        let now = inner.now();
        troubles.retain(|_, seen| seen.untold.is_some() || seen.next > now);
        for alarm in alarms {
            let trouble = (alarm.what, alarm.about.clone());
            troubles.entry(trouble).or_insert_with(|| Seen::new(alarm, &alerts, now));
        }
        tell(&inner, &alerts, &mut troubles).await;
    }
}

/// The budgets to watch from the start on.
pub(crate) fn allowances(config: &EngineConfig) -> BTreeMap<WorkerName, Allowance> {
    config.alerts.as_ref().map(|alerts| alerts.allowances.clone()).unwrap_or_default()
}

async fn tell(inner: &Inner, alerts: &Alerts, troubles: &mut Troubles) {
    for ((what, _), seen) in troubles {
        let Some(parcel) = seen.untold.as_ref().filter(|_| seen.next <= inner.now()) else {
            continue;
        };
        match inner.ports.courier.tell(parcel).await {
            Ok(()) => *seen = Seen { untold: None, next: inner.now().plus(alerts.cooldown) },
            Err(why) => {
                tracing::warn!(alert = what, %why, "failed to deliver alert");
                seen.next = inner.now().plus(AGAIN);
                // It is one receiver for all: the next look goes on with the others.
                return;
            }
        }
    }
}

// === impl Seen ===

impl Seen {
    fn new(alarm: Alarm, alerts: &Alerts, now: Timestamp) -> Self {
        let id = alarm.message_id(now);
        let Alarm { what, about, message, value, threshold } = alarm;
        let notice = Notice {
            what: format!("alert.{what}"),
            timestamp: now,
            data: Told::Alert { about, message, value, threshold },
        };
        let url = alerts.url.expose().to_owned();
        Self { untold: Some(Parcel { id, url, notice }), next: now }
    }
}

// === impl Alarm ===

impl Alarm {
    /// Which trouble it is, and since when. What it is about goes into a header: other characters than those of names and
    /// codes are written as their numbers.
    fn message_id(&self, seen: Timestamp) -> String {
        let plain = |c: char| match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => c.to_string(),
            other => format!("%{:x};", u32::from(other)),
        };
        let about = self.about.iter().flat_map(|about| about.chars().map(plain));
        format!("alert_{}_{}_{}", self.what, about.collect::<String>(), seen.millis())
    }
}

fn breakers(inner: &Inner) -> Vec<Alarm> {
    let alarm = |what, breaker: &crate::breaker::Breaker| {
        let message = breaker.trouble()?;
        let about = breaker.code().map(|code| code.to_string());
        Some(Alarm { what, about, message, value: None, threshold: None })
    };
    let (account, provider) = (&inner.breakers.account, &inner.breakers.provider);
    alarm("account", account).into_iter().chain(alarm("provider", provider)).collect()
}

async fn records(inner: &Inner, alerts: &Alerts) -> Result<Vec<Alarm>, StoreError> {
    let mut alarms = Vec::new();
    alarms.extend(dead_letters(inner, alerts.dead_letters).await?);
    let spending = inner.ports.records.spending(inner.now().day()).await?;
    let allowances = inner.allowances.read().expect("no holder of this lock can panic").clone();
    for (worker, allowance) in &allowances {
        let spent = spending.workers.iter().find(|(name, _)| name == worker);
        alarms.extend(spent.and_then(|(_, spent)| budget(worker, allowance, *spent)));
    }
    let (used, most) = (u64::from(spending.authorised), u64::from(inner.config.ambiguity_budget));
    if used >= most && most > 0 {
        alarms.push(Alarm {
            what: "ambiguity_budget",
            about: None,
            message: format!(
                "all {most} second attempts of the day are used; lost replies are written off"
            ),
            value: Some(used),
            threshold: Some(most),
        });
    }
    let pools = inner.ports.records.pools(inner.now()).await?;
    alarms.extend(pools.iter().filter_map(starving));
    Ok(alarms)
}

/// A pool that should have tokens, has none, and lets claims wait.
fn starving(state: &PoolState) -> Option<Alarm> {
    let target = u64::from(state.pool.target.level);
    if target == 0 || !state.stock.is_empty() || state.waiting == 0 {
        return None;
    }
    let (id, waiting, coming) = (state.pool.id(), state.waiting, state.coming);
    Some(Alarm {
        what: "pool_starving",
        about: Some(id.to_string()),
        message: format!(
            "pool {id} is empty while {waiting} claims wait; it aims at {target}, {coming} are coming"
        ),
        value: Some(0),
        threshold: Some(target),
    })
}

async fn dead_letters(inner: &Inner, most: u64) -> Result<Option<Alarm>, StoreError> {
    let limit = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
    let open = DeadLetterFilter::open(Scope::All, limit);
    let found = inner.ports.records.dead_letters(open).await?.items;
    if found.len() < limit {
        return Ok(None);
    }
    let code = found.first().map(|letter| letter.code.to_string()).unwrap_or_default();
    Ok(Some(Alarm {
        what: "dead_letters",
        about: None,
        message: format!("more than {most} dead letters are open, the latest with {code}"),
        value: Some(u64::try_from(found.len()).unwrap_or(u64::MAX)),
        threshold: Some(most),
    }))
}

/// The largest part of a worker's budget that is used up.
fn budget(worker: &WorkerName, allowance: &Allowance, spent: Spent) -> Option<Alarm> {
    let solves = allowance.solves_per_day.map(|most| percent(spent.opened, most));
    let micros = |money: Money| u64::try_from(money.micros()).unwrap_or(0);
    let cost = allowance.cost_per_day.map(|most| percent(micros(spent.listed), micros(most)));
    let used = solves.max(cost)?;
    let part = PARTS.into_iter().find(|part| used >= *part)?;
    Some(Alarm {
        what: if part == 100 { "budget_used" } else { "budget_nearly_used" },
        about: Some(worker.to_string()),
        message: format!("worker {worker} has used {used} % of its budget of the day"),
        value: Some(used),
        threshold: Some(part),
    })
}

fn percent(used: u64, most: u64) -> u64 {
    used.saturating_mul(100).checked_div(most).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(about: Option<&str>) -> Alarm {
        let about = about.map(ToOwned::to_owned);
        Alarm { what: "account", about, message: String::new(), value: None, threshold: None }
    }

    #[test]
    fn troubles_of_one_sort_and_moment_have_ids_of_their_own_that_fit_into_a_header() {
        let at = Timestamp::from_millis(7);
        let id = |about| alarm(about).message_id(at);
        assert_eq!(id(None), "alert_account__7");
        assert_eq!(id(Some("ERROR_ZERO_BALANCE")), "alert_account_ERROR_ZERO_BALANCE_7");
        assert_eq!(id(Some("HTTP 429: é")), "alert_account_HTTP%20;429%3a;%20;%e9;_7");
    }

    #[test]
    fn a_budget_is_told_at_eighty_and_at_a_hundred_percent() {
        let worker = WorkerName::new("ann").unwrap();
        let allowance = Allowance { solves_per_day: Some(10), cost_per_day: None };
        let told = |opened| {
            budget(&worker, &allowance, Spent { opened, ..Spent::default() })
                .map(|alarm| (alarm.what, alarm.value.unwrap()))
        };
        assert_eq!(told(7), None);
        assert_eq!(told(8), Some(("budget_nearly_used", 80)));
        assert_eq!(told(10), Some(("budget_used", 100)));
        let none = Allowance::default();
        assert_eq!(budget(&worker, &none, Spent::default()), None);
    }
}
