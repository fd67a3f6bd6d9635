//! The keys on the server: each has the prefix and a TTL, whatever texts it contains, and no other key is touched.

use std::collections::BTreeSet;

use store_tests::{
    World,
    servers::{RedisOptions, RedisServer, shared_cluster, shared_redis},
};

use crate::{
    connect,
    gateways::texts::{history, names_are_kept_apart, texts_come_back, use_everything},
    prefix,
};

/// Lists every key as `prefix table mortal`. It runs inside the server because key names are bytes.
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

/// All tables, and the keys beside them.
const NAMES: &str = "authorised by_sitekey by_time by_worker callbacks challenges claims dead_letters died expiries free \
    garbage head held holders joinable keys margins memos outbox pages pools solves spare spending stock tasks told totals \
    turn waiting watched";

/// The names of the keys under a prefix. Panics if any key on the servers is foreign or has no TTL.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_text_is_kept_and_read_back() {
    texts_come_back(&shared_redis().url(), usize::MAX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_text_is_kept_and_read_back_in_a_cluster() {
    texts_come_back(&shared_cluster().url(), usize::MAX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_workers_and_projects_are_kept_apart() {
    names_are_kept_apart(&shared_redis().url()).await;
}

/// Gateways with different prefixes never share keys, even when one prefix begins with the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_prefixes_never_mix() {
    let server = RedisServer::start(&RedisOptions::default());
    let prefixes = ["a", "a-0", "a_", "a0", "0"];
    let mut worlds = Vec::new();
    for prefix in prefixes {
        worlds.push(World::new(&connect(&server.url(), prefix).await));
    }
    for (number, world) in worlds.iter().enumerate() {
        // Each draws the same ids for its claims and solves.
        world.stock(world.turnstile("a"), "t1").await;
        world.store.set_memo("name", prefixes[number].into()).await.expect("the server is up");
    }
    for (number, prefix) in prefixes.iter().enumerate() {
        let world = World::new(&connect(&server.url(), prefix).await);
        assert_eq!(history(&world, None).await.len(), 1);
        let memos = world.store.memos("").await.expect("the server is up");
        assert_eq!(memos, [("name".to_owned(), prefixes[number].as_bytes().to_vec())]);
        assert!(names_under(prefix, &[&server]).contains("stock"));
        store_tests::check(world.records.as_ref()).await;
    }
}

// === keys of other programs ===

/// The script finds it before it writes anything, so that no part of a commit is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_program_stops_a_commit_as_a_whole() {
    let server = RedisServer::start(&RedisOptions::default());
    let backend = connect(&server.url(), "p").await;
    let world = World::new(&backend);
    let first = world.open(world.turnstile("a")).await;
    server.cli(&["RENAME", "{p:0}:by_sitekey", "kept"]);
    server.cli(&["SET", "{p:0}:by_sitekey", "x"]);
    let before = server.cli(&["DBSIZE"]);

    let new = world.turnstile("b");
    let refused = world.store.admit(new.clone(), world.now()).await.expect_err("it cannot write");
    let refused = refused.to_string();
    assert!(refused.contains("{p:0}:by_sitekey is a string"), "{refused}");
    assert!(refused.contains("?prefix=NAME"), "{refused}");
    assert_eq!(server.cli(&["DBSIZE"]), before, "a part of it was written");
    let error = stores::connect(&format!("{}?prefix=p", server.url())).await.expect_err("in use");
    assert!(error.to_string().contains("{p:0}:by_sitekey is a string"), "{error}");

    server.cli(&["RENAME", "kept", "{p:0}:by_sitekey"]);
    let second = world.open(new).await;
    assert_eq!(world.find(&first).await, first);
    assert_eq!(world.find(&second).await, second);
    store_tests::check(world.records.as_ref()).await;
}
