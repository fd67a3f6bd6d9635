//! What lies on the server: every key under the prefix and mortal, whatever the texts in it, and nobody else's.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use domain::{
    challenge::{Challenge, Draft, Kind},
    claim::{Claim, Delivery, NewClaim},
    fingerprint::{Fingerprint, Identity},
    id::{Project, WorkerName},
    ledger::Event,
    pool::{Level, StandingOrder, Target, Why},
    ports::{ClaimFilter, Note, Refill, Scope},
    retry::{Code, Verdict},
    secret::Secret,
    site::PageUrl,
    solve::{Fact, Solved},
    token::{Answer, ShelfLife},
};
use stores::conformance::{
    PRICE, World, named, refused,
    servers::{RedisOptions, RedisServer, shared_cluster, shared_redis},
    task, token_of,
};

use crate::{connect, gateways::gateways, prefix};

/// Every key of a server as `prefix table mortal`, or what it is instead. It runs inside the server: names are bytes.
const KEYS: &str = r"
local seen, cursor = {}, '0'
repeat
  local found = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = found[1]
  for _, key in ipairs(found[2]) do
    local prefix, name = key:match('^{([a-z0-9_-]+):0}:([a-z_]+)')
    local life = redis.call('TTL', key) > 0 and 'mortal' or 'immortal'
    seen[(prefix or 'FOREIGN') .. ' ' .. (name or key) .. ' ' .. life] = true
  end
until cursor == '0'
local lines = {}
for line in pairs(seen) do lines[#lines + 1] = line end
return lines";

/// All tables, and what is kept beside them.
const NAMES: &str = "authorised by_sitekey by_time by_worker callbacks challenges claims dead_letters died expiries free \
    garbage head held holders joinable keys margins memos outbox pages pools solves spare spending stock tasks told totals \
    turn waiting watched";

/// The names of the keys under a prefix; everything on the servers must be as it should.
fn names_under(prefix: &str, servers: &[&RedisServer]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for server in servers {
        let all = server.cli(&["eval", KEYS, "0"]);
        for line in all.lines().filter(|line| !line.is_empty()) {
            let parts: Vec<&str> = line.split(' ').collect();
            assert!(parts[0] != "FOREIGN" && parts[2] == "mortal", "{line}");
            if parts[0] == prefix {
                names.insert(parts[1].to_owned());
            }
        }
    }
    names
}

// === a used server ===

/// Leaves a row in every table.
async fn use_everything(world: &World) {
    let mut told = world.turnstile("told");
    told.callback_url = Some(Secret::new("https://hooks.example.com/"));
    told.key = named(&told, "key of its own");
    world.fail(told, "ERROR_PAGEURL").await;
    world.open(world.image(b"joinable")).await;
    refused_late(world).await;
    order_one(world).await;
    let ambiguous = world.lose_reply(&world.open(world.turnstile("lost")).await).await;
    world.authorise(&ambiguous).await.expect("the first of the day");
    world.submit(&world.open(world.turnstile("held")).await, "t2").await;
    world.store.set_memo("polling/turnstile", vec![1, 2, 3]).await.expect("the server is there");
    world.stock(world.turnstile("stocked"), "t3").await;
    world.open(world.turnstile("free")).await;
}

/// A margin is learned from a token that was used late.
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
    };
    world.store.note(report, world.now()).await.expect("the server is there");
}

/// A pool with an order under way.
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
    world.store.set_pool(pool, Some(order), world.now()).await.expect("the server is there");
    let refill = Refill {
        pool,
        holder: world.holder(1).await,
        target: Target { level: 1, why: Why::HitTarget },
        solves: vec![world.fresh_solve()],
        wanted_until: world.now().plus(Duration::from_secs(60)),
        price: Some(PRICE),
    };
    let refilled = world.store.refill(refill, world.now()).await.expect("the server is there");
    assert_eq!(refilled.opened.len(), 1);
}

