//! A plain connection to the Redis behind a store.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, Cmd, RedisResult, aio::MultiplexedConnection};

use super::Usage;

pub(crate) struct RedisProbe {
    connection: MultiplexedConnection,
    prefix: String,
    /// The digest of [`READ_ONE_KEY`].
    script: String,
}

/// The cheapest script.
const READ_ONE_KEY: &str = "return redis.call('GETRANGE', KEYS[1], 0, 7)";
/// Commands that a gateway sends; commands inside scripts are not counted.
const SENT: [&str; 5] = ["evalsha", "eval", "publish", "spublish", "wait"];
/// `UNLINK` of a full page of keys may take this long on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);

impl RedisProbe {
    /// Connects to `redis://[user:password@]host[:port][/db]`.
    pub(crate) async fn connect(server: &str, prefix: &str) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        let client = Client::open(server)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut load = redis::cmd("SCRIPT");
        let script = load.arg("LOAD").arg(READ_ONE_KEY).query_async(&mut connection).await?;
        Ok(Self { connection, prefix: prefix.to_owned(), script })
    }

    pub(crate) async fn round_trip(&self) -> RedisResult<()> {
        let key = format!("{{{}:0}}:bare", self.prefix);
        self.query::<String>(redis::cmd("EVALSHA").arg(&self.script).arg(1).arg(key)).await?;
        Ok(())
    }

    pub(crate) async fn usage(&self) -> RedisResult<Usage> {
        let stats = self.info("commandstats").await?;
        let calls = |name: &str| {
            let line =
                stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let memory = self.info("memory").await?;
        let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(Usage {
            calls: SENT.iter().map(|name| calls(name)).sum(),
            bytes: used.and_then(|used| used.trim().parse().ok()).unwrap_or(0),
        })
    }

    pub(crate) async fn clear(&self) -> RedisResult<()> {
        let pattern = format!("{{{}:*", self.prefix);
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(5000);
            let (next, keys): (String, Vec<Vec<u8>>) = self.query(&scan).await?;
            if !keys.is_empty() {
                self.query::<u64>(redis::cmd("UNLINK").arg(&keys)).await?;
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    async fn info(&self, section: &str) -> RedisResult<String> {
        self.query(redis::cmd("INFO").arg(section)).await
    }

    async fn query<T: redis::FromRedisValue>(&self, cmd: &Cmd) -> RedisResult<T> {
        cmd.query_async(&mut self.connection.clone()).await
    }
}
