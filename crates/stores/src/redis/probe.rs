//! For benches: the bare way to a server, and what the server says about itself.

use domain::ports::StoreError;

use super::{
    address::Address,
    layout::Names,
    link::{Line, Script},
    load,
    server::{Failure, unavailable},
};
use crate::OpenError;

/// A server without a store on it.
pub struct RedisProbe {
    line: Line,
    names: Names,
    script: Script,
}

/// What a server has done and holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedisUse {
    /// Commands that clients sent: scripts, publications, waits; not what scripts do inside.
    pub commands: u64,
    /// Bytes of memory.
    pub memory: u64,
}

/// One look at one key: the least a script can do.
const LOOK: &str = "return redis.call('GETRANGE', KEYS[1], 0, 7)";
const SENT: [&str; 5] = ["evalsha", "eval", "publish", "spublish", "wait"];

impl RedisProbe {
    /// Connects to the server of a store's URL.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        let address =
            Address::parse(url).map_err(|why| OpenError::Address { store: super::TITLE, why })?;
        let names = Names::new(&address.prefix);
        let away = |error| OpenError::Unreachable {
            store: super::TITLE,
            server: address.shown(),
            why: super::said(&error),
        };
        let mut link = super::first_link(&address).await.map_err(away)?;
        let script = load(&mut link, LOOK).await.map_err(away)?;
        Ok(Self { line: Line::new(address), names, script })
    }

    /// One script, there and back.
    pub async fn round_trip(&self) -> Result<(), StoreError> {
        let look = self.line.run(&self.script, |cmd| {
            cmd.arg(1).arg(self.names.head());
        });
        look.await.map(drop).map_err(|error| Failure::from(error).into())
    }

    /// What the server has done and holds by now.
    pub async fn usage(&self) -> Result<RedisUse, StoreError> {
        let stats = self.info("commandstats").await?;
        let calls = |name: &str| {
            let line =
                stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let memory = self.info("memory").await?;
        let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(RedisUse {
            commands: SENT.iter().map(|name| calls(name)).sum(),
            memory: used.and_then(|used| used.trim().parse().ok()).unwrap_or(0),
        })
    }

    /// Removes every key of the store.
    pub async fn clear(&self) -> Result<(), StoreError> {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(self.names.all()).arg("COUNT").arg(5000);
            let (next, keys): (String, Vec<Vec<u8>>) = self.ask(&scan).await?;
            if !keys.is_empty() {
                let mut unlink = redis::cmd("UNLINK");
                for key in &keys {
                    unlink.arg(key.as_slice());
                }
                self.ask::<u64>(&unlink).await?;
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    async fn info(&self, section: &str) -> Result<String, StoreError> {
        self.ask(redis::cmd("INFO").arg(section)).await
    }

    async fn ask<T: redis::FromRedisValue>(&self, cmd: &redis::Cmd) -> Result<T, StoreError> {
        let answer =
            self.line.ask(cmd).await.map_err(|error| StoreError::from(Failure::from(error)))?;
        redis::from_redis_value(answer).map_err(|why| unavailable(why.to_string()))
    }
}

impl std::fmt::Debug for RedisProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisProbe").finish_non_exhaustive()
    }
}
