//! Asking a store, and reading everything it has.

use std::fmt::Debug;

use domain::{
    claim::{Admission, Claim, Delivery},
    id::WorkerName,
    lease::Holder,
    ledger::Event,
    pool::{Level, StandingOrder},
    ports::{
        ClaimFilter, DeadLetterFilter, LeaseAsk, Note, Revival, Scope, StoreError, SweepAsk,
        TotalsAsk,
    },
    time::{Day, Timestamp},
};
use stores::Backend;

use super::{Act, Plan};

/// Asks one store; the answer is compared as text, which shows everything but secrets.
pub(super) async fn perform(
    on: &Backend,
    act: Act,
    now: Timestamp,
    plan: Option<&mut Plan>,
) -> String {
    let store = &on.store;
    match act {
        Act::Admit(new) => {
            let answer = store.admit(*new, now).await;
            if let (Some(plan), Ok(Admission::Opened(claim) | Admission::Stocked(claim))) =
                (plan, &answer)
            {
                plan.claims.push(claim.clone());
            }
            said(&answer)
        }
        Act::Fetch(id) => {
            let answer = store.deliver(id, now).await;
            let token = match &answer {
                Ok(Some(Delivery::Token(claim))) => store_tests::token_of(claim),
                Ok(Some(Delivery::Expired(_) | Delivery::Nothing(_)) | None) | Err(_) => None,
            };
            format!("{token:?} {answer:?}")
        }
        Act::Withdraw(id) => said(&store.withdraw(id, now).await),
        Act::Hold(id) => {
            said(&store.hold(Holder { id, until: now.plus(LeaseAsk::TERM) }, now).await)
        }
        Act::Release(id) => said(&store.release(id, now).await),
        Act::Lease(holder, limit) => {
            let answer = store.lease(LeaseAsk::any(holder, limit), now).await;
            if let (Some(plan), Ok(leases)) = (plan, &answer) {
                plan.leases.extend(leases.iter().cloned());
            }
            said(&answer)
        }
        Act::Decide(lease, decision) => {
            let answer = store.advance(&lease, decision, now).await;
            if let (Some(plan), Ok(Ok(solve))) = (plan, &answer) {
                plan.learn(solve);
            }
            said(&answer)
        }
        Act::Tell(solve, attempt, fact) => {
            let answer = store.settle(solve, attempt, fact, now).await;
            if let (Some(plan), Ok(settled)) = (plan, &answer) {
                plan.learn(&settled.solve);
            }
            said(&answer)
        }
        Act::Revive(_)
        | Act::SetPool(..)
        | Act::Refill(_)
        | Act::Purge(_)
        | Act::Callbacks(_)
        | Act::CalledBack(_) => by_people(on, act, now, plan).await,
        Act::Report(claim) => said(&store.note(bad_report(*claim), now).await),
        Act::Sweep(limit) => {
            let trouble = (limit % 2 == 1).then(|| "ERROR_ZERO_BALANCE".into());
            said(&store.sweep(SweepAsk { trouble, ..SweepAsk::plain(limit) }, now).await)
        }
    }
}

/// What people and receivers do.
async fn by_people(on: &Backend, act: Act, now: Timestamp, plan: Option<&mut Plan>) -> String {
    let store = &on.store;
    match act {
        Act::Revive(ask) => {
            let answer = store.revive(*ask, now).await;
            if let (Some(plan), Ok(Revival::Back(Admission::Opened(claim)))) = (plan, &answer) {
                plan.claims.push(claim.clone());
            }
            said(&answer)
        }
        Act::Purge(letter) => {
            said(&store.purge(letter, WorkerName::new("admin").unwrap(), now).await)
        }
        Act::Callbacks(limit) => {
            let answer = store.callbacks(limit, now).await;
            if let (Some(plan), Ok(callbacks)) = (plan, &answer) {
                plan.callbacks.extend(callbacks.iter().cloned());
            }
            said(&answer)
        }
        Act::CalledBack(callback) => said(&store.called_back(&callback, now).await),
        Act::SetPool(new, level) => {
            let order = StandingOrder {
                challenge: new.challenge,
                worker: new.worker,
                project: new.project,
                basis: new.basis,
                level: level.map_or(Level::Auto, Level::Fixed),
                most: 20,
                waste: 100,
                is_declared: true,
            };
            let order = (level != Some(0)).then_some(order);
            said(&store.set_pool(new.fingerprint, order, now).await)
        }
        Act::Refill(ask) => said(&store.refill(*ask, now).await),
        other => panic!("{other:?}"),
    }
}

fn bad_report(claim: Claim) -> Note {
    Note {
        claim: Some(claim.id),
        worker: claim.worker,
        project: claim.project,
        kind: Some(claim.kind),
        event: Event::Reported { good: false },
    }
}

fn said<T: Debug>(answer: &Result<T, StoreError>) -> String {
    // An error names its backend; that is the one difference there may be.
    let other = format!("{answer:?}");
    let backends = ["embedded", "redis", "postgres", "dynamodb"];
    backends.iter().fold(other, |text, backend| text.replace(backend, "memory"))
}

/// Everything both can be asked for at the end.
pub(super) async fn readings(on: &Backend, now: Timestamp) -> Vec<String> {
    let records = &on.records;
    let entries = records.entries(0, usize::MAX).await;
    let filter = ClaimFilter::all(Scope::All, usize::MAX);
    let open = DeadLetterFilter::open(Scope::All, usize::MAX);
    let letters = DeadLetterFilter { closed: true, ..open };
    let (from, to) = (Day::from_number(0), Day::from_number(u32::MAX));
    let history = records.history(filter).await;
    let mut all = vec![
        said(&entries),
        said(&records.dead_letters(letters).await),
        said(&records.active(Scope::All, 999).await),
        said(&records.totals(TotalsAsk { scope: Scope::All, from, to }).await),
        said(&records.stock_levels(now).await),
        said(&records.spending(now.day()).await),
        said(&records.pools(now).await),
        said(&records.margins().await),
    ];
    for claim in history.unwrap().items {
        all.push(said(&records.explain(claim.id).await));
        all.push(format!("{claim:?} {:?}", claim.token));
    }
    all
}
