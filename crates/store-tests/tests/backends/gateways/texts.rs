//! Stores return what was written: a row in every table, and hostile texts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Allowance, Claim, Delivery, NewClaim},
    fingerprint::{Fingerprint, Identity},
    id::{Project, WorkerName},
    ledger::Event,
    pool::{Level, StandingOrder, Target, Why},
    ports::{ClaimFilter, Note, RefillRequest, Scope},
    retry::{Code, Verdict},
    secret::Secret,
    site::PageUrl,
    solve::{Fact, Solved},
    token::{Answer, TokenLifetime},
};
use store_tests::{PRICE, World, named, refused, task, token_of};

use crate::{connect, prefix};

use super::gateways;

// === a used server ===

/// Leaves a row in every table.
pub(crate) async fn use_everything(world: &World) {
    let mut with_callback = world.turnstile("called-back");
    with_callback.callback_url = Some(Secret::new("https://hooks.example.com/"));
    with_callback.key = named(&with_callback, "its own key");
    world.fail(with_callback, "ERROR_PAGEURL").await;
    world.open(world.image(b"joinable")).await;
    refused_late(world).await;
    order_one(world).await;
    let ambiguous = world.lose_reply(&world.open(world.turnstile("lost")).await).await;
    world.authorise(&ambiguous).await.expect("the first of the day");
    world.submit(&world.open(world.turnstile("held")).await, "t2").await;
    world.store.set_memo("polling/turnstile", vec![1, 2, 3]).await.expect("the server is up");
    world.stock(world.turnstile("stocked"), "t3").await;
    world.open(world.turnstile("free")).await;
}

/// A token reported as refused late raises the margin.
async fn refused_late(world: &World) {
    let mut new = world.turnstile("late");
    new.deadline = world.now().plus(Duration::from_secs(1000));
    let claim = world.serve(new, "t-late").await;
    world.pass(140);
    assert!(matches!(world.fetch(&claim).await, Delivery::Token(_)));
    let report = Note {
        claim: Some(claim.id),
        worker: claim.worker,
        project: claim.project,
        kind: Some(claim.kind),
        event: Event::Reported { good: false },
        by: None,
    };
    world.store.note(report, world.now()).await.expect("the server is up");
}

/// A pool with an active order.
async fn order_one(world: &World) {
    let new = world.turnstile("pool");
    let order = StandingOrder {
        challenge: new.challenge,
        worker: new.worker,
        project: new.project,
        basis: new.basis,
        level: Level::Auto,
        most: 20,
        waste: 100,
        is_declared: true,
    };
    let pool = new.fingerprint;
    world.store.set_pool(pool, Some(order), None, world.now()).await.expect("the server is up");
    let refill = RefillRequest {
        pool,
        holder: world.holder(1).await,
        target: Target { level: 1, why: Why::HitTarget },
        solves: vec![world.fresh_solve()],
        wanted_until: world.now().plus(Duration::from_secs(60)),
        price: Some(PRICE),
        budget: Allowance::default(),
        account: Allowance::default(),
    };
    let refilled = world.store.refill(refill, world.now()).await.expect("the server is up");
    assert_eq!(refilled.opened.len(), 1);
}

// === texts ===

/// Texts an attacker may try. The first five are the `store-injection` cases among the hostile inputs of the HTTP tests.
fn hostile() -> Vec<String> {
    let mut all: Vec<String> = [
        "a:b",
        "x\r\n*1\r\n$8\r\nFLUSHALL\r\n",
        "'; DROP TABLE solves; --",
        "a\0b",
        "{{kkk}}",
        "{other:0}:head",
        "}{",
        "*?[a-z]",
        "') redis.call('FLUSHALL') --",
        "%s%n\\x00\\\"\u{10FFFF}\u{202E}é",
    ]
    .map(str::to_owned)
    .into();
    all.push("k".repeat(3000));
    all.push("\u{7f}{}\r\n\"".repeat(13_000));
    all.push((0..=255_u8).map(char::from).collect());
    all.extend((1..=127_u8).map(|byte| char::from(byte).to_string()));
    all
}

fn all_bytes() -> Vec<u8> {
    (0..=255).collect()
}

