//! Notices that leave the gateway outside of any request: the end of a claim, to the worker's own URL (a callback), and
//! trouble, to the operator's (an alert). A callback stays in the outbox until its receiver accepted it.

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

/// A callback in the outbox. The store writes it in the transaction that ends the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// The claim that ended.
    pub claim: ClaimId,
    /// The URL of the receiver, which may contain a secret.
    pub url: Secret,
    /// The state the claim ended in.
    pub state: ClaimState,
    /// The number of tries so far.
    pub tries: u32,
    /// When the claim ended.
    pub since: Timestamp,
    /// When the next try is due.
    pub due: Timestamp,
    /// Which generation of the claim ended: how often it had been opened again. Rows of releases before 0.2.0 end before
    /// this field.
    pub reopened: u32,
    /// The claim as it ended, once its key opened it again before the receiver accepted the callback.
    pub ended: Option<Box<Claim>>,
    /// The callbacks of later generations, in order. They wait until this one is accepted or dropped.
    pub later: Vec<Callback>,
}

/// The body of a webhook, in the form of Standard Webhooks: `{"type", "timestamp", "data"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notice {
    /// The type: `solve.served`, `solve.failed`, `alert.account` …
    #[serde(rename = "type")]
    pub what: String,
    /// When the event happened.
    pub timestamp: Timestamp,
    /// The data of the event.
    pub data: NoticeData,
}

/// The data of a notice.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NoticeData {
    /// Data of the `solve.*` notices.
    Claim(Box<ClaimNotice>),
    /// Data of the `alert.*` notices.
    Alert {
        /// The worker or code it is about.
        about: Option<String>,
        /// The message for people.
        message: String,
        /// The value that was measured.
        value: Option<u64>,
        /// The value from which on the alert is raised.
        threshold: Option<u64>,
    },
}

/// The end of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are those of the v1 answer, docs/api/callbacks.md")]
pub struct ClaimNotice {
    pub id: ClaimId,
    pub state: ClaimState,
    pub kind: Kind,
    pub project: Project,
    pub sitekey: Option<String>,
    pub pageurl: Option<String>,
    /// Present while it can still be handed out.
    #[serde(serialize_with = "serialize_token")]
    pub token: Option<Answer>,
    pub expires_at: Option<Timestamp>,
    pub code: Option<Code>,
    pub attempts: u32,
    pub polls: u32,
    pub elapsed_ms: u64,
    pub cost: Option<Money>,
}

/// Writes the token in clear. A callback is the one notice whose receiver is entitled to it.
#[expect(clippy::ref_option, reason = "serde passes the field by reference")]
fn serialize_token<S: Serializer>(
    token: &Option<Answer>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    token.as_ref().map(|answer| answer.text.expose()).serialize(serializer)
}

/// The wait after the first failed try; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 60);
/// A callback that its receiver did not accept for this long is dropped.
const KEPT: Duration = Duration::from_secs(24 * 3600);

// === impl Callback ===

impl Callback {
    /// The callback of a claim that has just ended; `None` when the claim has no callback URL.
    pub fn for_claim(claim: &Claim, now: Timestamp) -> Option<Self> {
        let url = claim.callback_url.clone()?;
        let (state, reopened) = (claim.state, claim.reopened);
        Some(Self {
            claim: claim.id,
            url,
            state,
            tries: 0,
            since: now,
            due: now,
            reopened,
            ended: None,
            later: Vec::new(),
        })
    }

    /// The id of the notice, the same for every try, so that the receiver can drop duplicates. Each generation of a claim
    /// has its own.
    pub fn message_id(&self) -> String {
        let (claim, state) = (self.claim, self.state.name());
        match self.reopened {
            0 => format!("msg_{claim}_{state}"),
            reopened => format!("msg_{claim}_{state}_{}", reopened.saturating_add(1)),
        }
    }

    /// Whether both are about the same end of a claim.
    pub fn is_about_end_of(&self, other: &Self) -> bool {
        (self.claim, self.state, self.reopened) == (other.claim, other.state, other.reopened)
    }

    /// Whether the claim still is as this callback says it ended.
    pub fn announces(&self, claim: &Claim) -> bool {
        (self.claim, self.state, self.reopened) == (claim.id, claim.state, claim.reopened)
    }

    /// The scheme, host and port of the URL. URLs with the same ones fail together, so they back off together.
    pub fn receiver(&self) -> String {
        let text = self.url.expose();
        Url::parse(text).map_or_else(|_| text.to_owned(), |url| url.origin().ascii_serialization())
    }

    /// Whether it is too old for another try.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.since.plus(KEPT) <= now
    }

    /// Counts a try that is about to be made, and schedules the next one as if it failed: 30 s later, doubling to 30 min.
    /// If the process dies meanwhile, another one makes the next try. The claim's number spreads the waits, so that the
    /// callbacks of one outage do not all come back at the same moment.
    pub fn try_now(&mut self, now: Timestamp) {
        let grown = FIRST_WAIT.saturating_mul(2u32.saturating_pow(self.tries.min(16)));
        let wait = grown.min(LONGEST_WAIT);
        let spread = u64::try_from(wait.as_millis() / 10).unwrap_or(1).max(1);
        let earlier = Duration::from_millis(self.claim.number() % spread);
        self.tries += 1;
        self.due = now.plus(wait.saturating_sub(earlier));
    }
}

// === impl Notice ===

impl Notice {
    /// The notice of a claim's end. It has the token while that can still be handed out.
    pub fn of_claim(claim: Claim, now: Timestamp) -> Self {
        let what = format!("solve.{}", claim.state.name());
        let ended = claim.ended_at.unwrap_or(now);
        let elapsed = ended.since(claim.opened_at).as_millis();
        let token = claim.token.filter(|token| token.is_usable(now));
        let end = ClaimNotice {
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
        Self { what, timestamp: ended, data: NoticeData::Claim(Box::new(end)) }
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
            reopened: 0,
            ended: None,
            later: Vec::new(),
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
        callback.reopened = 1;
        assert_eq!(callback.message_id(), "msg_123456789012345_served_2");
    }
}
