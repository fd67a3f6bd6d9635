//! Pools: standing orders for tokens that are kept in stock. A pool may waste a share of its tokens. Every token that no
//! claim waits for counts against that allowance before it is bought, so the waste cannot exceed it.

mod demand;
mod size;

pub use demand::{Demand, Target, TargetInputs, Timing, Why};
pub use size::{BadPoolSize, PoolSize};

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    challenge::Challenge,
    fingerprint::Fingerprint,
    id::{BadName, HolderId, Project, WorkerName},
    key::bytes_from_hex,
    money::Money,
    time::Timestamp,
};

/// The id of a pool: the first twelve hex digits of its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId([u8; 6]);

/// How many tokens a pool keeps in stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As many as its demand needs.
    Auto,
    /// This many, without a limit on the waste.
    Fixed(u32),
}

/// The configuration of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingOrder {
    /// The challenge of its tokens.
    pub challenge: Arc<Challenge>,
    /// The worker in whose name it buys refills.
    pub worker: WorkerName,
    /// The project their cost is charged to.
    pub project: Project,
    /// Why solving for the page is allowed.
    pub basis: Arc<str>,
    /// How many tokens it keeps in stock.
    pub level: Level,
    /// The highest stock level.
    pub most: u32,
    /// How many tokens may expire unused per thousand served.
    pub waste: u32,
    /// Whether the configuration declares it; otherwise it was opened over the API.
    pub is_declared: bool,
}

/// Demand that a worker announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// The number of claims still expected.
    pub left: u32,
    /// When the first of them will come.
    pub at: Timestamp,
}

/// A standing order and its accounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The fingerprint of its challenge.
    pub fingerprint: Fingerprint,
    /// What it keeps in stock.
    pub order: StandingOrder,
    /// The demand seen so far.
    pub demand: Demand,
    /// The process that orders for all gateways.
    pub controller: Option<HolderId>,
    /// The level the controller last aimed at.
    pub target: Target,
    /// Announced demand, soonest first.
    pub expected: Vec<Expectation>,
    /// Tokens announced so far, less those that claims took from stock. Only the rest can still be wasted.
    pub announced: u64,
    /// When the pool was opened.
    pub since: Timestamp,
    /// Claims for its challenge.
    pub arrived: u64,
    /// Claims that found a token in stock.
    pub hits: u64,
    /// Claims that were served.
    pub served: u64,
    /// Solves it opened to refill its stock.
    pub ordered: u64,
    /// Tokens that expired unused.
    pub wasted: u64,
    /// The known cost of its tokens.
    pub cost: Money,
    /// Tokens of unknown cost.
    pub cost_unknown: u64,
}

/// How many tokens a new pool may waste before it has served a claim.
pub const FREE_WASTE: u64 = 10;
/// An announcement is forgotten this long after its time.
const ANNOUNCED_FOR: Duration = Duration::from_secs(300);
const MOST_EXPECTED: usize = 32;

// === impl PoolId ===

impl PoolId {
    /// The id of the pool with this fingerprint.
    pub fn of(fingerprint: &Fingerprint) -> Self {
        Self(std::array::from_fn(|at| fingerprint.as_bytes()[at]))
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for PoolId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let is_lower = !text.bytes().any(|b| b.is_ascii_uppercase());
        let bytes = bytes_from_hex(text).filter(|_| is_lower);
        let why = "expected twelve digits 0-9 and a-f";
        bytes.map(Self).ok_or(BadName { what: "pool id", why })
    }
}

serialize_as_text!(PoolId);

// === impl Pool ===

impl Pool {
    /// A pool without demand and accounts.
    pub fn new(fingerprint: Fingerprint, order: StandingOrder, now: Timestamp) -> Self {
        Self {
            fingerprint,
            order,
            demand: Demand::default(),
            controller: None,
            target: Target { level: 0, why: Why::NoDemand },
            expected: Vec::new(),
            announced: 0,
            since: now,
            arrived: 0,
            hits: 0,
            served: 0,
            ordered: 0,
            wasted: 0,
            cost: Money::ZERO,
            cost_unknown: 0,
        }
    }

    /// The id, which follows from the fingerprint.
    pub fn id(&self) -> PoolId {
        PoolId::of(&self.fingerprint)
    }

    /// Records a claim; `hit` says that it found a token in stock.
    pub fn arrive(&mut self, hit: bool, now: Timestamp) {
        self.demand.arrive(now);
        self.arrived += 1;
        self.hits += u64::from(hit);
        if let Some(next) = self.expected.iter_mut().find(|one| one.left > 0 && one.at <= now) {
            next.left -= 1;
            self.announced = self.announced.saturating_sub(u64::from(hit));
        }
        self.forget(now);
    }

    /// Records announced demand: `count` claims from `at` on.
    pub fn expect(&mut self, count: u32, at: Timestamp, now: Timestamp) {
        self.forget(now);
        if self.expected.len() < MOST_EXPECTED {
            self.expected.push(Expectation { left: count, at });
            self.expected.sort_by_key(|one| one.at);
            self.announced += u64::from(count);
        }
    }