/// A claim with the text in every field that takes one.
fn with_text(world: &World, text: &str) -> NewClaim {
    let page: String = text.chars().filter(char::is_ascii_graphic).take(1000).collect();
    let page = PageUrl::parse(&format!("https://shop.example.com/?{}", page.replace('\\', "")));
    let plain = world.turnstile("a");
    let draft = ChallengeParts {
        sitekey: Some(text.to_owned()),
        pageurl: Some(page.expect("a page with any query")),
        ..ChallengeParts::default()
    };
    let mut new = match Challenge::new(Kind::Turnstile, draft) {
        Ok(challenge) => NewClaim {
            fingerprint: Fingerprint::of(&challenge, Identity::default()),
            challenge: Arc::new(challenge),
            ..plain
        },
        // The HTTP layer refuses control characters and long texts; an image may be anything.
        Err(_) => world.image(&[text.as_bytes(), &all_bytes()].concat()),
    };
    new.basis = text.into();
    new.callback_url = Some(Secret::new(text));
    let key: String =
        text.chars().filter(|c| *c == ' ' || c.is_ascii_graphic()).take(255).collect();
    if !key.is_empty() {
        new.key = named(&new, &key);
    }
    new
}

/// Opens a claim with the text and settles it with the text as its answer.
async fn answered(world: &World, number: usize, text: &str) -> Claim {
    let claim = world.open(with_text(world, text)).await;
    let name = format!("t{number}");
    world.submit(&claim, &name).await;
    let solved = Fact::Solved(Solved {
        task: task(&name),
        answer: Answer { text: Secret::new(text), is_json: false, extras: None },
        ready_lower: world.now(),
        life: TokenLifetime::new(Duration::from_secs(300), Duration::from_secs(50))
            .expect("longer"),
        cost: Some(PRICE),
        polls: 1,
    });
    world.settle(claim.solve.expect("it was opened"), 1, solved).await;
    world.find(&claim).await
}

/// Another gateway reads the texts unchanged; as names of memos only those that are short enough for the store.
pub(crate) async fn texts_come_back(url: &str, longest_name: usize) {
    // The other gateway has nothing in its cache and reads everything.
    let both = gateways(url, &prefix(), 2).await;
    let (world, other) = (&both[0].world, &both[1].world);
    let mut memos = BTreeMap::new();
    let mut claims = Vec::new();
    for (number, text) in hostile().iter().enumerate() {
        claims.push((text.clone(), answered(world, number, text).await));
        // In every store a name ends at its first zero byte.
        let name = text.split('\0').next().expect("a first part");
        if name.len() > longest_name {
            continue;
        }
        world.store.set_memo(name, all_bytes()).await.expect("any text is a name");
        memos.insert(name.to_owned(), all_bytes());
    }
    for (text, claim) in &claims {
        assert_eq!(&other.find(claim).await, claim);
        assert_eq!((token_of(claim), &*claim.basis), (Some(text.as_str()), text.as_str()));
        assert!(history(other, claim.sitekey.as_deref()).await.contains(claim));
    }
    let read = other.store.memos("").await.expect("the server is up");
    assert_eq!(read.into_iter().collect::<BTreeMap<_, _>>(), memos);
    let last = &claims[0].1;
    let failed = other.open(other.turnstile("fails")).await;
    let lease = other.lease_of(&failed).await;
    let solve = other.intend(&lease).await.expect("its lease is good");
    let text = hostile().concat();
    other.settle(solve.id, solve.attempt, refused(&text, Verdict::GiveUp)).await;
    // Codes are shortened and cleaned before any store sees them.
    assert_eq!(world.find(&failed).await.code, Some(Code::from(text.as_str())));
    assert!(matches!(world.fetch(last).await, Delivery::Token(_)));
    store_tests::check(world.records.as_ref()).await;
}

pub(crate) async fn history(world: &World, sitekey: Option<&str>) -> Vec<Claim> {
    let sitekey = sitekey.map(Into::into);
    let filter = ClaimFilter { sitekey, ..ClaimFilter::all(Scope::All, 1000) };
    world.records.history(filter).await.expect("the server is up").items
}

/// The longest and oddest names that are allowed.
pub(crate) async fn names_are_kept_apart(url: &str) {
    let world = World::new(&connect(url, &prefix()).await);
    let names = ["a", "a.", "a-", "a_", "A", "0", "..", &"w".repeat(64), &"w".repeat(63)];
    for name in names {
        let mut new = world.turnstile("a");
        new.worker = WorkerName::new(name).expect("a name");
        new.project = Project::new(name).expect("a project");
        new.key = named(&new, "the same for all");
        world.open(new).await;
    }
    for name in names {
        let scope = Scope::Worker(WorkerName::new(name).expect("a name"));
        let active = world.records.active(scope, 100).await.expect("the server is up");
        assert_eq!(active.len(), 1, "{name}");
    }
}
