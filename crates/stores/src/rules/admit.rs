//! An arriving claim: replayed under its key, served from stock, joined to a solve under way, or opened.

use domain::{
    challenge::Sharing,
    claim::{Admission, Claim, ClaimState, KeyRule, NewClaim, Source},
    fingerprint::KeyHash,
    id::{ClaimId, SolveId},
    ledger::{Counts, Event},
    money::Money,
    ports::{Spent, StoreError},
    solve::{Origin, Solve, Stage},
    time::Timestamp,
    token::{MIN_LEFT, Token},
};

use crate::{
    keys::{KeyBytes, Text},
    tables::{
        Challenges, Claims, Expiries, Joinable, Keyed, Keys, Solves, Spending, Stock, Stocked,
    },
    tx::{Order, TypedRead, TypedWrite, WriteTx},
};

use super::{
    deliver::{hand_out, tell_delivered},
    garbage::KEY_KEPT,
    hurry::{hurry, take_over, wanted_now},
    keep,
    place::allotted,
    pools,
    step::Step,
};

/// Decides an arriving claim.
pub(crate) fn admit(
    tx: &mut dyn WriteTx,
    new: &NewClaim,
    now: Timestamp,
) -> Result<Admission, StoreError> {
    if tx.has::<Claims>(&new.id)? || tx.has::<Solves>(&new.solve)? {
        return Ok(Admission::NameTaken);
    }
    let mut step = Step::new(tx, now);
    let admission = match recognise(&step, new)? {
        Recognised::Another(id) => return Ok(Admission::Mismatch(id)),
        Recognised::Same(claim) => {
            let claim = hurry(&mut step, *claim, new)?;
            Admission::Replayed(replay(&mut step, new, claim)?)
        }
        Recognised::Unknown => decide_new(&mut step, new)?,
    };
    step.finish()?;
    Ok(admission)
}

/// Served from stock, joined, or opened.
pub(super) fn decide_new(step: &mut Step<'_>, new: &NewClaim) -> Result<Admission, StoreError> {
    let stocked = take_stock(step, new)?;
    if let Some(stocked) = stocked {
        pools::arrived(step, new.fingerprint, true)?;
        return Ok(Admission::Stocked(serve(step, new, stocked.token)?));
    }
    let is_live = new.revives.is_none();
    if is_live && let Some(claim) = take_over(step, new)? {
        return Ok(Admission::Joined(claim));
    }
    if let Some(solve) = find_joinable(step, new)? {
        let solve = if is_live { wanted_now(step, &solve, new.solve)? } else { solve };
        return Ok(Admission::Joined(join(step, new, &solve)?));
    }
    if new.deadline < new.soonest {
        return Ok(Admission::TooLate);
    }
    let spent = spent_today(step, new)?;
    if let Some(limit) = used_up(new, spent) {
        let until = step.now.day().end();
        return Ok(Admission::OverBudget { limit, until });
    }
    pools::arrived(step, new.fingerprint, false)?;
    Ok(Admission::Opened(open(step, new, spent)?))
}

// === replay ===

/// What a claim's key says about it.
enum Recognised {
    Unknown,
    Same(Box<Claim>),
    Another(ClaimId),
}

fn recognise(step: &Step<'_>, new: &NewClaim) -> Result<Recognised, StoreError> {
    let Some(hash) = key_of(new) else { return Ok(Recognised::Unknown) };
    let Some(row) = step.tx.get::<Keys>(&KeyBytes::from(&hash))? else {
        return Ok(Recognised::Unknown);
    };
    let Some(claim) = step.tx.get::<Claims>(&row.claim)? else {
        return Ok(Recognised::Unknown);
    };
    if !still_known(&new.key, &claim, step.now) {
        return Ok(Recognised::Unknown);
    }
    if row.fingerprint != new.fingerprint {
        return Ok(Recognised::Another(row.claim));
    }
    Ok(Recognised::Same(Box::new(claim)))
}

