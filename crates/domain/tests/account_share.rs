//! Property test of the rule by which gateways share a limit: gateways join, renew, lose replies, leave and die in any order,
//! and the plan shrinks. They never use more in sum than the limit, and what nobody else uses is soon used again.

use std::collections::BTreeMap;

use domain::account_share::{Granted, LimitUse, Others, Stake, WHOLE};
use proptest::prelude::*;

const LIMIT: u32 = 20;
/// A gateway that has not renewed for this many steps counts as dead for the others and uses nothing.
const TERM: u64 = 15;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The gateway renews: the store decides now, and the reply arrives with the next `Hear`, or never.
    Renew(u8, u32),
    Hear(u8),
    /// The gateway uses no more than this from now on, and its next renewal says so.
    Yield(u8, u32),
    Leave(u8),
    Die(u8),
    Pass,
    Shrink,
}

#[derive(Debug, Default)]
struct Gateway {
    /// What it may use, until it hears otherwise.
    obeys: u32,
    /// Replies under way, oldest first.
    replies: Vec<Granted>,
    renewed_at: u64,
    wanted: u32,
    is_dead: bool,
}

#[derive(Debug, Default)]
struct World {
    now: u64,
    limit: u32,
    gateways: BTreeMap<u8, Gateway>,
    /// The store: what each has, and when it renewed.
    stakes: BTreeMap<u8, (Stake, u64)>,
}

impl World {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Renew(n, wanted) => self.renew(n, wanted),
            Step::Hear(n) => {
                let Some(gateway) = self.gateways.get_mut(&n).filter(|one| !one.is_dead) else {
                    return;
                };
                if !gateway.replies.is_empty() {
                    let granted = gateway.replies.remove(0);
                    gateway.obeys = if granted.is_whole() { self.limit } else { granted.share };
                }
            }
            Step::Yield(n, most) => {
                self.gateways.entry(n).and_modify(|one| one.obeys = most.min(one.obeys));
            }
            Step::Leave(n) => {
                self.gateways.remove(&n);
                self.stakes.remove(&n);
            }
            Step::Die(n) => {
                self.gateways.entry(n).and_modify(|one| one.is_dead = true);
            }
            Step::Pass => self.now += 1,
            Step::Shrink => self.limit = LIMIT / 2,
        }
        // A lease that ended is used no more, and counts no more.
        let now = self.now;
        self.stakes.retain(|_, (_, at)| now - *at < TERM);
        for gateway in self.gateways.values_mut().filter(|one| now - one.renewed_at >= TERM) {
            gateway.obeys = 0;
        }
        self.gateways.retain(|_, one| !one.is_dead || now - one.renewed_at < TERM);
    }

    fn renew(&mut self, n: u8, wanted: u32) {
        let (now, limit) = (self.now, self.limit);
        let gateway = self
            .gateways
            .entry(n)
            .or_insert_with(|| Gateway { renewed_at: now, ..Gateway::default() });
        // A gateway sends the next renewal when it knows the result of the last, or has given up waiting for it.
        gateway.replies.clear();
        if gateway.is_dead {
            return;
        }
        let has_lease = self.stakes.contains_key(&n);
        let in_force = if has_lease { gateway.obeys } else { 0 };
        if !has_lease {
            gateway.obeys = 0;
        }
        let uses = LimitUse { limit, in_force, wanted };
        let others = Others {
            stakes: self.stakes.iter().filter(|(id, _)| **id != n).map(|(_, s)| s.0).collect(),
            before: self.stakes.keys().filter(|id| **id < n).count(),
            gone: 0,
            turn: now / TERM,
        };
        let granted = uses.grant(&others);
        assert!(granted.held >= granted.share.max(in_force));
        gateway.replies.push(granted);
        (gateway.renewed_at, gateway.wanted) = (now, wanted);
        self.stakes.insert(n, (Stake::after(uses, granted), now));
    }

    /// What all gateways together may use now.
    fn in_use(&self) -> u32 {
        self.gateways.values().map(|one| one.obeys).sum()
    }

    /// Everybody who lives renews and hears, again and again.
    fn settle(&mut self) {
        let living = self.gateways.iter().filter(|(_, one)| !one.is_dead).map(|(n, _)| *n);
        let living: Vec<u8> = living.collect();
        for _ in 0..=TERM {
            self.apply(Step::Pass);
            for n in &living {
                self.apply(Step::Renew(*n, 99));
                self.apply(Step::Hear(*n));
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let gateway = 0..5_u8;
    prop_oneof![
        6 => (gateway.clone(), prop_oneof![Just(0_u32), 1..10_u32, Just(99_u32)])
            .prop_map(|(n, wanted)| Step::Renew(n, wanted)),
        6 => gateway.clone().prop_map(Step::Hear),
        2 => (gateway.clone(), 0..5_u32).prop_map(|(n, most)| Step::Yield(n, most)),
        1 => gateway.clone().prop_map(Step::Leave),
        1 => gateway.prop_map(Step::Die),
        4 => Just(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn gateways_never_use_more_than_the_limit_and_soon_use_all_of_it(
        steps in prop::collection::vec(step(), 0..200),
        shrinks in any::<bool>(),
    ) {
        let mut world = World { limit: LIMIT, ..World::default() };
        for step in steps {
            world.apply(step);
            prop_assert!(world.in_use() <= LIMIT, "{world:?}");
        }
        if shrinks {
            world.apply(Step::Shrink);
        }
        world.settle();
        let shares: Vec<u32> = world.gateways.values().map(|one| one.obeys).collect();
        if let [share] = shares[..] {
            prop_assert_eq!(share, world.limit);
        } else if !shares.is_empty() {
            prop_assert_eq!(world.in_use(), world.limit, "all of it is used: {:?}", world);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{shares:?}");
        }
    }
}

#[test]
fn a_gateway_without_others_is_told_so() {
    let uses = LimitUse { limit: 3, in_force: 0, wanted: 0 };
    assert_eq!(uses.grant(&Others::default()).share, WHOLE);
}
