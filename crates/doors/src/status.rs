//! The status page: rendered on the server, escaped, without scripts and secrets.

use axum::{
    Extension,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use domain::{
    ledger::Counts,
    ports::{Scope, TotalsFilter},
};
use engine::Health;
use maud::{DOCTYPE, Markup, html};

use crate::{Doors, peer::Peer};

const STYLE: &str = include_str!("status/style.css");

/// `GET /`.
pub(crate) async fn page(State(doors): State<Doors>, peer: Option<Extension<Peer>>) -> Response {
    let health = doors.engine().health();
    // The page needs no key, so it shows spending to this machine only.
    let is_local = peer.is_some_and(|Extension(peer)| peer.address().is_loopback());
    let sums = if is_local { today(&doors).await } else { Sums::Hidden };
    let html = [(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))];
    (html, render(&health, &sums).into_string()).into_response()
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
    Hidden,
}

async fn today(doors: &Doors) -> Sums {
    let day = doors.now().day();
    let ask = TotalsFilter { scope: Scope::All, from: day, to: day };
    let Ok(totals) = doors.engine().records().totals(ask).await else {
        return Sums::StoreUnavailable;
    };
    let mut counts = Counts::default();
    for total in &totals {
        counts.add(&total.counts);
    }
    Sums::Known(Box::new(counts))
}

fn render(health: &Health, today: &Sums) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "solvegate" }
                link rel="stylesheet" href="/style.css";
            }
            body {
                main {
                    h1 { "solvegate " small { (env!("CARGO_PKG_VERSION")) } }
                    (condition(health))
                    h2 { "Now" }
                    dl {
                        dt { "In flight" } dd { (health.in_flight) }
                        dt { "Queued" } dd { (health.queued) }
                    }
                    h2 { "Today (UTC)" }
                    @match today {
                        Sums::Known(counts) => (sums(counts)),
                        Sums::StoreUnavailable => p { "The store is unavailable, so there are no sums right now." },
                        Sums::Hidden => p { "Shown on the gateway's own machine only; elsewhere use /v1/stats with a key." },
                    }
                }
            }
        }
    }
}

fn condition(health: &Health) -> Markup {
    html! {
        @if health.ready && health.troubles.is_empty() {
            p.well role="status" { "Healthy." }
        } @else {
            p.trouble role="status" {
                @if health.ready { "Degraded, but accepting claims:" } @else { "Not accepting claims:" }
            }
            ul { @for trouble in &health.troubles { li { (trouble) } } }
        }
    }
}

fn sums(counts: &Counts) -> Markup {
    html! {
        dl {
            dt { "Claims" } dd { (counts.claims) }
            dt { "Paid attempts" } dd { (counts.attempts) }
            dt { "Paid" }
            dd {
                (counts.cost)
                @if counts.cost_unknown > 0 { " and " (counts.cost_unknown) " of unknown cost" }
            }
            dt { "Served without paying" } dd { (counts.savings()) }
            dt { "Saved" } dd { (counts.saved) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_escaped() {
        let troubles = vec!["<svg onload=alert(1)>".to_owned()];
        let health = Health { ready: true, troubles, in_flight: 0, queued: 0 };
        let page = render(&health, &Sums::Hidden).into_string();
        assert!(page.contains("&lt;svg onload") && !page.contains("<svg"), "{page}");
    }

    #[test]
    fn unknown_cost_differs_from_none() {
        let health = Health { ready: true, troubles: vec![], in_flight: 0, queued: 0 };
        let counts = Counts { cost_unknown: 2, ..Counts::default() };
        assert!(
            render(&health, &Sums::Known(Box::new(counts)))
                .into_string()
                .contains("2 of unknown cost")
        );
    }
}
