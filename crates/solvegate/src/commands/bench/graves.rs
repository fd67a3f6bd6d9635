//! Dead letters for `letters`, made as they are in life, through the `Store` port: claims come in, attempts are intended,
//! and the service refuses them or gives them up. Of several workers, kinds, hosts and codes; every tenth equals the one
//! before it, so that both come back as one solve.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use domain::{
    challenge::{Challenge, Kind},
    claim::{Admission, Allowance, Door, KeyRule, NewClaim},
    fingerprint::{Fingerprint, Identity, KeyHash},
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    lease::{Holder, Lease},
    money::Money,
    ports::{Chance, LeaseAsk, Store},
    retry::Verdict,
    solve::{Decision, Fact, Policy},
    time::Timestamp,
};
use futures_util::future::try_join_all;

use super::challenges::{BASIS, on_page, picture};
use crate::exit::{Exit, Failure};

/// Makes letters, each lot some time after the one before.
pub(super) struct Digger<'p> {
    pub(super) store: &'p dyn Store,
    pub(super) chance: &'p dyn Chance,
    pub(super) holder: HolderId,
    /// When the next lot dies.
    pub(super) now: Timestamp,
    /// From lot to lot.
    pub(super) gap: Duration,
    /// Numbers are never used twice.
    pub(super) made: usize,
}

/// Letters that died one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plot {
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) letters: usize,
    /// Solves they come back as.
    pub(super) distinct: usize,
}

/// Hosts of their pages.
pub(super) const HOSTS: [&str; 3] = ["shop.example.com", "blog.example.com", "desk.example.com"];
/// The first letter of every plot has it.
pub(super) const RARE: &str = "ERROR_BAD_PARAMETERS";
/// A letter of this code was paid for; the others were refused.
const UNSOLVABLE: &str = "ERROR_CAPTCHA_UNSOLVABLE";
const CODES: [&str; 3] = [UNSOLVABLE, "ERROR_PAGEURL", "ERROR_BAD_TOKEN_OR_PAGEURL"];
pub(super) const WORKERS: [&str; 4] = ["ann", "bob", "cem", "dee"];
const PRICE: Money = Money::from_micros(1_450);
/// Letters that die at the same moment.
pub(super) const LOT: usize = 100;
/// One of so many equals the one before it.
const EQUAL_OF: usize = 10;

// === impl Digger ===

