//! What is looked at before a server is trusted with money: its version, whether it throws keys away, whether it keeps
//! anything, whether it has replicas, how far it is.

use std::{collections::HashMap, time::Instant};

use redis::{RedisResult, Value};

use crate::examine::Finding;

use super::link::{Line, Link};

/// `INFO` or `CONFIG GET` as a table.
type Facts = HashMap<String, String>;

/// A server and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replication {
    /// The name of its history: a replica that takes over, or a server that starts anew, begins another.
    pub(super) server: String,
    /// Those that have everything and follow.
    pub(super) replicas: u64,
}

/// Looks at everything.
pub(super) async fn examine(link: &mut Link, key: &[u8]) -> RedisResult<Vec<Finding>> {
    let info = info(link, key).await?;
    let config = config(link, key).await;
    let mut findings = vec![version(&info), latency(link, key).await?];
    match &config {
        Some(config) => {
            findings.push(eviction(config));
            findings.push(persistence(config));
        }
        None => findings.push(Finding::risky(
            "CONFIG GET is not allowed here, so eviction and persistence could not be seen",
            "make sure of maxmemory-policy noeviction and appendonly yes in the server's own settings",
        )),
    }
    if link.is_cluster() {
        findings.push(cluster(link).await?);
    }
    findings.push(replication(Replication::read(&info).replicas, config.as_ref()));
    Ok(findings)
}

fn version(info: &Facts) -> Finding {
    // Valkey says 7.2.4 here and its own version elsewhere.
    let version = info.get("redis_version").map_or("unknown", String::as_str);
    let major: u32 = version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    if major < 7 {
        return Finding::bad(format!("version {version}"), "use Redis 7.0 or later, or Valkey");
    }
    Finding::good(format!("version {version}"))
}

fn eviction(config: &Facts) -> Finding {
    let policy = config.get("maxmemory-policy").map_or("unknown", String::as_str);
    if policy == "noeviction" {
        return Finding::good("no key is evicted (maxmemory-policy noeviction)");
    }
    Finding::bad(
        format!(
            "keys are evicted when memory is short (maxmemory-policy {policy}): an evicted claim is paid again"
        ),
        "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
    )
}

fn persistence(config: &Facts) -> Finding {
    let appends = config.get("appendonly").is_some_and(|value| value == "yes");
    let sync = config.get("appendfsync").map_or("unknown", String::as_str);
    let saves = config.get("save").is_some_and(|value| !value.is_empty());
    match (appends, saves) {
        (true, _) if sync == "no" => Finding::risky(
            "the append-only file is written whenever the kernel likes: a power cut loses up to half a minute",
            "CONFIG SET appendfsync everysec",
        ),
        (true, _) => {
            Finding::good(format!("what is written is kept (append-only file, fsync {sync})"))
        }
        (false, true) => Finding::risky(
            "only snapshots are kept: a restart loses everything since the last one, and solves in flight may be paid again",
            "CONFIG SET appendonly yes, and the same in redis.conf",
        ),
        (false, false) => Finding::risky(
            "nothing is kept: a restart forgets every claim, and solves in flight may be paid again",
            "CONFIG SET appendonly yes, and the same in redis.conf",
        ),
    }
}

fn replication(replicas: u64, config: Option<&Facts>) -> Finding {
    let guarded = config.and_then(|config| config.get("min-replicas-to-write"));
    if replicas == 0 {
        return Finding::good("no replicas: there is no failover that could lose writes");
    }
    if guarded.is_some_and(|least| least == "0") {
        return Finding::risky(
            format!(
                "{replicas} replicas; writes are taken also when none of them is reachable, and lost with the master"
            ),
            "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 2",
        );
    }
    Finding::good(format!("{replicas} replicas; intents wait for one of them (WAIT 1)"))
}

async fn cluster(link: &mut Link) -> RedisResult<Finding> {
    let facts = facts(&text(link.ask(redis::cmd("CLUSTER").arg("INFO")).await?));
    let state = facts.get("cluster_state").map_or("unknown", String::as_str);
    let slots = facts.get("cluster_slots_assigned").map_or("?", String::as_str);
    if state == "ok" {
        return Ok(Finding::good(format!("the cluster is whole ({slots} slots)")));
    }
    Ok(Finding::bad(
        format!("the cluster is not whole (state {state}, {slots} of 16384 slots)"),
        "see redis-cli --cluster check HOST:PORT",
    ))
}

/// The middle of three looks at a key.
async fn latency(link: &mut Link, key: &[u8]) -> RedisResult<Finding> {
    let mut took = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        link.ask(redis::cmd("EXISTS").arg(key)).await?;
        took.push(start.elapsed());
    }
    Ok(Finding::latency(took, "one"))
}

async fn info(link: &mut Link, key: &[u8]) -> RedisResult<Facts> {
    let mut all = Facts::new();
    for section in ["server", "replication"] {
        all.extend(facts(&text(link.ask_owner(redis::cmd("INFO").arg(section), key).await?)));
    }
    Ok(all)
}

/// Which server has the key, and who follows it.
pub(super) async fn replication_of(line: &Line, key: &[u8]) -> RedisResult<Replication> {
    let answer = line.ask_owner(redis::cmd("INFO").arg("replication"), key).await?;
    Ok(Replication::read(&facts(&text(answer))))
}

impl Replication {
    fn read(facts: &Facts) -> Self {
        let server = facts.get("master_replid").cloned().unwrap_or_default();
        let slaves = facts.iter().filter(|(name, _)| {
            name.strip_prefix("slave").is_some_and(|n| n.parse::<u32>().is_ok())
        });
        // One that is still copying cannot take over yet, nor confirm anything.
        let online = slaves.filter(|(_, is)| is.split(',').any(|part| part == "state=online"));
        Self { server, replicas: online.count() as u64 }
    }
}

async fn config(link: &mut Link, key: &[u8]) -> Option<Facts> {
    let mut all = Facts::new();
    for name in ["maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write"] {
        let pair = link.ask_owner(redis::cmd("CONFIG").arg("GET").arg(name), key).await.ok()?;
        let pairs: HashMap<String, String> = redis::from_redis_value(pair).ok()?;
        all.extend(pairs);
    }
    Some(all)
}

fn facts(text: &str) -> Facts {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn text(value: Value) -> String {
    redis::from_redis_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_still_copies_does_not_count() {
        let said = "role:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=127.0.0.1,port=1,state=online,offset=5,lag=0\r\n\
                    slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
                    master_replid:abc\r\n";
        let found = Replication::read(&facts(said));
        assert_eq!(found, Replication { server: "abc".into(), replicas: 1 });
    }
}
