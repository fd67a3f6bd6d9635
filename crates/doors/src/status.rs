//! The status page: rendered on the server, escaped, without scripts and secrets.

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use domain::{
    dead_letter::DeadLetterClass,
    ledger::{Counts, Outcomes},
    money::{Currency, Money},
    ports::{DeadLetterFilter, Scope, StoreResult, TotalsFilter},
};
use engine::Health;
use maud::{DOCTYPE, Markup, html};

use crate::{
    Doors,
    caller::{Caller, Role},
    error::Refusal,
};

const STYLE: &str = include_str!("status/style.css");

/// `GET /`. The page needs no key, so without one it reads nothing from the store: it shows only whether claims are accepted,
/// and how to see more.
pub(crate) async fn page(State(doors): State<Doors>, caller: Result<Caller, Refusal>) -> Response {
    let health = doors.engine().health();
    let page = match caller {
        Ok(caller) => {
            let is_admin = matches!(caller.role, Role::Admin(_));
            let reading = Reading::of(&doors, caller.scope()).await;
            let currency = doors.config().currency;
            render(&details(&health, (reading.as_ref().ok(), currency), is_admin))
        }
        Err(_) => render(&hint(&health)),
    };
    let html = [(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))];
    (html, page.into_string()).into_response()
}

/// `GET /style.css`.
pub(crate) async fn style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600")),
    ];
    (headers, STYLE).into_response()
}

/// What the page reads from the store. The engine notices a second later that a store is away, so a reading that fails is
/// what the page reports.
#[derive(Debug, Default)]
struct Reading {
    today: Counts,
    /// Open dead letters of what failed, and of what lapsed unpaid.
    failed: usize,
    lapsed: usize,
}

/// Open dead letters beyond this are "more".
const MOST_COUNTED: usize = 100;

impl Reading {
    async fn of(doors: &Doors, scope: Scope) -> StoreResult<Self> {
        let day = doors.now().day();
        let ask = TotalsFilter { scope: scope.clone(), from: day, to: day };
        let mut today = Counts::default();
        for total in &doors.engine().records().totals(ask).await? {
            today.add(&total.counts);
        }
        let failed = open_dead_letters(doors, &scope, DeadLetterClass::Failed).await?;
        let lapsed = open_dead_letters(doors, &scope, DeadLetterClass::Lapsed).await?;
        Ok(Self { today, failed, lapsed })
    }
}

async fn open_dead_letters(
    doors: &Doors,
    scope: &Scope,
    class: DeadLetterClass,
) -> StoreResult<usize> {
    let open = DeadLetterFilter::open(scope.clone(), MOST_COUNTED + 1);
    let filter = DeadLetterFilter { class: Some(class), ..open };
    Ok(doors.engine().records().dead_letters(filter).await?.items.len())
}

fn count(number: usize) -> String {
    if number > MOST_COUNTED { format!("more than {MOST_COUNTED}") } else { number.to_string() }
}

fn render(content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "solvegate" }
                link rel="stylesheet" href="/style.css";
            }
            body { main { (content) } }
        }
    }
}

/// For callers without a key.
fn hint(health: &Health) -> Markup {
    html! {
        h1 { "solvegate" }
        (condition(health, &[], "Accepting claims."))
        p {
            "Today's sums need a key: "
            code { "curl -H \"Authorization: Bearer $KEY\" …/v1/stats" }
        }
    }
}

/// For callers with a key. Details of what is wrong may name servers, so they are for admins.
fn details(
    health: &Health,
    (reading, currency): (Option<&Reading>, Option<Currency>),
    is_admin: bool,
) -> Markup {
    let is_away = reading.is_none() && !health.failing.contains(&"store");
    let has_failed = reading.is_some_and(|reading| reading.failed > 0);
    let health = &Health { ready: health.ready && reading.is_some(), ..health.clone() };
    let more: Vec<_> = [is_away.then_some("store"), has_failed.then_some("dead letters")]
        .into_iter()
        .flatten()
        .collect();
    html! {
        h1 { "solvegate " small { (env!("CARGO_PKG_VERSION")) } }
        (condition(health, &more, "Healthy."))
        @if let Some(reading) = reading { (dead_letters(reading)) }
        @if is_admin {
            ul { @for trouble in &health.troubles { li { (trouble) } } }
            h2 { "Now" }
            dl {
                dt { "In flight" } dd { (health.in_flight) }
                dt { "Queued" } dd { (health.queued) }
            }
        }
        h2 { "Today (UTC)" }
        @match reading {
            Some(reading) => (sums(&reading.today, currency)),
            None => p { "The store is unavailable, so there are no sums right now." },
        }
    }
}

