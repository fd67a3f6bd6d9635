//! Checks before a server is trusted with money: its version, eviction, persistence, replicas and latency.

use std::{collections::HashMap, time::Duration};

use domain::{ports::ServerTime, time::Timestamp};
use redis::{RedisResult, Value};

use crate::{Finding, backends::server::measure_latency};

use super::connection::ReconnectingConnection;

/// The fields of `INFO` or `CONFIG GET`.
type InfoFields = HashMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replication {
    /// Its replication id. A replica that takes over has another one, and so has a server that lost its data.
    pub(super) server: String,
    /// Replicas that are in sync.
    pub(super) replicas: u64,
}

pub(super) async fn examine(
    connection: &ReconnectingConnection,
    key: &[u8],
) -> RedisResult<Vec<Finding>> {
    let info = info(connection, key).await?;
    let config = match config(connection, key).await {
        Some(config) => config,
        None => managed_config(connection, key).await?,
    };
    let mut exists = redis::cmd("EXISTS");
    exists.arg(key);
    let latency = measure_latency(3, "one", || connection.send(&exists));
    let mut findings =
        vec![version(&info), latency.await?, eviction(&config), persistence(&config)];
    if connection.is_cluster() {
        findings.push(cluster(connection).await?);
    }
    findings.push(replication(Replication::read(&info).replicas, &config));
    Ok(findings)
}

/// What the clock of the server shows that has the key.
pub(super) async fn server_time(
    connection: &ReconnectingConnection,
    key: &[u8],
) -> RedisResult<ServerTime> {
    let reply = connection.send_to_owner(&redis::cmd("TIME"), key).await?;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(reply)?;
    let millis = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
    Ok(ServerTime { at: Timestamp::from_millis(millis), precision: Duration::ZERO })
}

fn version(info: &InfoFields) -> Finding {
    // Valkey reports 7.2.4 here, and its own version in another field.
    let version = info.get("redis_version").map_or("unknown", String::as_str);
    let major: u32 = version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    if major < 7 {
        return Finding::bad(format!("version {version}"), "use Redis 7.0 or later, or Valkey");
    }
    Finding::good(format!("version {version}"))
}

fn eviction(config: &InfoFields) -> Finding {
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

fn persistence(config: &InfoFields) -> Finding {
    let appends = config.get("appendonly").is_some_and(|value| value == "yes");
    let sync = config.get("appendfsync").map_or("unknown", String::as_str);
    let saves = config.get("save").is_some_and(|value| !value.is_empty());
    match (appends, saves) {
        (true, _) if sync == "no" => Finding::risky(
            "the append-only file is not synced (appendfsync no): a power cut loses up to half a minute",
            "CONFIG SET appendfsync everysec",
        ),
        (true, _) => {
            Finding::good(format!("writes are persisted (append-only file, fsync {sync})"))
        }
        (false, true) => Finding::risky(
            "only snapshots are persisted: a restart loses everything since the last one, and solves in flight may be paid again",
            "CONFIG SET appendonly yes, and the same in redis.conf",
        ),
        (false, false) => Finding::risky(
            "nothing is persisted: a restart loses every claim, and solves in flight may be paid again",
            "CONFIG SET appendonly yes, and the same in redis.conf",
        ),
    }
}

fn replication(replicas: u64, config: &InfoFields) -> Finding {
    let guarded = config.get("min-replicas-to-write");
    if replicas == 0 {
        return Finding::good("no replicas: there is no failover that could lose writes");
    }
    if guarded.is_some_and(|least| least == "0") {
        return Finding::risky(
            format!(
                "{replicas} replicas; writes are accepted even when none of them is reachable, and lost with the master"
            ),
            "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 2",
        );
    }
    Finding::good(format!("{replicas} replicas; intents wait for one of them (WAIT 1)"))
}

async fn cluster(connection: &ReconnectingConnection) -> RedisResult<Finding> {
    let fields = parse_fields(&text(connection.send(redis::cmd("CLUSTER").arg("INFO")).await?));
    let state = fields.get("cluster_state").map_or("unknown", String::as_str);
    let slots = fields.get("cluster_slots_assigned").map_or("?", String::as_str);
    if state == "ok" {
        return Ok(Finding::good(format!("the cluster is complete ({slots} slots)")));
    }
    Ok(Finding::bad(
        format!("the cluster is not complete (state {state}, {slots} of 16384 slots)"),
        "run redis-cli --cluster check HOST:PORT",
    ))
}

async fn info(connection: &ReconnectingConnection, key: &[u8]) -> RedisResult<InfoFields> {
    let mut all = InfoFields::new();
    for section in ["server", "replication"] {
        all.extend(section_of(connection, section, key).await?);
    }
    Ok(all)
}

/// The server that has the key, and its replicas.
pub(super) async fn replication_of(
    connection: &ReconnectingConnection,
    key: &[u8],
) -> RedisResult<Replication> {
    Ok(Replication::read(&section_of(connection, "replication", key).await?))
}

async fn section_of(
    connection: &ReconnectingConnection,
    section: &str,
    key: &[u8],
) -> RedisResult<InfoFields> {
    let answer = connection.send_to_owner(redis::cmd("INFO").arg(section), key).await?;
    Ok(parse_fields(&text(answer)))
}

impl Replication {
    fn read(fields: &InfoFields) -> Self {
        let server = fields.get("master_replid").cloned().unwrap_or_default();
        let slaves = fields.iter().filter(|(name, _)| {
            name.strip_prefix("slave").is_some_and(|n| n.parse::<u32>().is_ok())
        });
        // A replica that is still copying can neither take over nor confirm writes.
        let online = slaves.filter(|(_, is)| is.split(',').any(|part| part == "state=online"));
        Self { server, replicas: online.count() as u64 }
    }
}

async fn config(connection: &ReconnectingConnection, key: &[u8]) -> Option<InfoFields> {
    let mut all = InfoFields::new();
    for name in ["maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write"] {
        let pair =
            connection.send_to_owner(redis::cmd("CONFIG").arg("GET").arg(name), key).await.ok()?;
        let pairs: HashMap<String, String> = redis::from_redis_value(pair).ok()?;
        all.extend(pairs);
    }
    Some(all)
}

/// What `INFO` says of the configuration, where managed servers do not allow `CONFIG`. It does not show how often the
/// append-only file is synced, nor whether there are snapshots.
async fn managed_config(
    connection: &ReconnectingConnection,
    key: &[u8],
) -> RedisResult<InfoFields> {
    let memory = section_of(connection, "memory", key).await?;
    let persistence = section_of(connection, "persistence", key).await?;
    let mut config = InfoFields::from([("save".to_owned(), "unknown".to_owned())]);
    if let Some(policy) = memory.get("maxmemory_policy") {
        config.insert("maxmemory-policy".to_owned(), policy.clone());
    }
    let appends = persistence.get("aof_enabled").is_some_and(|value| value == "1");
    config.insert("appendonly".to_owned(), if appends { "yes" } else { "no" }.to_owned());
    Ok(config)
}

fn parse_fields(text: &str) -> InfoFields {
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
    fn a_replica_that_is_still_copying_does_not_count() {
        let info = "role:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=127.0.0.1,port=1,state=online,offset=5,lag=0\r\n\
                    slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
                    master_replid:abc\r\n";
        let found = Replication::read(&parse_fields(info));
        assert_eq!(found, Replication { server: "abc".into(), replicas: 1 });
    }
}
