//! Readings of the account's balance: one gateway asks, and the ledger shows when.

use std::time::Duration;

use domain::{ledger::Event, money::Money};

use crate::World;

const GAP: Duration = Duration::from_secs(900);

pub(super) async fn one_gateway_reads_the_balance_per_interval(world: World) {
    let ask = || world.store.ask_balance(GAP, world.now());
    let first = ask().await.unwrap().expect("nobody has read it yet");
    assert_eq!(ask().await.unwrap(), None, "another gateway reads it");
    world.store.record_balance(first, Money::from_micros(7), world.now()).await.unwrap();
    world.pass(600);
    assert_eq!(ask().await.unwrap(), None);
    world.pass(300);
    let second = ask().await.unwrap().expect("a quarter of an hour later");
    assert_ne!(first, second);
    assert_eq!(
        world.store.ask_balance(Duration::ZERO, world.now()).await.unwrap(),
        Some(second + 1),
        "an operator asks at once"
    );
    let events: Vec<Event> = world.entries().await.into_iter().map(|entry| entry.event).collect();
    let expected = [
        Event::BalanceAsked { number: first },
        Event::BalanceRead { number: first, amount: Money::from_micros(7) },
        Event::BalanceAsked { number: second },
        Event::BalanceAsked { number: second + 1 },
    ];
    assert_eq!(events, expected);
}

pub(super) async fn a_new_day_has_a_reading_of_its_own(world: World) {
    let midnight = world.now().day().end();
    let before = midnight.minus(Duration::from_secs(5));
    assert!(world.store.ask_balance(GAP, before).await.unwrap().is_some());
    let after = midnight.plus(Duration::from_secs(5));
    assert!(world.store.ask_balance(GAP, after).await.unwrap().is_some());
    assert!(world.store.ask_balance(GAP, after).await.unwrap().is_none());
}