pub(super) fn key_of(new: &NewClaim) -> Option<KeyHash> {
    match new.key {
        KeyRule::Named(hash) | KeyRule::Derived { hash, .. } => Some(hash),
        KeyRule::Own => None,
    }
}

/// A worker's own key stands for its claim for a day after the end, whatever the end was. A derived one stands for
/// work in flight, and for its token as long as that is worth having.
fn still_known(rule: &KeyRule, claim: &Claim, now: Timestamp) -> bool {
    let Some(ended_at) = claim.ended_at else { return true };
    match rule {
        KeyRule::Named(_) => now < ended_at.plus(KEY_KEPT),
        KeyRule::Derived { window, .. } => {
            now < ended_at.plus(*window)
                && claim.token.as_ref().is_some_and(|token| token.is_usable(now))
        }
        KeyRule::Own => false,
    }
}

fn replay(step: &mut Step<'_>, new: &NewClaim, claim: Claim) -> Result<Claim, StoreError> {
    step.tell_with(&claim, Event::Replayed, saving(new));
    match claim.token.clone() {
        Some(token)
            if new.collect && claim.state == ClaimState::Served && token.is_usable(step.now) =>
        {
            hand_out(step, claim, &token)
        }
        Some(_) | None => Ok(claim),
    }
}

fn saving(new: &NewClaim) -> Counts {
    Counts { saved: new.price.unwrap_or_default(), ..Counts::default() }
}

// === stock ===

/// The token to serve: of exclusive ones the first to die, which leaves the stock; of shared ones the last to die.
fn take_stock(step: &mut Step<'_>, new: &NewClaim) -> Result<Option<Stocked>, StoreError> {
    let edge = |at, n| (new.fingerprint, at, SolveId::from_number(n));
    let usable =
        edge(step.now.plus(MIN_LEFT), 0)..=edge(Timestamp::from_millis(u64::MAX), u64::MAX);
    let exclusive = new.challenge.kind().sharing() == Sharing::Exclusive;
    let order = if exclusive { Order::Rising } else { Order::Falling };
    let Some((key, stocked)) = step.tx.scan::<Stock>(usable, order, 1)?.pop() else {
        return Ok(None);
    };
    if exclusive {
        let (fingerprint, usable_until, solve) = key;
        step.tx.take::<Stock>(&key)?;
        step.tx.take::<Expiries>(&(usable_until, fingerprint, solve))?;
    }
    Ok(Some(stocked))
}

fn serve(step: &mut Step<'_>, new: &NewClaim, token: Token) -> Result<Claim, StoreError> {
    let mut claim = claim_of(new, step.now);
    claim.state = ClaimState::Served;
    claim.source = Some(Source::Stock);
    claim.ended_at = Some(step.now);
    claim.cost = Some(Money::ZERO);
    let counts = Counts { claims: 1, stocked: 1, ..saving(new) };
    step.tell_with(&claim, allotted(&token, Source::Stock), counts);
    if new.collect {
        claim.delivered_at = Some(step.now);
        tell_delivered(step, &claim, &token);
    }
    claim.token = Some(token);
    remember(step, new, &claim)?;
    Ok(claim)
}

// === join ===

fn find_joinable(step: &Step<'_>, new: &NewClaim) -> Result<Option<Solve>, StoreError> {
    let edge = |n| (new.fingerprint, SolveId::from_number(n));
    let rows = step.tx.scan::<Joinable>(edge(0)..=edge(u64::MAX), Order::Rising, 1)?;
    match rows.first() {
        Some(((_, id), ())) => keep::named_solve(step.tx, *id).map(Some),
        None => Ok(None),
    }
}

/// One more claim waits for a solve under way.
pub(super) fn join(
    step: &mut Step<'_>,
    new: &NewClaim,
    before: &Solve,
) -> Result<Claim, StoreError> {
    let mut claim = claim_of(new, step.now);
    claim.solve = Some(before.id);
    step.tell_with(&claim, Event::Joined, saving(new));
    let mut solve = before.clone();
    solve.join(claim.id, claim.deadline);
    keep::solve(step.tx, before, &solve)?;
    remember(step, new, &claim)?;
    Ok(claim)
}

