//! Records with secrets can be serialised for stores only: as JSON, none of them shows a secret.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{collections::BTreeMap, sync::Arc};

use domain::{
    callback::Callback,
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Claim, ClaimState, Door, Source},
    fingerprint::Fingerprint,
    id::{ClaimId, Project, SolveId, TaskId, WorkerName},
    pool::{Level, StandingOrder},
    secret::Secret,
    site::PageUrl,
    time::Timestamp,
    token::{Answer, Token},
};
use serde::{Serialize, de::DeserializeOwned};

fn challenge() -> Challenge {
    let params = [("proxy", "user:canary@10.0.0.1:3128"), ("cookies", "sid=canary")];
    let params = params.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let parts = ChallengeParts {
        sitekey: Some("0x4A".into()),
        pageurl: Some(PageUrl::parse("https://shop.example.com/").unwrap()),
        params: BTreeMap::from(params),
        files: BTreeMap::from([("body".to_owned(), b"canary".to_vec())]),
    };
    Challenge::new(Kind::Turnstile, parts).unwrap()
}

fn token() -> Token {
    let extras = Some(Secret::new(r#"{"cookies":"canary"}"#));
    Token {
        answer: Answer { text: Secret::new("canary"), is_json: false, extras },
        solve: SolveId::from_number(1),
        task: TaskId::new("1").unwrap(),
        ready_lower: Timestamp::default(),
        expires_at: Timestamp::default(),
        usable_until: Timestamp::default(),
        cost: None,
    }
}

fn claim() -> Claim {
    Claim {
        id: ClaimId::from_number(1),
        worker: WorkerName::new("tests").unwrap(),
        project: Project::new("tests").unwrap(),
        door: Door::V1,
        kind: Kind::Turnstile,
        sitekey: None,
        pageurl: None,
        basis: "own shop".into(),
        fingerprint: Fingerprint::from_bytes([0; 32]),
        key: None,
        solve: None,
        state: ClaimState::Served,
        source: Some(Source::Stock),
        opened_at: Timestamp::default(),
        deadline: Timestamp::default(),
        ended_at: None,
        delivered_at: None,
        token: Some(token()),
        code: None,
        attempts: 0,
        polls: 0,
        cost: None,
        callback_url: Some(Secret::new("https://hooks.example.com/canary")),
        revives: None,
        report: None,
        reopened: 0,
        may_have_paid: false,
    }
}

fn callback() -> Callback {
    Callback::for_claim(&claim(), Timestamp::default()).unwrap()
}

fn order() -> StandingOrder {
    StandingOrder {
        challenge: Arc::new(challenge()),
        worker: WorkerName::new("tests").unwrap(),
        project: Project::new("tests").unwrap(),
        basis: "own shop".into(),
        level: Level::Fixed(1),
        most: 1,
        waste: 0,
        is_declared: true,
    }
}

fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(record: &T) {
    let json = serde_json::to_string(record).unwrap();
    // A list of bytes would show it as numbers.
    let as_numbers = "99,97,110,97,114,121";
    assert!(!json.contains("canary") && !json.contains(as_numbers), "{json}");
    assert!(json.contains('…'), "{json}");
    let stored = postcard::to_extend(record, Vec::new()).unwrap();
    assert_eq!(postcard::from_bytes::<T>(&stored).as_ref(), Ok(record));
}

#[test]
fn no_record_shows_its_secrets_as_json_and_every_store_keeps_them() {
    check(&challenge());
    check(&token());
    check(&claim());
    check(&callback());
    check(&order());
}
