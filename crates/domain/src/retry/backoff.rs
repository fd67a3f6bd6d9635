//! Exponential backoff with jitter and a cap. The wait is never shorter than the provider's `Retry-After`.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::ports::Chance;

/// The limits of an exponential backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The upper bound of the first wait; it doubles with every retry.
    pub base: Duration,
    /// The upper bound of every wait.
    pub cap: Duration,
    /// The most retries of any code.
    pub most: u32,
}

/// How a wait is randomised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Jitter {
    /// Uniform in [0, min(cap, base·2ⁿ)]. Requests that failed together are retried at different times.
    #[default]
    Full,
    /// min(cap, base·2ⁿ + U(0, 1 s)), the formula of the tutorials. Predictable, but requests that failed together are
    /// retried together.
    Additive,
}

/// A backoff with a name, for `[retry] profile`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// 1 s doubling to 60 s, five retries at most.
    #[default]
    Default,
    /// 2 s doubling to 120 s, five retries at most.
    Conservative,
    /// 0.5 s doubling to 30 s, two retries at most.
    Aggressive,
}

/// The longest `Retry-After` that counts, so that no reply can park a claim for ever.
pub(super) const LONGEST_FLOOR: Duration = Duration::from_secs(3600);

/// The most that the additive jitter adds.
const ADDED: Duration = Duration::from_secs(1);

// === impl Profile ===

impl Profile {
    /// The backoff of this name.
    pub fn backoff(self) -> Backoff {
        let (base_ms, cap, most) = match self {
            Self::Default => (1_000, 60, 5),
            Self::Conservative => (2_000, 120, 5),
            Self::Aggressive => (500, 30, 2),
        };
        Backoff { base: Duration::from_millis(base_ms), cap: Duration::from_secs(cap), most }
    }
}

// === impl Backoff ===

impl Backoff {
    /// The wait before retry `n`, counted from 0. It is never below `floor`, a `Retry-After` of which an hour counts.
    pub fn wait(&self, jitter: Jitter, n: u32, floor: Duration, chance: &dyn Chance) -> Duration {
        let grown = self.base.saturating_mul(2u32.saturating_pow(n.min(20)));
        let drawn = match jitter {
            Jitter::Full => up_to(grown.min(self.cap), chance),
            Jitter::Additive => grown.saturating_add(up_to(ADDED, chance)).min(self.cap),
        };
        drawn.max(floor.min(LONGEST_FLOOR))
    }
}

/// Uniform in [0, most], in milliseconds.
fn up_to(most: Duration, chance: &dyn Chance) -> Duration {
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX - 1);
    Duration::from_millis(chance.draw() % (most + 1))
}

// === impl Jitter ===

impl Jitter {
    /// The name in configuration and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Additive => "additive",
        }
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