async fn every_key_is_mortal(url: &str, servers: &[&RedisServer]) {
    let prefix = prefix();
    let world = World::new(&connect(url, &prefix).await);
    use_everything(&world).await;
    let names: BTreeSet<String> = NAMES.split_whitespace().map(str::to_owned).collect();
    assert_eq!(names_under(&prefix, servers), names, "every table was used");
    for days in [1, 2, 40, 400] {
        world.pass_days(days);
        world.sweep().await;
        names_under(&prefix, servers);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_of_a_used_server_dies_by_itself() {
    let server = RedisServer::start(&RedisOptions::default());
    every_key_is_mortal(&server.url(), &[&server]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_of_a_used_cluster_dies_by_itself() {
    let cluster = shared_cluster();
    every_key_is_mortal(&cluster.url(), &cluster.nodes().iter().collect::<Vec<_>>()).await;
}

// === texts ===

/// What somebody may try. The first five are the `store-injection` cases of the hostile inputs of the doors.
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

/// A claim with the text wherever one is taken.
fn with_text(world: &World, text: &str) -> NewClaim {
    let page: String = text.chars().filter(char::is_ascii_graphic).take(1000).collect();
    let page = PageUrl::parse(&format!("https://shop.example.com/?{}", page.replace('\\', "")));
    let plain = world.turnstile("a");
    let draft = Draft {
        sitekey: Some(text.to_owned()),
        pageurl: Some(page.expect("a page with any query")),
        ..Draft::default()
    };
    let mut new = match Challenge::new(Kind::Turnstile, draft) {
        Ok(challenge) => NewClaim {
            fingerprint: Fingerprint::of(&challenge, Identity::default()),
            challenge: Arc::new(challenge),
            ..plain
        },
        // Control characters and long ones end at the door; a picture may be anything.
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

/// Opens a claim with the text and brings the text as its answer.
async fn answered(world: &World, number: usize, text: &str) -> Claim {
    let claim = world.open(with_text(world, text)).await;
    let name = format!("t{number}");
    world.submit(&claim, &name).await;
    let solved = Fact::Solved(Solved {
        task: task(&name),
        answer: Answer { text: Secret::new(text), is_json: false, extras: None },
        ready_lower: world.now(),
        life: ShelfLife::new(Duration::from_secs(300), Duration::from_secs(50)).expect("longer"),
        cost: Some(PRICE),
        polls: 1,
    });
    world.tell(claim.solve.expect("it was opened"), 1, solved).await;
    world.find(&claim).await
}

async fn texts_come_back(url: &str) {
    // Another gateway remembers nothing of it and reads everything.
    let both = gateways(url, &prefix(), 2).await;
    let (world, other) = (&both[0].world, &both[1].world);
    let mut memos = BTreeMap::new();
    let mut claims = Vec::new();
    for (number, text) in hostile().iter().enumerate() {
        claims.push((text.clone(), answered(world, number, text).await));
        // A name ends at its first zero byte, in every store.
        let name = text.split('\0').next().expect("a first part");
        world.store.set_memo(name, all_bytes()).await.expect("any text is a name");
        memos.insert(name.to_owned(), all_bytes());
    }
    for (text, claim) in &claims {
        assert_eq!(&other.find(claim).await, claim);
        assert_eq!((token_of(claim), &*claim.basis), (Some(text.as_str()), text.as_str()));
        assert!(history(other, claim.sitekey.as_deref()).await.contains(claim));
    }
    let read = other.store.memos("").await.expect("the server is there");
    assert_eq!(read.into_iter().collect::<BTreeMap<_, _>>(), memos);
    let last = &claims[0].1;
    let failed = other.open(other.turnstile("fails")).await;
    let lease = other.lease_of(&failed).await;
    let solve = other.intend(&lease).await.expect("its lease is good");
    let text = hostile().concat();
    other.tell(solve.id, solve.attempt, refused(&text, Verdict::GiveUp)).await;
    // A code is shortened and cleaned before any store sees it.
    assert_eq!(world.find(&failed).await.code, Some(Code::from(text.as_str())));
    assert!(matches!(world.fetch(last).await, Delivery::Token(_)));
    stores::conformance::check(world.records.as_ref()).await;
}

async fn history(world: &World, sitekey: Option<&str>) -> Vec<Claim> {
    let filter = ClaimFilter {
        scope: Scope::All,
        sitekey: sitekey.map(Into::into),
        kind: None,
        state: None,
        project: None,
        from: None,
        limit: 1000,
    };
    world.records.history(filter).await.expect("the server is there").items
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_text_is_kept_and_read_back() {
    texts_come_back(&shared_redis().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_text_is_kept_and_read_back_in_a_cluster() {
    texts_come_back(&shared_cluster().url()).await;
}

/// Names as long and as odd as they may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_workers_and_projects_are_kept_apart() {
    let world = World::new(&connect(&shared_redis().url(), &prefix()).await);
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
        let active = world.records.active(scope, 100).await.expect("the server is there");
        assert_eq!(active.len(), 1, "{name}");
    }
}

/// Gateways with other prefixes never meet, also when one begins like another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_prefixes_never_mix() {
    let server = RedisServer::start(&RedisOptions::default());
    let prefixes = ["a", "a-0", "a_", "a0", "0"];
    let mut worlds = Vec::new();
    for prefix in prefixes {
        worlds.push(World::new(&connect(&server.url(), prefix).await));
    }
    for (number, world) in worlds.iter().enumerate() {
        // Each draws the same names for its claims and solves.
        world.stock(world.turnstile("a"), "t1").await;
        world.store.set_memo("name", prefixes[number].into()).await.expect("the server is there");
    }
    for (number, prefix) in prefixes.iter().enumerate() {
        let world = World::new(&connect(&server.url(), prefix).await);
        assert_eq!(history(&world, None).await.len(), 1);
        let memos = world.store.memos("").await.expect("the server is there");
        assert_eq!(memos, [("name".to_owned(), prefixes[number].as_bytes().to_vec())]);
        assert!(names_under(prefix, &[&server]).contains("stock"));
        stores::conformance::check(world.records.as_ref()).await;
    }
}
