//! Performs an act on a store, and reads everything the store has.

use std::fmt::Debug;

use domain::{
    claim::{Admission, Claim, Delivery, NewClaim},
    lease::{Holder, Lease},
    ledger::Event,
    pool::{Level, StandingOrder},
    ports::{
        Advanced, ClaimFilter, DeadLetterFilter, LeaseRequest, Note, Revival, Scope, StoreError,
        SweepRequest, TotalsFilter,
    },
    time::{Day, Timestamp},
};
use stores::Backend;

use super::{Act, Plan};

/// Performs an act and returns the answer as text, which includes everything but secrets.
pub(super) async fn perform(
    on: &Backend,
    act: Act,
    now: Timestamp,
    plan: Option<&mut Plan>,
) -> String {
    let store = &on.store;
    match act {
        Act::Admit(new) => admit(on, *new, now, plan).await,
        Act::Fetch(id) => {
            let answer = store.deliver(id, now).await;
            let token = match &answer {
                Ok(Some(Delivery::Token(claim))) => store_tests::token_of(claim),
                Ok(Some(Delivery::Expired(_) | Delivery::Nothing(_)) | None) | Err(_) => None,
            };
            format!("{token:?} {answer:?}")
        }
        Act::Withdraw(id) => comparable(&store.withdraw(id, None, now).await),
        Act::Hold(id) => {
            comparable(&store.hold(Holder::apart(id, now.plus(LeaseRequest::TERM))).await)
        }
        Act::Release(id) => comparable(&store.release(id).await),
        Act::Lease(holder, limit) => lease(on, LeaseRequest::any(holder, limit), now, plan).await,
        Act::LeaseOne(holder, solve) => {
            lease(on, LeaseRequest::only(holder, solve), now, plan).await
        }
        Act::Decide(lease, decision) => {
            let answer = store.advance(&lease, decision, now).await;
            if let (Some(plan), Ok(Advanced::Done(solve))) = (plan, &answer) {
                plan.learn(solve);
            }
            comparable(&answer)
        }
        Act::Settle(solve, attempt, fact) => {
            let answer = store.settle(solve, attempt, fact, now).await;
            if let (Some(plan), Ok(settled)) = (plan, &answer) {
                plan.learn(&settled.solve);
            }
            comparable(&answer)
        }
        Act::Revive(_)
        | Act::SetPool(..)
        | Act::Refill(_)
        | Act::Purge(_)
        | Act::Callbacks(_)
        | Act::CalledBack(_)
        | Act::Withhold(..) => perform_rarely(on, act, now, plan).await,
        Act::Report(claim) => comparable(&store.note(bad_report(*claim), now).await),
        Act::Sweep(limit) => {
            let trouble = (limit % 2 == 1).then(|| "ERROR_ZERO_BALANCE".into());
            comparable(
                &store.sweep(SweepRequest { trouble, ..SweepRequest::plain(limit) }, now).await,
            )
        }
    }
}

async fn admit(on: &Backend, new: NewClaim, now: Timestamp, plan: Option<&mut Plan>) -> String {
    let answer = on.store.admit(new, now).await;
    match (plan, &answer) {
        (Some(plan), Ok(Admission::Opened(claim) | Admission::Stocked(claim))) => {
            plan.claims.push(claim.clone());
        }
        (Some(plan), Ok(Admission::Started(claim, lease))) => {
            plan.claims.push(claim.clone());
            plan.leases.push(Lease::clone(lease));
        }
        _ => {}
    }
    comparable(&answer)
}

async fn lease(
    on: &Backend,
    request: LeaseRequest,
    now: Timestamp,
    plan: Option<&mut Plan>,
) -> String {
    let answer = on.store.lease(request, now).await;
    if let (Some(plan), Ok(leases)) = (plan, &answer) {
        plan.leases.extend(leases.iter().cloned());
    }
    comparable(&answer)
}

/// Acts of operators and callback receivers, and of a gateway after a lost answer.
async fn perform_rarely(on: &Backend, act: Act, now: Timestamp, plan: Option<&mut Plan>) -> String {
    let store = &on.store;
    match act {
        Act::Revive(ask) => {
            let answer = store.revive(*ask, now).await;
            if let (Some(plan), Ok(Revival::Back(Admission::Opened(claim)))) = (plan, &answer) {
                plan.claims.push(claim.clone());
            }
            comparable(&answer)
        }
        Act::Purge(dead_letter) => {
            comparable(&store.purge(dead_letter, store_tests::admin(), now).await)
        }
        Act::Callbacks(limit) => {
            let answer = store.callbacks(limit, now).await;
            if let (Some(plan), Ok(callbacks)) = (plan, &answer) {
                plan.callbacks.extend(callbacks.iter().cloned());
            }
            comparable(&answer)
        }
        Act::CalledBack(callback) => comparable(&store.called_back(&callback, now).await),
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
            comparable(
                &store.set_pool(new.fingerprint, order, Some(store_tests::admin()), now).await,
            )
        }
        Act::Withhold(claim, solve, nonce) => {
            comparable(&store.withhold_start(claim, solve, nonce, now).await)
        }
        Act::Refill(ask) => comparable(&store.refill(*ask, now).await),
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
        by: None,
    }
}

fn comparable<T: Debug>(answer: &Result<T, StoreError>) -> String {
    // An error names its backend; that is the only difference allowed.
    let other = format!("{answer:?}");
    let backends = ["embedded", "redis", "postgres", "dynamodb"];
    backends.iter().fold(other, |text, backend| text.replace(backend, "memory"))
}

/// Everything that can be read at the end.
pub(super) async fn readings(on: &Backend, now: Timestamp) -> Vec<String> {
    let mut all = vec![comparable(&on.records.entries(0, usize::MAX).await)];
    all.extend(lists_and_sums(on, now).await);
    for claim in claims(on).await {
        all.push(comparable(&on.records.explain(claim.id).await));
        all.push(format!("{claim:?} {:?}", claim.token));
    }
    all
}

/// What can be read at the end, but nothing that has numbers of the ledger.
pub(super) async fn lists_and_sums(on: &Backend, now: Timestamp) -> Vec<String> {
    let records = &on.records;
    let open = DeadLetterFilter::open(Scope::All, usize::MAX);
    let dead_letters = DeadLetterFilter { closed: true, ..open };
    let (from, to) = (Day::from_number(0), Day::from_number(u32::MAX));
    vec![
        comparable(&records.dead_letters(dead_letters).await),
        comparable(&records.active(Scope::All, 999).await),
        comparable(&records.totals(TotalsFilter { scope: Scope::All, from, to }).await),
        comparable(&records.spending(now.day()).await),
        comparable(&records.pools(now).await),
        comparable(&records.margins().await),
    ]
}

pub(super) async fn claims(on: &Backend) -> Vec<Claim> {
    let filter = ClaimFilter::all(Scope::All, usize::MAX);
    on.records.history(filter).await.unwrap().items
}
