//! A store on a server, as a bench uses it: under keys of its own, which are removed afterwards.

use stores::{RedisProbe, RedisUse};

use crate::exit::{Exit, Failure};

/// A server and a prefix nobody else has.
#[derive(Debug)]
pub(super) struct Far {
    url: String,
    probe: RedisProbe,
}

impl Far {
    /// Keys of its own on the server of this URL.
    pub(super) async fn open(url: &str) -> Result<Self, Failure> {
        if !url.starts_with("redis") {
            return Err(Failure::new(
                Exit::Usage,
                "expected redis://, rediss:// or redis+cluster://",
            ));
        }
        if url.contains('?') {
            let why = "a bench uses keys of its own and removes them: leave out ?prefix=";
            return Err(Failure::new(Exit::Usage, why));
        }
        let url = format!("{url}?prefix=bench-{:016x}", fastrand::u64(..));
        let probe = RedisProbe::connect(&url).await.map_err(Failure::of(Exit::Unreachable))?;
        Ok(Self { url, probe })
    }

    /// With the prefix.
    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// What the server has done and holds.
    pub(super) async fn usage(&self) -> Result<RedisUse, Failure> {
        self.probe.usage().await.map_err(Failure::of(Exit::Failed))
    }

    /// Removes everything.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        self.probe.clear().await.map_err(Failure::of(Exit::Failed))
    }
}
