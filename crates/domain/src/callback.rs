//! What is told to others outside of any request: the end of a claim to its worker's own address (a callback), and
//! trouble to the operator's (an alert). A callback waits in the outbox until its receiver has taken it.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use crate::{
    challenge::Kind,
    claim::{Claim, ClaimState},
    id::{ClaimId, Project},
    money::Money,
    retry::Code,
    secret::Secret,
    time::Timestamp,
    token::Answer,
};

/// A callback in the outbox. Its row is written in the same step that ends the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// Whose end is to be told.
    pub claim: ClaimId,
    /// Where to.
    pub url: Secret,
    /// How the claim ended.
    pub state: ClaimState,
    /// How often it was tried.
    pub tries: u32,
    /// When the claim ended.
    pub since: Timestamp,
    /// When it is tried next.
    pub due: Timestamp,
}

/// What is told, in the form of Standard Webhooks: `{"type", "timestamp", "data"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notice {
    /// What happened: `solve.served`, `solve.failed`, `alert.account` …
    #[serde(rename = "type")]
    pub what: String,
    /// When.
    pub timestamp: Timestamp,
    /// The facts.
    pub data: Told,
}

/// The facts of a notice.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Told {
    /// The end of a claim.
    Claim(Box<ClaimTold>),
    /// A trouble.
    Alert {
        /// Whom or what it is about: a worker, a code.
        about: Option<String>,
        /// What it is, for people.
        message: String,
        /// The measure behind it.
        value: Option<u64>,
        /// Where the alert begins.
        threshold: Option<u64>,
    },
}

/// The end of a claim, as its worker is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are those of the v1 answer, docs/api/callbacks.md")]
pub struct ClaimTold {
    pub id: ClaimId,
    pub state: ClaimState,
    pub kind: Kind,
    pub project: Project,
    pub sitekey: Option<String>,
    pub pageurl: Option<String>,
    /// Present while it may still be handed out.
    #[serde(serialize_with = "shown")]
    pub token: Option<Answer>,
    pub expires_at: Option<Timestamp>,
    pub code: Option<Code>,
    pub attempts: u32,
    pub polls: u32,
    pub elapsed_ms: u64,
    pub cost: Option<Money>,
}

/// The token is what the receiver asked for: here, and only here, it is written out.
#[expect(clippy::ref_option, reason = "serde hands it over like this")]
fn shown<S: Serializer>(token: &Option<Answer>, serializer: S) -> Result<S::Ok, S::Error> {
    token.as_ref().map(|answer| answer.text.expose()).serialize(serializer)
}

/// The first wait after a try that failed; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// No wait is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 60);
/// A receiver that is away for longer is not told any more.
const KEPT: Duration = Duration::from_secs(24 * 3600);

// === impl Callback ===

impl Callback {
    /// The callback of a claim that has just ended and wants one.
    pub fn of(claim: &Claim, now: Timestamp) -> Option<Self> {
        let url = claim.callback_url.clone()?;
        Some(Self { claim: claim.id, url, state: claim.state, tries: 0, since: now, due: now })
    }

    /// The receiver recognises a notice it has seen by this.
    pub fn message_id(&self) -> String {
        format!("msg_{}_{}", self.claim, self.state.name())
    }

    /// Who is told: scheme, host and port of the address. What is behind them fails together.
    pub fn receiver(&self) -> String {
        let text = self.url.expose();
        Url::parse(text).map_or_else(|_| text.to_owned(), |url| url.origin().ascii_serialization())
    }

    /// Whether it is given up rather than tried once more.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.since.plus(KEPT) <= now
    }

    /// Counts a try that is about to be made, and plans the next one as if it failed: half a minute later, doubling to
    /// half an hour. A process that dies meanwhile leaves the next try to another. Spread by the claim's own number, so
    /// that the callbacks of one outage do not come back as one herd.
    pub fn try_now(&mut self, now: Timestamp) {
        let grown = FIRST_WAIT.saturating_mul(2u32.saturating_pow(self.tries.min(16)));
        let wait = grown.min(LONGEST_WAIT);
        let spread = u64::try_from(wait.as_millis() / 10).unwrap_or(1).max(1);
        let earlier = Duration::from_millis(self.claim.number() / 1000 % spread);
        self.tries += 1;
        self.due = now.plus(wait.saturating_sub(earlier));
    }
}

// === impl Notice ===

impl Notice {
    /// The end of a claim. Its token is told while it may be handed out.
    pub fn of_claim(claim: Claim, now: Timestamp) -> Self {
        let what = format!("solve.{}", claim.state.name());
        let ended = claim.ended_at.unwrap_or(now);
        let elapsed = ended.since(claim.opened_at).as_millis();
        let token = claim.token.filter(|token| token.is_usable(now));
        let told = ClaimTold {
            id: claim.id,
            state: claim.state,
            kind: claim.kind,
            project: claim.project,
            sitekey: claim.sitekey,
            pageurl: claim.pageurl,
            expires_at: token.as_ref().map(|token| token.expires_at),
            token: token.map(|token| token.answer),
            code: claim.code,
            attempts: claim.attempts,
            polls: claim.polls,
            elapsed_ms: u64::try_from(elapsed).unwrap_or(u64::MAX),
            cost: claim.cost,
        };
        Self { what, timestamp: ended, data: Told::Claim(Box::new(told)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callback() -> Callback {
        Callback {
            claim: ClaimId::from_number(123_456_789_012_345),
            url: Secret::new("https://hooks.example.com/"),
            state: ClaimState::Served,
            tries: 0,
            since: Timestamp::default(),
            due: Timestamp::default(),
        }
    }

    #[test]
    fn waits_double_from_half_a_minute_to_half_an_hour() {
        let mut callback = callback();
        let mut waits = Vec::new();
        for _ in 0..10 {
            callback.try_now(Timestamp::default());
            waits.push(callback.due.since(Timestamp::default()).as_secs_f64());
        }
        let most = [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0, 1800.0, 1800.0];
        for (wait, most) in waits.iter().zip(most) {
            assert!(*wait <= most && *wait >= most * 0.9, "{waits:?}");
        }
    }

    #[test]
    fn a_receiver_is_the_same_in_every_notation_and_on_every_path() {
        let receiver = |url| Callback { url: Secret::new(url), ..callback() }.receiver();
        for same in ["https://HOOKS.example.com:443/a?b=c", "https://hooks.example.com"] {
            assert_eq!(receiver(same), "https://hooks.example.com");
        }
        assert_eq!(receiver("http://hooks.example.com:8080/"), "http://hooks.example.com:8080");
        assert_eq!(receiver("no address"), "no address");
    }

    #[test]
    fn a_callback_is_tried_for_a_day_and_keeps_its_id() {
        let mut callback = callback();
        let id = callback.message_id();
        assert!(!callback.is_over(Timestamp::from_millis(86_399_999)));
        callback.try_now(Timestamp::from_millis(86_399_999));
        assert!(callback.is_over(Timestamp::from_millis(86_400_000)));
        assert_eq!(
            (callback.message_id(), id.as_str()),
            (id.clone(), "msg_123456789012345_served")
        );
    }
}