impl Digger<'_> {
    /// Makes so many letters.
    pub(super) async fn dig(&mut self, letters: usize) -> Result<Plot, Failure> {
        let since = self.now;
        let mut until = since;
        let mut numbers: Vec<usize> = (0..letters).collect();
        while !numbers.is_empty() {
            let rest = numbers.split_off(numbers.len().min(LOT));
            until = self.now;
            self.dig_lot(&numbers).await?;
            self.now = self.now.plus(self.gap);
            numbers = rest;
        }
        self.made += letters;
        Ok(Plot { since, until, letters, distinct: letters - letters / EQUAL_OF })
    }

    /// All at once: a store that writes to a disk takes many decisions in one go.
    async fn dig_lot(&self, numbers: &[usize]) -> Result<(), Failure> {
        let holder = Holder { id: self.holder, until: self.now.plus(LeaseAsk::TERM) };
        self.store.hold(holder, self.now).await.map_err(failed)?;
        let opened = try_join_all(numbers.iter().map(|number| self.open(*number))).await?;
        let codes: BTreeMap<SolveId, &str> = opened.into_iter().collect();
        let ask = LeaseAsk::any(self.holder, LOT);
        let leases = self.store.lease(ask, self.now).await.map_err(failed)?;
        let bury = leases.iter().map(|lease| self.bury(lease, codes[&lease.solve.id]));
        let buried = try_join_all(bury).await?.len();
        if buried == numbers.len() {
            return Ok(());
        }
        let why = format!("{buried} of {} dead letters were made", numbers.len());
        Err(Failure::new(Exit::Failed, why))
    }

    /// Opens a solve; the code is what it will die of.
    async fn open(&self, number: usize) -> Result<(SolveId, &'static str), Failure> {
        let equal = number % EQUAL_OF == EQUAL_OF - 1;
        let place = number - usize::from(equal);
        let serial = self.made + place;
        let worker = WORKERS[place % WORKERS.len()];
        let mut new = new_claim(worker, challenge(place, serial)?, (self.chance, self.now))?;
        // Half of them have keys of their own; equal ones are equal only without.
        if number % EQUAL_OF < EQUAL_OF / 2 {
            let key = KeyHash::named(&new.worker, &serial.to_string());
            new.key = KeyRule::Named(key.map_err(failed)?);
        }
        let solve = new.solve;
        admit(self.store, new, self.now).await?;
        Ok((solve, if number == 0 { RARE } else { CODES[number % CODES.len()] }))
    }

    async fn bury(&self, lease: &Lease, code: &str) -> Result<(), Failure> {
        let nonce = Nonce::draw(self.chance);
        let intended = self.store.advance(lease, Decision::Intend { nonce }, self.now).await;
        let solve = intended.map_err(failed)?.map_err(failed)?;
        let verdict = Verdict::GiveUp;
        let facts = if code == UNSOLVABLE {
            let task = TaskId::new(lease.solve.id.number().to_string()).map_err(failed)?;
            let over = Fact::TaskOver { code: code.into(), verdict, cost: Some(PRICE), polls: 3 };
            vec![Fact::Accepted { task, sent_at: self.now }, over]
        } else {
            vec![Fact::NotAccepted { code: code.into(), verdict }]
        };
        for fact in facts {
            let settled = self.store.settle(solve.id, solve.attempt, fact, self.now).await;
            settled.map_err(failed)?;
        }
        Ok(())
    }
}

/// Every fifth is a picture, whose text several could share; the equal ones never are.
fn challenge(place: usize, serial: usize) -> Result<Challenge, Failure> {
    let kind = match place % 5 {
        0 | 3 => Kind::Turnstile,
        1 => Kind::RecaptchaV2,
        2 => return picture(format!("{serial:0200}").into_bytes()),
        _ => Kind::Hcaptcha,
    };
    let host = HOSTS[place % HOSTS.len()];
    on_page(kind, format!("0x4-{serial}"), &format!("https://{host}/login"))
}

/// A claim that opens a solve of its own.
pub(super) fn new_claim(
    worker: &str,
    challenge: Challenge,
    (chance, now): (&dyn Chance, Timestamp),
) -> Result<NewClaim, Failure> {
    let fingerprint = Fingerprint::of(&challenge, Identity::default());
    Ok(NewClaim {
        id: ClaimId::draw(chance, &fingerprint),
        solve: SolveId::draw(chance, &fingerprint),
        worker: WorkerName::new(worker).map_err(failed)?,
        project: Project::new("bench").map_err(failed)?,
        door: Door::V1,
        challenge: Arc::new(challenge),
        fingerprint,
        basis: BASIS.into(),
        key: KeyRule::Own,
        deadline: now.plus(Duration::from_secs(3600)),
        price: Some(PRICE),
        allowance: Allowance::default(),
        policy: Policy::default(),
        collect: false,
        callback_url: None,
        soonest: now,
        revives: None,
    })
}

/// Lets a claim in that must open a solve.
pub(super) async fn admit(
    store: &dyn Store,
    new: NewClaim,
    now: Timestamp,
) -> Result<ClaimId, Failure> {
    match store.admit(new, now).await.map_err(failed)? {
        Admission::Opened(claim) => Ok(claim.id),
        Admission::Replayed(_)
        | Admission::Stocked(_)
        | Admission::Joined(_)
        | Admission::Mismatch(_)
        | Admission::OverBudget { .. }
        | Admission::TooLate
        | Admission::NameTaken => {
            Err(Failure::new(Exit::Failed, "a new claim opened no solve: nothing can be measured"))
        }
    }
}

fn failed(error: impl fmt::Display) -> Failure {
    Failure::new(Exit::Failed, error)
}