// === open ===

fn spent_today(step: &Step<'_>, new: &NewClaim) -> Result<Spent, StoreError> {
    let key = (step.now.day(), Text::new(new.worker.as_str()));
    Ok(step.tx.get::<Spending>(&key)?.unwrap_or_default())
}

/// Which limit one more solve would break.
fn used_up(new: &NewClaim, spent: Spent) -> Option<&'static str> {
    if new.allowance.solves_per_day.is_some_and(|limit| spent.opened >= limit) {
        return Some("solves_per_day");
    }
    let limit = new.allowance.cost_per_day?;
    match new.price {
        Some(price) => (spent.listed + price > limit).then_some("cost_per_day"),
        // An unknown price is not zero: it fits no budget.
        None => Some("cost_per_day, which needs a price_per_1000 of this kind"),
    }
}

fn open(step: &mut Step<'_>, new: &NewClaim, spent: Spent) -> Result<Claim, StoreError> {
    let mut claim = claim_of(new, step.now);
    claim.solve = Some(new.solve);
    step.tell(&claim, Event::Opened { basis: new.basis.as_ref().to_owned() });
    keep::new_solve(step.tx, &solve_of(new, step.now))?;
    step.tx.put::<Challenges>(new.solve, new.challenge.clone())?;
    let now =
        Spent { opened: spent.opened + 1, listed: spent.listed + new.price.unwrap_or_default() };
    step.tx.put::<Spending>((step.now.day(), Text::new(new.worker.as_str())), now)?;
    remember(step, new, &claim)?;
    Ok(claim)
}

/// Writes the new claim and its key.
pub(super) fn remember(
    step: &mut Step<'_>,
    new: &NewClaim,
    claim: &Claim,
) -> Result<(), StoreError> {
    if let Some(hash) = claim.key {
        let row = Keyed { claim: claim.id, fingerprint: new.fingerprint };
        step.tx.put::<Keys>(KeyBytes::from(&hash), row)?;
    }
    keep::new_claim(step.tx, claim)
}

/// The claim as it comes in.
pub(super) fn claim_of(new: &NewClaim, now: Timestamp) -> Claim {
    Claim {
        id: new.id,
        worker: new.worker.clone(),
        project: new.project.clone(),
        door: new.door,
        kind: new.challenge.kind().clone(),
        sitekey: new.challenge.sitekey().map(str::to_owned),
        pageurl: new.challenge.pageurl().map(|page| page.as_str().to_owned()),
        basis: new.basis.clone(),
        fingerprint: new.fingerprint,
        key: key_of(new),
        solve: None,
        state: ClaimState::Waiting,
        source: None,
        opened_at: now,
        deadline: new.deadline,
        ended_at: None,
        delivered_at: None,
        token: None,
        code: None,
        attempts: 0,
        polls: 0,
        cost: None,
        callback_url: new.callback_url.clone(),
        revives: new.revives,
        report: None,
    }
}

fn solve_of(new: &NewClaim, now: Timestamp) -> Solve {
    let origin = match new.revives {
        Some(letter) => Origin::Revived { letter, claim: new.id },
        None => Origin::Claim(new.id),
    };
    Solve {
        id: new.solve,
        origin,
        fingerprint: new.fingerprint,
        kind: new.challenge.kind().clone(),
        worker: new.worker.clone(),
        project: new.project.clone(),
        claims: vec![new.id],
        stage: Stage::Queued,
        fence: domain::lease::Fence::default(),
        holder: None,
        attempt: 0,
        nonce: None,
        task: None,
        opened_at: now,
        wanted_until: new.deadline,
        accepted_at: None,
        due: now,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        price: new.price,
        policy: new.policy,
        ended_at: None,
    }
}
