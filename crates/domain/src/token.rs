//! The answer of a solve: a secret that expires. Its age counts from the earliest moment it can have been solved, so that
//! a worker never gets a token that is older than we think.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    id::{SolveId, TaskId},
    money::Money,
    secret::Secret,
    time::Timestamp,
};

/// The provider's answer, as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The answer itself: plain text, or JSON text when `is_json` (objects and arrays, such as GeeTest's).
    pub text: Secret,
    /// Whether `text` is a JSON value rather than a plain string.
    pub is_json: bool,
    /// Other members of a JSON answer (`useragent`, `cookies` …) as a JSON object's text; clients read them.
    pub extras: Option<Secret>,
}

/// One paid answer and how long it can be used.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The text the worker submits to the site.
    pub answer: Answer,
    /// The solve that paid for it. Together with the task it identifies the token.
    pub solve: SolveId,
    /// The provider's task that answered.
    pub task: TaskId,
    /// The earliest moment it can have been solved: the last "not ready" before it came.
    pub ready_lower: Timestamp,
    /// When the site stops accepting it.
    pub expires_at: Timestamp,
    /// When we stop handing it out: `expires_at` less the margin.
    pub usable_until: Timestamp,
    /// The cost; `None` when it is unknown.
    pub cost: Option<Money>,
}

/// How long tokens of a kind live, and the margin that is held back at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLifetime {
    lifetime: Duration,
    margin: Duration,
}

/// The margin leaves no usable time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a margin of {margin:?} leaves nothing of a lifetime of {lifetime:?}")]
pub struct MarginTooLong {
    lifetime: Duration,
    margin: Duration,
}

/// A token is handed out only with at least this much of its usable time left.
pub const MIN_LEFT: Duration = Duration::from_secs(10);

impl TokenLifetime {
    /// Checks that the margin leaves usable time.
    pub fn new(lifetime: Duration, margin: Duration) -> Result<Self, MarginTooLong> {
        if margin + MIN_LEFT >= lifetime {
            return Err(MarginTooLong { lifetime, margin });
        }
        Ok(Self { lifetime, margin })
    }

    /// The longest time a token can be handed out.
    pub fn usable(&self) -> Duration {
        self.lifetime.saturating_sub(self.margin)
    }

    /// (expires at, usable until) of a token that was ready at `ready_lower` or later.
    pub fn expiry(&self, ready_lower: Timestamp) -> (Timestamp, Timestamp) {
        let expires_at = ready_lower.plus(self.lifetime);
        (expires_at, expires_at.minus(self.margin))
    }
}

impl Answer {
    /// Whether its text was dropped, because it can no longer be used.
    pub fn is_dropped(&self) -> bool {
        self.text.expose().is_empty() && self.extras.is_none()
    }

    /// Drops the text.
    pub fn drop_text(&mut self) {
        (self.text, self.extras) = (Secret::new(""), None);
    }
}

impl Token {
    /// Whether it can still be handed out. Its text may be gone before that moment, because another gateway's clock is
    /// ahead and that gateway dropped it.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        !self.answer.is_dropped() && now.plus(MIN_LEFT) <= self.usable_until
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("solve", &self.solve)
            .field("usable_until", &self.usable_until)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::challenge::Kind;

    #[test]
    fn a_token_is_handed_out_only_with_ten_seconds_left() {
        let (lifetime, margin) = Kind::RecaptchaV2.lifetime_and_margin();
        let life = TokenLifetime::new(lifetime, margin).unwrap();
        let (expires_at, usable_until) = life.expiry(Timestamp::from_millis(1_000));
        assert_eq!((expires_at.millis(), usable_until.millis()), (121_000, 81_000));
        let answer = Answer { text: Secret::new("t"), is_json: false, extras: None };
        let token = Token {
            answer,
            solve: SolveId::from_number(1),
            task: TaskId::new("1").unwrap(),
            ready_lower: Timestamp::from_millis(1_000),
            expires_at,
            usable_until,
            cost: None,
        };
        assert!(token.is_usable(Timestamp::from_millis(71_000)));
        assert!(!token.is_usable(Timestamp::from_millis(71_001)));
    }

    #[test]
    fn a_margin_may_not_eat_the_token() {
        assert!(TokenLifetime::new(Duration::from_secs(120), Duration::from_secs(110)).is_err());
        for kind in Kind::known() {
            let (lifetime, margin) = kind.lifetime_and_margin();
            assert!(TokenLifetime::new(lifetime, margin).is_ok(), "{kind}");
        }
    }
}