/// The line that says how the gateway is. `more` is in trouble besides what the engine knows; without any trouble, the line
/// is `good`.
fn condition(health: &Health, more: &[&str], good: &str) -> Markup {
    let failing = [health.failing.as_slice(), more].concat().join(", ");
    html! {
        @if health.ready && health.troubles.is_empty() && more.is_empty() {
            p.well role="status" { (good) }
        } @else {
            p.trouble role="status" {
                @if health.ready { "Degraded, but accepting claims: " } @else { "Not accepting claims: " }
                (failing)
            }
        }
    }
}

/// What lapsed unpaid is a fact and no trouble: it can be revived when what held it up is over.
fn dead_letters(reading: &Reading) -> Markup {
    html! {
        @if reading.failed > 0 {
            p {
                "Dead letters of what failed: " (count(reading.failed)) " open, see "
                code { "solvegate dead-letters list --class failed" }
            }
        }
        @if reading.lapsed > 0 {
            p {
                "Dead letters of what lapsed before anything was paid for it: " (count(reading.lapsed)) " open, see "
                code { "solvegate dead-letters list --class lapsed" }
            }
        }
    }
}

fn sums(counts: &Counts, currency: Option<Currency>) -> Markup {
    let Outcomes { claims, served, failed, lapsed, withdrawn, waiting } = counts.outcomes();
    html! {
        dl {
            dt { "Claims" } dd { (claims) }
            dt { "Served" } dd { (served) }
            dt { "Failed" } dd { (failed) }
            dt { "Lapsed" } dd { (lapsed) }
            dt { "Withdrawn" } dd { (withdrawn) }
            dt { "Waiting" } dd { (waiting) }
            dt { "Attempts" } dd { (counts.attempts) }
            dt { "Paid" }
            dd {
                (amount(counts.cost_if_known(), currency))
                @if counts.unknown_costs() > 0 {
                    ", without " (counts.unknown_costs()) " of " (counts.costed())
                    " attempts of unknown cost"
                }
            }
            dt { "Served without paying" } dd { (counts.savings()) }
            dt { "Saved" }
            dd {
                (amount(counts.saved_if_known(), currency))
                @if counts.unknown_savings() > 0 {
                    ", without " (counts.unknown_savings()) " of unknown worth"
                }
            }
        }
    }
}

/// An amount with its currency. Unknown is a dash, never zero.
fn amount(amount: Option<Money>, currency: Option<Currency>) -> String {
    let Some(amount) = amount else { return "\u{2013}".to_owned() };
    currency.map_or_else(|| amount.to_string(), |currency| format!("{amount} {currency}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(troubles: Vec<String>) -> Health {
        Health { ready: true, troubles, failing: vec!["store"], in_flight: 0, queued: 0 }
    }

    #[test]
    fn text_from_outside_is_escaped() {
        let troubles = vec!["<svg onload=alert(1)>".to_owned()];
        let health = health(troubles);
        let page = details(&health, (None, None), true).into_string();
        assert!(page.contains("&lt;svg onload") && !page.contains("<svg"), "{page}");
    }

    #[test]
    fn unknown_cost_differs_from_none() {
        let health = health(vec![]);
        let today = Counts { cost_unknown: 2, ..Counts::default() };
        let reading = Reading { today, ..Reading::default() };
        let page = details(&health, (Some(&reading), None), false).into_string();
        assert!(page.contains("\u{2013}, without 2 of 2 attempts of unknown cost"), "{page}");
        let today = Counts { cost: Money::from_micros(26_000), ..Counts::default() };
        let reading = Reading { today, ..Reading::default() };
        let page = details(&health, (Some(&reading), "USD".parse().ok()), false).into_string();
        assert!(page.contains("0.026 USD"), "{page}");
    }

    #[test]
    fn a_page_is_healthy_only_if_the_store_answers_and_no_dead_letter_of_a_failure_is_open() {
        let healthy = Health { failing: vec![], ..health(vec![]) };
        let page =
            |reading: Option<&Reading>| details(&healthy, (reading, None), false).into_string();
        assert!(page(Some(&Reading::default())).contains("Healthy."));
        assert!(page(None).contains("Not accepting claims: store"), "{}", page(None));
        let failed = page(Some(&Reading { failed: 4, ..Reading::default() }));
        assert!(failed.contains("Degraded, but accepting claims: dead letters"), "{failed}");
        assert!(failed.contains("what failed: 4 open"), "{failed}");
        let lapsed = page(Some(&Reading { lapsed: 101, ..Reading::default() }));
        assert!(lapsed.contains("Healthy."), "{lapsed}");
        assert!(lapsed.contains("before anything was paid for it: more than 100 open"), "{lapsed}");
        for unwell in [page(None), failed] {
            assert!(!unwell.contains("Healthy"), "{unwell}");
        }
    }
}
