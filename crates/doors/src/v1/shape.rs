//! Records as JSON. A token appears only in the response to the worker that claimed it, never in a list.

use domain::{
    attempt::Failure,
    budget::LimitState,
    claim::{Claim, Source},
    dead_letter::DeadLetter,
    declarations::POOL,
    ledger::{Counts, Entry, Outcomes},
    money::Money,
    ports::{ActiveSolve, Cursor, Paged},
    retry::Code,
    site::Site,
    solve::Stage,
    time::Timestamp,
};
use serde_json::{Value, json};

use crate::Doors;

/// Money as a decimal string; unknown money is `null`.
pub(super) fn money(amount: Option<Money>) -> Value {
    amount.map_or(Value::Null, |amount| json!(amount.to_string()))
}

/// What is used of each limit of a budget: numbers of solves, and money as text.
pub(super) fn budget(limits: &[LimitState]) -> Value {
    let amount = |state: &LimitState, amount: u64| {
        if state.is_money {
            money(Some(Money::from_micros(i64::try_from(amount).unwrap_or(i64::MAX))))
        } else {
            json!(amount)
        }
    };
    let each = limits.iter().map(|state| {
        json!({
            "limit": state.limit,
            "used": amount(state, state.used),
            "most": amount(state, state.most),
            "resets_at": state.resets_at,
        })
    });
    each.collect()
}

/// The currency of all amounts; `null` when the configuration names none.
pub(super) fn currency(doors: &Doors) -> Value {
    text(doors.config().currency)
}

/// Names the currency of the amounts in an object.
pub(super) fn with_currency(doors: &Doors, mut shape: Value) -> Value {
    shape["currency"] = currency(doors);
    shape
}

fn text<T: ToString>(value: Option<T>) -> Value {
    value.map_or(Value::Null, |value| json!(value.to_string()))
}

/// From admission to the end; `None` while the claim is waiting.
pub(super) fn elapsed_ms(claim: &Claim) -> Option<u64> {
    let took = claim.ended_at?.since(claim.opened_at);
    Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
}

/// A claim without its token.
pub(super) fn claim(claim: &Claim) -> Value {
    json!({
        "id": claim.id.to_string(),
        "state": claim.state.name(),
        "kind": claim.kind.name(),
        "sitekey": claim.sitekey,
        "pageurl": claim.pageurl,
        "worker": claim.worker.as_str(),
        "project": claim.project.as_str(),
        "door": claim.door,
        "basis": claim.basis,
        "solve": text(claim.solve),
        "source": claim.source.map(Source::name),
        "opened_at": claim.opened_at,
        "deadline": claim.deadline,
        "ended_at": claim.ended_at,
        "delivered_at": claim.delivered_at,
        "expires_at": claim.token.as_ref().map(|token| token.expires_at),
        "code": claim.code.as_ref().map(Code::as_str),
        "attempts": claim.attempts,
        "polls": claim.polls,
        "elapsed_ms": elapsed_ms(claim),
        "cost": money(claim.cost),
        "revives": text(claim.revives),
        "generation": claim.generation(),
    })
}

/// A declared site.
pub fn site(site: &Site) -> Value {
    json!({
        "host": site.rule.to_string(),
        "basis": site.basis,
        "owner": site.owner,
        "expires": site.expires,
        "reuse": site.reuse,
        "after_failure": site.after_failure,
        "ambiguous": site.ambiguous,
        "key_ignores_proxy": site.key_ignores_proxy,
        "methods": site.opened.methods,
        "params": site.opened.params,
        "sitekeys": site.opened.sitekeys,
    })
}

/// One ledger entry: the event and its facts.
pub(super) fn entry(entry: &Entry) -> Value {
    let event = json!(entry.event);
    // serde writes an event with facts as an object with one member.
    let (name, facts) = match event.as_object().and_then(|named| named.iter().next()) {
        Some((name, facts)) => (name.as_str(), facts.clone()),
        None => (event.as_str().unwrap_or_default(), json!({})),
    };
    json!({
        "seq": entry.seq,
        "at": entry.at,
        "claim": text(entry.claim),
        "solve": text(entry.solve),
        "event": name,
        "facts": facts,
    })
}

pub(super) fn active(solve: &ActiveSolve) -> Value {
    json!({
        "id": solve.id.to_string(),
        "claims": solve.claims.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "worker": solve.worker.as_str(),
        "project": solve.project.as_str(),
        "kind": solve.kind.name(),
        "stage": stage(solve),
        "attempt": solve.attempt,
        "opened_at": solve.opened_at,
        "due": solve.due,
        "last_code": solve.last_code.as_ref().map(Code::as_str),
    })
}

