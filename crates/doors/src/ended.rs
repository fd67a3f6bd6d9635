//! A claim that ended without a token, as an answer shows it: with the time at which its key opens it again.

use std::time::Duration;

use domain::{claim::Claim, retry::Code, time::Timestamp};
use engine::Engine;
use serde_json::{Value, json};

use crate::error::seconds;

#[derive(Debug)]
pub(crate) struct EndedClaim {
    pub(crate) claim: Claim,
    /// When the claim's own key opens it again; `None` when the key replays the end.
    pub(crate) reopens_at: Option<Timestamp>,
    /// The time until then, as long as it has not passed.
    pub(crate) retry_after: Option<Duration>,
}

/// How long until the claim's own key opens it again; `None` when it would do so now, or never does.
pub(crate) fn time_to_reopen(engine: &Engine, claim: &Claim, now: Timestamp) -> Option<Duration> {
    engine.reopens_at(claim).filter(|at| now < *at).map(|at| at.since(now))
}

impl EndedClaim {
    pub(crate) fn new(engine: &Engine, claim: Claim, now: Timestamp) -> Self {
        let reopens_at = engine.reopens_at(&claim);
        let retry_after = time_to_reopen(engine, &claim, now);
        Self { claim, reopens_at, retry_after }
    }

    pub(crate) fn last_code(&self) -> &str {
        self.claim.code.as_ref().map_or("nothing", Code::as_str)
    }

    /// What the caller can do about it with its key.
    pub(crate) fn hint(&self) -> String {
        match (self.retry_after, self.reopens_at) {
            (Some(wait), _) => {
                format!("; the same idempotency key opens it again in {} s", seconds(wait))
            }
            (None, Some(_)) => "; the same idempotency key opens it again".to_owned(),
            (None, None) if self.claim.may_have_paid && self.claim.has_named_key() => {
                "; an attempt of unknown outcome may have been paid, so its idempotency key stays with this end: use a new \
                 key, or revive its dead letter"
                    .to_owned()
            }
            (None, None) => String::new(),
        }
    }

    /// Adds the claim to the body of a problem.
    pub(crate) fn add_to(&self, problem: &mut Value) {
        let claim = &self.claim;
        problem["id"] = json!(claim.id.to_string());
        problem["state"] = json!(claim.state.name());
        problem["provider_code"] = json!(claim.code.as_ref().map(Code::as_str));
        if claim.generation() > 1 {
            problem["generation"] = json!(claim.generation());
        }
        if let Some(at) = self.reopens_at {
            problem["reopens_at"] = json!(at);
        }
    }
}