    fn forget(&mut self, now: Timestamp) {
        self.expected.retain(|one| one.left > 0 && now < one.at.plus(ANNOUNCED_FOR));
    }

    /// The level the controller should aim at.
    pub fn aim(&self, inputs: &TargetInputs) -> Target {
        let expected = self.expected_by(inputs);
        let target = match self.order.level {
            Level::Fixed(level) => Target { level, why: Why::Fixed },
            Level::Auto => self.demand.target(inputs, self.room()),
        };
        if expected > target.level {
            return Target { level: expected.min(self.order.most), why: Why::Expected };
        }
        Target { level: target.level.min(self.order.most), ..target }
    }

    /// Announced tokens that must be ordered by now to be ready in time, without ordering them so early that they expire.
    fn expected_by(&self, inputs: &TargetInputs) -> u32 {
        let lead = inputs.timing.q99.min(inputs.life);
        let near = |one: &&Expectation| {
            one.at <= inputs.now.plus(lead) && inputs.now < one.at.plus(ANNOUNCED_FOR)
        };
        self.expected.iter().filter(near).map(|one| one.left).fold(0, u32::saturating_add)
    }

    /// Whether the pool may order one more token beside `spare` ones that no claim waits for. Each spare token counts
    /// against the allowed waste, because it may expire unused.
    pub fn may_order(&self, spare: usize) -> bool {
        if let Level::Fixed(_) = self.order.level {
            return true;
        }
        u32::try_from(spare).is_ok_and(|spare| spare < self.room())
    }

    /// How many spare tokens the allowed waste covers.
    fn room(&self) -> u32 {
        let earned = self.served.saturating_mul(u64::from(self.order.waste)) / 1000;
        let allowed = FREE_WASTE.saturating_add(self.announced).saturating_add(earned);
        u32::try_from(allowed.saturating_sub(self.wasted)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::challenge::{ChallengeParts, Kind};

    fn pool(level: Level) -> Pool {
        let parts = ChallengeParts {
            sitekey: Some("0x4AAA".into()),
            pageurl: Some(crate::site::PageUrl::parse("https://shop.example.com/").unwrap()),
            ..ChallengeParts::default()
        };
        let challenge = Challenge::new(Kind::Turnstile, parts).unwrap();
        let fingerprint = Fingerprint::of(&challenge, crate::fingerprint::Identity::default());
        let order = StandingOrder {
            challenge: Arc::new(challenge),
            worker: WorkerName::new("pool").unwrap(),
            project: Project::new("pool").unwrap(),
            basis: "own shop".into(),
            level,
            most: 20,
            waste: 100,
            is_declared: true,
        };
        Pool::new(fingerprint, order, Timestamp::default())
    }

    fn at(second: u64) -> TargetInputs {
        let timing = Timing { mean: Duration::from_secs(15), q99: Duration::from_secs(50) };
        let now = Timestamp::from_millis(second * 1000);
        TargetInputs { now, timing, life: Duration::from_secs(240), waste: 0.1, most: 20 }
    }

    #[test]
    fn a_pool_is_named_by_its_fingerprint() {
        let pool = pool(Level::Auto);
        let id = pool.id();
        assert_eq!(id.to_string().len(), 12);
        assert_eq!(id.to_string().parse::<PoolId>(), Ok(id));
        for bad in ["", "0123456789", "0123456789AB", "0123456789xy", "0123456789ab0"] {
            assert!(bad.parse::<PoolId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_spare_token_is_set_against_the_waste_allowed() {
        let mut pool = pool(Level::Auto);
        assert!(pool.may_order(9) && !pool.may_order(10));
        pool.wasted = 10;
        assert!(!pool.may_order(0));
        pool.served = 100;
        assert!(pool.may_order(9) && !pool.may_order(10));
    }

    #[test]
    fn announced_demand_is_ready_in_time_and_goes_with_those_who_come() {
        let mut pool = pool(Level::Auto);
        pool.expect(8, Timestamp::from_millis(600_000), Timestamp::default());
        assert_eq!(pool.aim(&at(500)).level, 0, "too early");
        assert_eq!(pool.aim(&at(560)), Target { level: 8, why: Why::Expected });
        for second in 600..605 {
            pool.arrive(true, Timestamp::from_millis(second * 1000));
        }
        assert_eq!(pool.expected[0].left, 3);
        assert!(
            pool.may_order(12) && !pool.may_order(13),
            "five were fetched, three may still die"
        );
        pool.arrive(true, Timestamp::from_millis(1_000_000));
        assert!(pool.expected.is_empty(), "forgotten");
        assert!(pool.may_order(11) && !pool.may_order(12), "what was announced may be bought once");
    }

    #[test]
    fn a_fixed_level_is_kept_whatever_it_wastes() {
        let mut pool = pool(Level::Fixed(5));
        pool.wasted = 1_000_000;
        assert_eq!(pool.aim(&at(0)), Target { level: 5, why: Why::Fixed });
        assert!(pool.may_order(4));
    }
}
