//! What the claims of the last days would have cost under other settings, for admins of any role.

use std::time::Duration;

use axum::{
    Json,
    extract::{RawQuery, State},
};
use domain::{
    time::Day,
    what_if::{ASSUMPTIONS, Outcome, Settings, WhatIf},
};
use serde_json::{Value, json};

use super::{query::Query, shape};
use crate::{Doors, caller::ReaderCaller, error::Refusal};

const KNOWN: [&str; 7] =
    ["days", "reuse_window_ms", "no_reuse", "no_keys", "no_joins", "no_pools", "poll_every_ms"];
/// The history is kept for 90 days.
const MOST_DAYS: u64 = 90;
const DAY_MS: u64 = 86_400_000;

/// `GET /v1/what-if`.
pub(super) async fn what_if(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &KNOWN)?;
    let days = query.number("days", 1..=MOST_DAYS)?.unwrap_or(1);
    let length = |ms: Option<u64>| ms.map(Duration::from_millis);
    let settings = Settings {
        reuse_window: length(query.number("reuse_window_ms", 0..=DAY_MS)?),
        no_reuse: query.flag("no_reuse")?,
        no_keys: query.flag("no_keys")?,
        no_joins: query.flag("no_joins")?,
        no_pools: query.flag("no_pools")?,
        poll_every: length(query.number("poll_every_ms", 1..=DAY_MS)?),
    };
    let to = doors.now().day();
    let before = u32::try_from(days - 1).expect("at most 90");
    let from = Day::from_number(to.number().saturating_sub(before));
    let found = doors.engine().what_if(from, settings).await?;
    Ok(Json(shape::with_currency(&doors, shaped(&found, &settings, (from, to)))))
}

fn shaped(found: &WhatIf, settings: &Settings, (from, to): (Day, Day)) -> Value {
    let ms = |length: Option<Duration>| length.map(|length| length.as_millis());
    json!({
        "from": from,
        "to": to,
        "settings": {
            "reuse_window_ms": ms(settings.reuse_window),
            "no_reuse": settings.no_reuse,
            "no_keys": settings.no_keys,
            "no_joins": settings.no_joins,
            "no_pools": settings.no_pools,
            "poll_every_ms": ms(settings.poll_every),
        },
        "actual": outcome(&found.actual, true),
        "estimate": outcome(&found.estimate, settings.poll_every.is_some()),
        "solves_added": found.added,
        "solves_saved": found.saved,
        "unfounded": found.unfounded,
        "assumptions": ASSUMPTIONS,
    })
}

/// Polls are estimated for an interval only; other settings do not say when tasks are polled.
fn outcome(outcome: &Outcome, has_polls: bool) -> Value {
    let is_unknown = outcome.cost_unknown > 0 && outcome.cost_unknown >= outcome.attempts;
    json!({
        "claims": outcome.claims,
        "repeats": outcome.repeats,
        "solves": outcome.solves,
        "attempts": outcome.attempts,
        "cost": shape::money(Some(outcome.cost).filter(|_| !is_unknown)),
        "cost_unknown": outcome.cost_unknown,
        "slot_seconds": outcome.slot_ms / 1000,
        "polls": has_polls.then_some(outcome.polls),
        "served": outcome.served,
        "mean_wait_ms": outcome.mean_wait_ms(),
        "wasted": outcome.wasted,
    })
}
