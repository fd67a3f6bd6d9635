//! Tells the operator about trouble, by webhook, and about the same trouble only now and then.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    callback::{Notice, Told},
    claim::Allowance,
    id::WorkerName,
    money::Money,
    ports::{DeadLetterFilter, Parcel, Scope, Spent, StoreError},
    secret::Secret,
    time::Timestamp,
};

use crate::Inner;

/// Whom to tell, and about what.
#[derive(Clone, Debug)]
pub struct Alerts {
    /// Where to.
    pub url: Secret,
    /// More open dead letters than this are told.
    pub dead_letters: u64,
    /// The same trouble is told again after this.
    pub cooldown: Duration,
    /// Budgets to watch.
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

/// When what was told last.
type TellAgain = BTreeMap<(&'static str, Option<String>), Timestamp>;

/// Runs until the driver is done.
pub(crate) async fn run(inner: Arc<Inner>, alerts: Alerts) {
    let mut again = TellAgain::new();
    let mut look = 0;
    while inner.pause(LOOK_EVERY).await {
        let mut alarms = breakers(&inner);
        if look % READ_EVERY == 0 {
            match records(&inner, &alerts).await {
                Ok(found) => alarms.extend(found),
                Err(error) => tracing::warn!(%error, "alerts could not read the records"),
            }
        }
        look = (look + 1) % READ_EVERY;
        again.retain(|_, at| *at > inner.now());
        for alarm in alarms {
            tell(&inner, &alerts, &mut again, alarm).await;
        }
    }
}

async fn tell(inner: &Inner, alerts: &Alerts, again: &mut TellAgain, alarm: Alarm) {
    let key = (alarm.what, alarm.about.clone());
    if again.contains_key(&key) {
        return;
    }
    let now = inner.now();
    let Alarm { what, about, message, value, threshold } = alarm;
    let parcel = Parcel {
        id: format!("alert_{what}_{}", now.millis()),
        url: alerts.url.expose().to_owned(),
        notice: Notice {
            what: format!("alert.{what}"),
            timestamp: now,
            data: Told::Alert { about, message, value, threshold },
        },
    };
    let wait = match inner.ports.courier.tell(&parcel).await {
        Ok(()) => alerts.cooldown,
        Err(why) => {
            tracing::warn!(alert = what, %why, "an alert was not taken");
            AGAIN
        }
    };
    again.insert(key, now.plus(wait));
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
    for (worker, allowance) in &alerts.allowances {
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
    Ok(alarms)
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
