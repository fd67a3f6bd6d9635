//! The status page: rendered on the server, escaped, without scripts and secrets.

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use domain::{
    ledger::{Counts, Outcomes},
    money::{Currency, Money},
    ports::{Scope, TotalsFilter},
};
use engine::Health;
use maud::{DOCTYPE, Markup, html};

use crate::{
    Doors,
    caller::{Caller, Role},
    error::Refusal,
};

const STYLE: &str = include_str!("status/style.css");

/// `GET /`. The page needs no key, so without one it shows only whether claims are accepted, and how to see more.
pub(crate) async fn page(State(doors): State<Doors>, caller: Result<Caller, Refusal>) -> Response {
    let health = doors.engine().health();
    let page = match caller {
        Ok(caller) => {
            let is_admin = matches!(caller.role, Role::Admin(_));
            let sums = today(&doors, caller.scope()).await;
            render(&details(&health, (&sums, doors.config().currency), is_admin))
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

/// Today's sums, if they can be shown.
enum Sums {
    Known(Box<Counts>),
    StoreUnavailable,
}

async fn today(doors: &Doors, scope: Scope) -> Sums {
    let day = doors.now().day();
    let ask = TotalsFilter { scope, from: day, to: day };
    let Ok(totals) = doors.engine().records().totals(ask).await else {
        return Sums::StoreUnavailable;
    };
    let mut counts = Counts::default();
    for total in &totals {
        counts.add(&total.counts);
    }
    Sums::Known(Box::new(counts))
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
        (condition(health))
        p {
            "Today's sums need a key: "
            code { "curl -H \"Authorization: Bearer $KEY\" …/v1/stats" }
        }
    }
}

/// For callers with a key. Details of what is wrong may name servers, so they are for admins.
fn details(
    health: &Health,
    (today, currency): (&Sums, Option<Currency>),
    is_admin: bool,
) -> Markup {
    html! {
        h1 { "solvegate " small { (env!("CARGO_PKG_VERSION")) } }
        (condition(health))
        @if is_admin {
            ul { @for trouble in &health.troubles { li { (trouble) } } }
            h2 { "Now" }
            dl {
                dt { "In flight" } dd { (health.in_flight) }
                dt { "Queued" } dd { (health.queued) }
            }
        }
        h2 { "Today (UTC)" }
        @match today {
            Sums::Known(counts) => (sums(counts, currency)),
            Sums::StoreUnavailable => p { "The store is unavailable, so there are no sums right now." },
        }
    }
}

fn condition(health: &Health) -> Markup {
    html! {
        @if health.ready && health.troubles.is_empty() {
            p.well role="status" { "Healthy." }
        } @else {
            p.trouble role="status" {
                @if health.ready { "Degraded, but accepting claims: " } @else { "Not accepting claims: " }
                (health.failing.join(", "))
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
            dt { "Paid attempts" } dd { (counts.attempts) }
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
        let page = details(&health, (&Sums::StoreUnavailable, None), true).into_string();
        assert!(page.contains("&lt;svg onload") && !page.contains("<svg"), "{page}");
    }

    #[test]
    fn unknown_cost_differs_from_none() {
        let health = health(vec![]);
        let counts = Counts { cost_unknown: 2, ..Counts::default() };
        let page = details(&health, (&Sums::Known(Box::new(counts)), None), false).into_string();
        assert!(page.contains("\u{2013}, without 2 of 2 attempts of unknown cost"), "{page}");
        let counts = Counts { cost: Money::from_micros(26_000), ..Counts::default() };
        let sums = Sums::Known(Box::new(counts));
        let page = details(&health, (&sums, "USD".parse().ok()), false).into_string();
        assert!(page.contains("0.026 USD"), "{page}");
    }
}
