//! The account's limits, shared among the gateways in the rows of their leases.

use domain::{
    account_share::{AccountUse, Granted, LimitUse, Standing},
    id::{HolderId, Place},
    lease::Holder,
    ports::LeaseRequest,
};

use super::repeats::Drawn;
use crate::{World, accepted};

/// Of six slots and twenty submissions a second, with so much in use and wanted of each.
fn uses(in_force: u32, used: u32, wanted: u32) -> AccountUse {
    let of = |limit| LimitUse { limit, in_force, wanted };
    AccountUse { slots: LimitUse { in_force: in_force.max(used), ..of(6) }, submits: of(20), used }
}

async fn hold_as(world: &World, id: HolderId, account: AccountUse) -> Standing {
    let until = world.now().plus(LeaseRequest::TERM);
    world.store.hold(Holder { id, until, account: Some(account) }).await.unwrap()
}

async fn hold(world: &World, number: u64, account: AccountUse) -> Standing {
    hold_as(world, HolderId::from_number(number), account).await
}

/// Opens claims and leaves tasks of so many of them at the provider, in the hands of a holder.
async fn occupy(world: &World, holder: HolderId, tasks: usize) {
    for n in 0..tasks {
        world.open(world.turnstile(&format!("task-{n}"))).await;
    }
    for (n, lease) in world.lease(holder).await.into_iter().enumerate() {
        let solve = world.intend(&lease).await.unwrap();
        world.settle(solve.id, solve.attempt, accepted(&format!("{}{n}", holder.number()))).await;
    }
}

fn granted(share: u32, held: u32, fair: u32) -> Granted {
    Granted { share, held, fair }
}

pub(super) async fn a_gateway_gets_only_what_another_has_given(world: World) {
    let alone = hold(&world, 1, uses(0, 0, 9)).await;
    assert_eq!((alone.slots, alone.submits), (Granted::WHOLE, Granted::WHOLE));
    let second = hold(&world, 2, uses(0, 0, 99)).await;
    assert_eq!((second.slots, second.submits), (granted(0, 0, 3), granted(0, 0, 11)));
    // The first obeys its share from now on, and says so at its next renewal.
    let first = hold(&world, 1, uses(20, 0, 9)).await;
    assert_eq!((first.slots, first.submits), (granted(3, 20, 3), granted(9, 20, 9)));
    assert_eq!(hold(&world, 2, uses(0, 0, 99)).await.slots.share, 0, "twenty may be in use");
    let first = hold(&world, 1, uses(3, 2, 9)).await;
    assert_eq!((first.slots, first.submits), (granted(3, 3, 3), granted(9, 9, 9)));
    let second = hold(&world, 2, uses(0, 0, 99)).await;
    assert_eq!((second.slots, second.submits), (granted(3, 3, 3), granted(11, 11, 11)));
    assert_eq!((second.gateways, second.others_used), (2, 2));
    // Of a gateway that is gone nothing is left.
    world.pass(16);
    assert_eq!(hold(&world, 2, uses(3, 0, 99)).await.slots, Granted::WHOLE);
}

pub(super) async fn a_gateway_that_shares_nothing_takes_nothing_from_the_others(world: World) {
    world.holder(1).await;
    assert_eq!(hold(&world, 2, uses(0, 0, 9)).await.slots, Granted::WHOLE);
    let until = world.now().plus(LeaseRequest::TERM);
    let apart = world.store.hold(Holder::apart(HolderId::from_number(1), until)).await.unwrap();
    assert_eq!(apart, Standing::apart(2));
}

pub(super) async fn the_slots_of_a_dead_gateway_move_with_its_tasks(world: World) {
    let dead = HolderId::from_number(1);
    hold(&world, 1, uses(0, 0, 9)).await;
    occupy(&world, dead, 2).await;
    assert_eq!(hold(&world, 2, uses(0, 0, 9)).await.slots.share, 0);
    world.pass(15);
    let heir = hold(&world, 2, uses(0, 0, 9)).await;
    assert_eq!((heir.slots, heir.submits.share), (granted(4, 4, 6), u32::MAX), "two are occupied");
    assert_eq!(heir.others_used, 2);
    assert_eq!(world.lease(HolderId::from_number(2)).await.len(), 2);
    // It has four and the two tasks now.
    let third = hold(&world, 3, uses(0, 0, 9)).await;
    assert_eq!(third.slots, granted(0, 0, 3));
    let heir = hold(&world, 2, uses(4, 2, 9)).await;
    assert_eq!(heir.slots, granted(3, 4, 3));
    assert_eq!(hold(&world, 3, uses(0, 0, 9)).await.slots, granted(2, 2, 3));
}

pub(super) async fn the_slots_of_released_tasks_are_not_free_until_somebody_has_them(world: World) {
    let leaves = HolderId::from_number(1);
    hold(&world, 1, uses(0, 0, 9)).await;
    occupy(&world, leaves, 2).await;
    world.store.release(leaves).await.unwrap();
    assert_eq!(hold(&world, 2, uses(0, 0, 9)).await.slots, granted(4, 4, 6));
    assert_eq!(world.lease(HolderId::from_number(2)).await.len(), 2);
    assert_eq!(hold(&world, 3, uses(0, 0, 9)).await.slots.share, 0, "the second has all six");
    world.store.release(HolderId::from_number(3)).await.unwrap();
    assert_eq!(hold(&world, 2, uses(4, 2, 9)).await.slots, Granted::WHOLE);
    // Tasks that nobody leases end some time, so they do not count for ever.
    world.store.release(HolderId::from_number(2)).await.unwrap();
    world.pass(14);
    assert_eq!(hold(&world, 4, uses(0, 0, 9)).await.slots.share, 4);
    world.pass(1);
    assert_eq!(hold(&world, 4, uses(4, 0, 9)).await.slots, Granted::WHOLE);
}

pub(super) async fn a_gateway_that_is_started_again_has_its_share_at_once(world: World) {
    let place = Place::named("here:8402");
    let [first, second] = [1, 3].map(|n| HolderId::draw_in(place, &Drawn(n)));
    assert_eq!(hold_as(&world, first, uses(0, 0, 9)).await.slots, Granted::WHOLE);
    assert_eq!(hold_as(&world, second, uses(0, 0, 9)).await.slots, Granted::WHOLE);
    // Its tasks are still at the provider, and cannot be leased yet.
    occupy(&world, second, 2).await;
    let third = HolderId::draw_in(place, &Drawn(5));
    let restarted = hold_as(&world, third, uses(0, 0, 9)).await;
    assert_eq!((restarted.gateways, restarted.slots), (1, granted(4, 4, 6)));
    assert_eq!(restarted.submits, Granted::WHOLE);
}
