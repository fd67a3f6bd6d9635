//! What a provider's code means for a solve and for the account, by the retry table. Used by submit.rs and poll.rs.

use std::time::Duration;

use domain::{
    retry::{Class, Code, Effect, RetryMoment, Verdict},
    solve::Solve,
    time::Timestamp,
};

use crate::Shared;

/// The verdict about the solve. An account code opens the account's circuit breaker. `sent_at` is when the request left
/// that was answered with the code.
pub(super) fn verdict(
    shared: &Shared,
    solve: &Solve,
    code: &Code,
    (sent_at, retry_after): (Timestamp, Option<Duration>),
) -> Verdict {
    let now = shared.now();
    let breakers = &shared.scheduler.breakers;
    let rule = shared.config.retry.rule(code);
    if rule.class == Class::Account {
        let floor = rule.floor.max(retry_after.unwrap_or_default());
        breakers.account.open(code.clone(), floor, sent_at, now);
    }
    let at = RetryMoment { now, retry_after, chance: &*shared.ports.chance };
    let verdict = shared.config.retry.verdict(code, &solve.failures, at);
    // A provider that is down does not use up the tries of the solves that meet it.
    if rule.effect == Effect::ProviderDown && breakers.provider.is_open() {
        return Verdict::Again { due: now, counted: false };
    }
    verdict
}