/// A refill of a pool is never waited for, so `overdue` would read like trouble.
fn stage(solve: &ActiveSolve) -> &'static str {
    let is_refill = solve.stage == Stage::Overdue && solve.worker.as_str() == POOL;
    if is_refill { "refill" } else { solve.stage.name() }
}

/// A dead letter with the causes of its last generation.
pub(super) fn dead_letter(letter: &DeadLetter) -> Value {
    json!({
        "id": letter.id.to_string(),
        "claims": letter.claims.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "worker": letter.worker.as_str(),
        "project": letter.project.as_str(),
        "kind": letter.kind.name(),
        "sitekey": letter.sitekey,
        "pageurl": letter.pageurl,
        "class": letter.class.name(),
        "code": letter.code.as_str(),
        "attempts": letter.attempts,
        "generation": letter.generation,
        "revives": text(letter.revives),
        "causes": causes(&letter.causes),
        "cost": money(letter.cost),
        "died_at": letter.died_at,
        "closed": letter.closed,
    })
}

/// A dead letter with the causes of all its generations.
pub(super) fn whole_dead_letter(letter: &DeadLetter) -> Value {
    let mut shape = dead_letter(letter);
    shape["earlier"] = causes(&letter.earlier);
    shape
}

fn causes(failures: &[Failure]) -> Value {
    let cause = |failure: &Failure| {
        json!({
            "attempt": failure.attempt,
            "at": failure.at,
            "code": failure.code.as_str(),
            "cost": money(failure.cost),
        })
    };
    failures.iter().map(cause).collect()
}

/// Sums. `cost` and `saved` are what is known of them, `null` when nothing is; `cost_unknown` of `costed` attempts are left
/// out of `cost`.
pub(super) fn counts(counts: &Counts) -> Value {
    let mut shape = outcomes(counts);
    let more = json!({
        "opened": counts.opened,
        "ordered": counts.ordered,
        "attempts": counts.attempts,
        "solved": counts.solved,
        "replayed": counts.replayed,
        "joined": counts.joined,
        "stocked": counts.stocked,
        "ambiguous": counts.ambiguous,
        "authorised": counts.authorised,
        "wasted": counts.wasted,
        "refused": counts.refused,
        "polls": counts.polls,
        "hit_rate": counts.hit_rate().map(rounded),
        "waste_rate": counts.waste_rate().map(rounded),
        "solve_ms": counts.solve_ms,
        "solve_mean_ms": counts.mean_solve_ms(),
        "solve_median_ms": counts.times.percentile(50),
        "solve_p95_ms": counts.times.percentile(95),
        "cost": money(counts.cost_if_known()),
        "cost_unknown": counts.unknown_costs(),
        "costed": counts.costed(),
        "saved": money(counts.saved_if_known()),
        "saved_unknown": counts.unknown_savings(),
        "savings": counts.savings(),
    });
    extend(&mut shape, more);
    shape
}

/// Where the claims stand; `claims` is the sum of the others.
pub(super) fn outcomes(counts: &Counts) -> Value {
    let Outcomes { claims, served, failed, lapsed, withdrawn, waiting } = counts.outcomes();
    json!({
        "claims": claims,
        "served": served,
        "failed": failed,
        "lapsed": lapsed,
        "withdrawn": withdrawn,
        "waiting": waiting,
    })
}

pub(super) fn extend(shape: &mut Value, more: Value) {
    if let (Some(shape), Value::Object(more)) = (shape.as_object_mut(), more) {
        shape.extend(more);
    }
}

pub(super) fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// A page and the cursor of the next one.
pub(super) fn page<T>(page: &Paged<T>, item: impl Fn(&T) -> Value) -> Value {
    let items: Vec<_> = page.items.iter().map(item).collect();
    json!({ "items": items, "next": page.next.map(cursor) })
}

pub(super) fn cursor(cursor: Cursor) -> String {
    format!("{}-{}", cursor.at.millis(), cursor.id)
}

/// Parses the output of [`cursor`].
pub(super) fn read_cursor(text: &str) -> Option<Cursor> {
    let (at, id) = text.split_once('-')?;
    Some(Cursor { at: Timestamp::from_millis(at.parse().ok()?), id: id.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_written_and_read_back() {
        let here = Cursor { at: Timestamp::from_millis(17), id: 42 };
        assert_eq!(read_cursor(&cursor(here)), Some(here));
        for bad in ["", "17", "17-", "a-b", "-1-2", "1-2-3"] {
            assert_eq!(read_cursor(bad), None, "{bad}");
        }
    }

    #[test]
    fn unknown_money_is_never_shown_as_zero() {
        assert_eq!(money(None), Value::Null);
        assert_eq!(money(Some(Money::ZERO)), json!("0"));
        assert_eq!(money(Some(Money::from_micros(850))), json!("0.00085"));
    }
}
