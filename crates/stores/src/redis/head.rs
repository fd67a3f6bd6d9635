//! What the data says about itself: its format, which life it is in, and how many commits it has seen. That is how lost
//! writes are noticed: a server that forgot what it acknowledged is behind.

use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::Instant;

use super::{
    layout::{FORMAT, Names, SHARDS},
    link::{Line, Link, Script},
};

/// What a gateway knows about the data.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// Which life the data is in; a new one begins when writes were lost.
    pub(super) incarnation: String,
    /// Commits seen.
    pub(super) count: u64,
    /// When it was last found that writes were lost, by the server's clock; zero for never.
    pub(super) since: u64,
    /// Until then everybody waits for what the gateways bring back.
    pub(super) settles_at: Option<Instant>,
    /// Until then nothing is risked on what the rows say.
    pub(super) doubtful_until: Option<Instant>,
    /// This gateway has not brought back everything yet.
    pub(super) is_restoring: bool,
    /// When it was opened, by the server's clock.
    pub(super) opened_at: u64,
    /// Whether tokens in stock may have been handed out already.
    pub(super) stock_is_doubtful: bool,
}

/// What a gateway knew before.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) incarnation: String,
    pub(super) count: u64,
    /// The server has forgotten a turn of this gateway.
    pub(super) forgot: bool,
}

/// How the head was found.
pub(super) enum Opened {
    Head(Head),
    /// The data is of another format.
    Other(String),
    /// No sense can be made of the answer.
    Odd,
}

/// What lies there, for whoever only looks.
pub(super) enum Found {
    Nothing,
    Ours,
    /// The data is of another format.
    Other(String),
}

/// Gateways bring back what they know within this.
const SETTLING: Duration = Duration::from_secs(5);
/// After this nobody is expected to bring back anything (reliability.md, P16).
const DOUBT: Duration = Duration::from_secs(20);

impl Head {
    /// Opens the data, or finds how it stands after a loss.
    pub(super) async fn open(
        line: &Line,
        script: &Script,
        names: &Names,
        writer: u64,
        known: &Known,
    ) -> RedisResult<Opened> {
        let fresh = format!("{:016x}", fastrand::u64(..));
        let args = [
            FORMAT.as_bytes().to_vec(),
            SHARDS.into(),
            fresh.into_bytes(),
            known.incarnation.clone().into_bytes(),
            known.count.to_string().into_bytes(),
            u8::from(known.forgot).to_string().into_bytes(),
        ];
        let answer = line.run(script, |cmd| {
            cmd.arg(2).arg(names.head()).arg(names.turn(writer)).arg(&args);
        });
        let answer = answer.await?;
        Ok(read(answer).unwrap_or(Opened::Odd))
    }

    /// Takes in what an answer said. `true` when somebody else found that writes were lost.
    pub(super) fn saw(&mut self, incarnation: &str, count: u64, since: u64) -> bool {
        if self.incarnation != incarnation {
            // An answer of an earlier life that was overtaken.
            return false;
        }
        self.count = self.count.max(count);
        let news = since > self.since;
        if news {
            self.since = since;
            self.doubt(Duration::ZERO);
        }
        news
    }

    fn doubt(&mut self, ago: Duration) {
        let until = |span: Duration| span.checked_sub(ago).map(|left| Instant::now() + left);
        self.settles_at = until(SETTLING);
        self.doubtful_until = until(DOUBT);
    }

    pub(super) fn is_settling(&self) -> bool {
        self.is_restoring || self.settles_at.is_some_and(|at| Instant::now() < at)
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful_until.is_some_and(|at| Instant::now() < at)
    }
}

/// Looks what lies there.
pub(super) async fn look(link: &mut Link, names: &Names) -> RedisResult<Found> {
    let mut ask = redis::cmd("HMGET");
    ask.arg(names.head()).arg("format").arg("shards");
    let (format, shards): (Option<String>, Option<String>) =
        redis::from_redis_value(link.ask(&ask).await?)?;
    Ok(match (format, shards) {
        (None, _) => Found::Nothing,
        (Some(format), Some(shards)) if format == FORMAT && shards == SHARDS => Found::Ours,
        (Some(format), shards) => Found::Other(other(&format, &shards.unwrap_or_default())),
    })
}

fn other(format: &str, shards: &str) -> String {
    format!("{format} with {shards} shards")
}

fn read(answer: Value) -> Option<Opened> {
    let parts: Vec<Value> = redis::from_redis_value(answer).ok()?;
    let texts: Vec<String> =
        parts.into_iter().map(|part| redis::from_redis_value(part).ok()).collect::<Option<_>>()?;
    match texts.as_slice() {
        [word, format, shards] if word == "other" => Some(Opened::Other(other(format, shards))),
        [word, incarnation, count, since, stock, now] if word == "open" => {
            let (since, now): (u64, u64) = (since.parse().ok()?, now.parse().ok()?);
            let mut head = Head {
                incarnation: incarnation.clone(),
                count: count.parse().ok()?,
                since,
                settles_at: None,
                doubtful_until: None,
                is_restoring: false,
                opened_at: now,
                stock_is_doubtful: stock == "doubtful",
            };
            if since > 0 {
                head.doubt(Duration::from_millis(now.saturating_sub(since)));
            }
            Some(Opened::Head(head))
        }
        _ => None,
    }
}
