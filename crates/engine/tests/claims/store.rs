//! The store with a log of its calls, and with faults that the test lists.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    account_share::Standing,
    actor::Actor,
    admin_action::AdminAction,
    callback::Callback,
    challenge::Challenge,
    claim::{Admission, Claim, Delivery, NewClaim, Repeats},
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, SolveId},
    lease::{Holder, Lease},
    money::Money,
    pause::Pauses,
    pool::{Expectation, Pool, StandingOrder},
    ports::{
        Advanced, Clock, LeaseRequest, Note, PauseRequest, PauseResult, RefillRequest, Refilled,
        Revival, ReviveRequest, Settled, Store, StoreError, StoreResult, SweepRequest, Swept,
        Withdrawal,
    },
    solve::{Decision, Fact, Solve},
    time::Timestamp,
};

#[derive(Debug)]
pub(crate) struct WatchedStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The names of the calls that were carried out, in order.
    calls: Mutex<Vec<&'static str>>,
    faults: Mutex<VecDeque<(&'static str, Fault)>>,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It fails and was not carried out.
    Unreached,
    /// It was carried out, and fails.
    ReplyLost,
    /// It is carried out, and its reply comes late.
    Late(Duration),
}

impl WatchedStore {
    pub(crate) fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, clock, calls: Mutex::default(), faults: Mutex::default() }
    }

    /// The next calls with these names meet these faults.
    pub(crate) fn plan(&self, faults: impl IntoIterator<Item = (&'static str, Fault)>) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// How often a call with this name was carried out.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| **call == name).count()
    }

    async fn pass<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let place = faults.iter().position(|(of, _)| *of == name);
            place.and_then(|place| faults.remove(place)).map(|(_, fault)| fault)
        };
        let failed = || Err(StoreError::unavailable("watched", "a fault of the test"));
        if matches!(fault, Some(Fault::Unreached)) {
            return failed();
        }
        let result = call.await;
        self.calls.lock().unwrap().push(name);
        match fault {
            Some(Fault::ReplyLost) => failed(),
            Some(Fault::Late(length)) => {
                self.clock.sleep_until(self.clock.now().plus(length)).await;
                result
            }
            Some(Fault::Unreached) | None => result,
        }
    }
}

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)+) => {
        #[async_trait]
        impl Store for WatchedStore {
            $(async fn $name(&self, $($arg: $type),*) -> StoreResult<$result> {
                self.pass(stringify!($name), self.inner.$name($($arg),*)).await
            })+
        }
    };
}

pass_on! {
    admit(claim: NewClaim, now: Timestamp) -> Admission;
    withhold_start(claim: ClaimId, solve: SolveId, nonce: Nonce, now: Timestamp) -> Option<Claim>;
    find_claim(id: ClaimId) -> Option<Claim>;
    find_claims(ids: Vec<ClaimId>) -> Vec<Claim>;
    find_challenge(id: SolveId) -> Option<Arc<Challenge>>;
    find_solve(id: SolveId) -> Option<Solve>;
    deliver(id: ClaimId, now: Timestamp) -> Option<Delivery>;
    withdraw(id: ClaimId, by: Option<Actor>, now: Timestamp) -> Option<Withdrawal>;
    count_fetches(fetches: Vec<(ClaimId, u64)>) -> ();
    repeats(id: ClaimId) -> Repeats;
    compare_clock() -> ();
    hold(holder: Holder) -> Standing;
    release(holder: HolderId) -> ();
    lease(ask: LeaseRequest, now: Timestamp) -> Vec<Lease>;
    advance(lease: &Lease, decision: Decision, now: Timestamp) -> Advanced;
    settle(solve: SolveId, attempt: u32, fact: Fact, now: Timestamp) -> Settled;
    note(note: Note, now: Timestamp) -> bool;
    revive(ask: ReviveRequest, now: Timestamp) -> Revival;
    purge(letter: SolveId, by: Actor, now: Timestamp) -> bool;
    callbacks(limit: usize, now: Timestamp) -> Vec<Callback>;
    called_back(callback: &Callback, now: Timestamp) -> ();
    set_pool(of: Fingerprint, order: Option<StandingOrder>, by: Option<Actor>, now: Timestamp)
        -> Option<Pool>;
    expect(of: Fingerprint, demand: Expectation, by: Option<Actor>, now: Timestamp) -> Option<Pool>;
    refill(ask: RefillRequest, now: Timestamp) -> Refilled;
    set_pause(request: PauseRequest, now: Timestamp) -> PauseResult;
    pauses() -> Pauses;
    administer(by: Actor, action: AdminAction, now: Timestamp) -> ();
    ask_balance(least_gap: Duration, now: Timestamp) -> Option<u32>;
    record_balance(number: u32, amount: Money, now: Timestamp) -> ();
    set_memo(name: &str, value: Vec<u8>) -> ();
    memos(prefix: &str) -> Vec<(String, Vec<u8>)>;
    sweep(ask: SweepRequest, now: Timestamp) -> Swept;
}
