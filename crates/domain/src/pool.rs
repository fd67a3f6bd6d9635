//! Standing orders: how many tokens a pool keeps ready, and how many of them may die unused. What may be ordered is
//! bounded by an escrow: every token that nobody asked for is set against the waste the pool is allowed, before it is
//! bought.

mod demand;

pub use demand::{Demand, DemandAsk, Target, Timing, Why};

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    challenge::Challenge,
    fingerprint::Fingerprint,
    id::{BadName, HolderId, Project, WorkerName},
    money::Money,
    time::Timestamp,
};

/// A pool's name: the first twelve digits of its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolId([u8; 6]);

/// How many tokens are kept ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As many as the demand calls for.
    Auto,
    /// So many, whatever that wastes.
    Fixed(u32),
}

/// What is to be kept ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingOrder {
    /// What has to be solved.
    pub challenge: Arc<Challenge>,
    /// In whose name refills are bought.
    pub worker: WorkerName,
    /// What their cost is charged to.
    pub project: Project,
    /// Why solving for the page is allowed.
    pub basis: Arc<str>,
    /// How many.
    pub level: Level,
    /// Never more.
    pub most: u32,
    /// Tokens that may die unused, of a thousand served.
    pub waste: u32,
    /// Declared in the configuration, rather than over the API.
    pub is_declared: bool,
}

/// Somebody said how many tokens will be wanted, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// How many are still expected.
    pub left: u32,
    /// From when.
    pub at: Timestamp,
}

/// A standing order and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The challenge's identity.
    pub fingerprint: Fingerprint,
    /// What is to be kept ready.
    pub order: StandingOrder,
    /// What was asked for lately.
    pub demand: Demand,
    /// Who orders: one process for all.
    pub controller: Option<HolderId>,
    /// What the controller last aimed at.
    pub target: Target,
    /// Announced demand, soonest first.
    pub expected: Vec<Expectation>,
    /// Tokens announced so far, without those that were fetched from stock: only the others can still die.
    pub announced: u64,
    /// Since when there is the pool.
    pub since: Timestamp,
    /// Claims that came in.
    pub arrived: u64,
    /// Claims that found a token.
    pub hits: u64,
    /// Claims that were served.
    pub served: u64,
    /// Refills ordered.
    pub ordered: u64,
    /// Tokens that died unused.
    pub wasted: u64,
    /// What its tokens cost, as far as that is known.
    pub cost: Money,
    /// Tokens whose cost nobody knows.
    pub cost_unknown: u64,
}

/// Tokens that may die unused before anybody was served.
pub const FREE_WASTE: u64 = 10;
/// An announcement is forgotten this long after its time.
const ANNOUNCED_FOR: Duration = Duration::from_secs(300);
const MOST_EXPECTED: usize = 32;

// === impl PoolId ===

impl PoolId {
    /// The name of the pool for these challenges.
    pub fn of(fingerprint: &Fingerprint) -> Self {
        let mut first = [0; 6];
        first.copy_from_slice(&fingerprint.as_bytes()[..6]);
        Self(first)
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
        let refused = || BadName::new("pool id", "expected twelve digits 0-9 and a-f");
        let plain = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() != 12 || !text.bytes().all(plain) {
            return Err(refused());
        }
        let mut bytes = [0; 6];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = str::from_utf8(digits).map_err(|_| refused())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| refused())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for PoolId {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<PoolId> for String {
    fn from(id: PoolId) -> Self {
        id.to_string()
    }
}

// === impl Pool ===

impl Pool {
    /// A new pool, without a history.
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

    /// Its name.
    pub fn id(&self) -> PoolId {
        PoolId::of(&self.fingerprint)
    }

    /// A claim came in; `hit`: it found a token.
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

    /// Somebody announces demand.
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

    /// What the controller should aim at.
    pub fn aim(&self, ask: &DemandAsk) -> Target {
        let expected = self.expected_by(ask);
        let target = match self.order.level {
            Level::Fixed(level) => Target { level, why: Why::Fixed },
            Level::Auto => self.demand.target(ask, self.room()),
        };
        if expected > target.level {
            return Target { level: expected.min(self.order.most), why: Why::Expected };
        }
        Target { level: target.level.min(self.order.most), ..target }
    }

    /// Announced tokens that have to be under way by now to be ready in time, and are not too early to last.
    fn expected_by(&self, ask: &DemandAsk) -> u32 {
        let lead = ask.timing.q99.min(ask.life);
        let near = |one: &&Expectation| {
            one.at <= ask.now.plus(lead) && ask.now < one.at.plus(ANNOUNCED_FOR)
        };
        self.expected.iter().filter(near).map(|one| one.left).fold(0, u32::saturating_add)
    }

    /// Whether one more may be ordered beside `spare` tokens that nobody waits for: each of them is set against the waste
    /// that is allowed, so that what dies unused never exceeds it.
    pub fn may_order(&self, spare: usize) -> bool {
        if let Level::Fixed(_) = self.order.level {
            return true;
        }
        u32::try_from(spare).is_ok_and(|spare| spare < self.room())
    }

    /// So many may die unused.
    pub fn allowed_waste(&self) -> u64 {
        let earned = self.served.saturating_mul(u64::from(self.order.waste)) / 1000;
        FREE_WASTE.saturating_add(self.announced).saturating_add(earned)
    }

    /// So many spare tokens the waste allowed covers.
    fn room(&self) -> u32 {
        let room = self.allowed_waste().saturating_sub(self.wasted);
        u32::try_from(room).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::challenge::{Draft, Kind};

    fn pool(level: Level) -> Pool {
        let draft = Draft {
            sitekey: Some("0x4AAA".into()),
            pageurl: Some(crate::site::PageUrl::parse("https://shop.example.com/").unwrap()),
            ..Draft::default()
        };
        let challenge = Challenge::new(Kind::Turnstile, draft).unwrap();
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

    fn ask(second: u64) -> DemandAsk {
        let timing = Timing { mean: Duration::from_secs(15), q99: Duration::from_secs(50) };
        let now = Timestamp::from_millis(second * 1000);
        DemandAsk { now, timing, life: Duration::from_secs(240), waste: 0.1, most: 20 }
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
        assert_eq!(pool.aim(&ask(500)).level, 0, "too early");
        assert_eq!(pool.aim(&ask(560)), Target { level: 8, why: Why::Expected });
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
        assert_eq!(pool.aim(&ask(0)), Target { level: 5, why: Why::Fixed });
        assert!(pool.may_order(4));
    }
}
