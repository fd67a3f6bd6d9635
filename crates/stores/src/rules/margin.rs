//! How early tokens have to be used: a token handed out late and refused by the site raises the margin of that site and
//! kind, one that was taken lowers it again. Tokens handed out early tell nothing about it.

use std::time::Duration;

use domain::{
    claim::Claim,
    ports::{Feedback, LearnedMargin, StoreError},
    site::PageUrl,
    solve::Solve,
};

use crate::{
    keys::Text,
    tables::{Challenges, Margins},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

/// A refusal adds this part of the usable time, a success takes a quarter of that away.
const STEP: u32 = 10;
/// At most this part of the usable time is held back in addition.
const MOST: u32 = 2;

/// Learns from a report about a claim's token.
pub(super) fn learn(
    tx: &mut dyn WriteTx,
    claim: &Claim,
    feedback: Feedback,
) -> Result<(), StoreError> {
    let (Some(token), Some(delivered_at)) = (&claim.token, claim.delivered_at) else {
        return Ok(());
    };
    let Some(host) = claim.pageurl.as_deref().and_then(host_of) else { return Ok(()) };
    let usable = token.usable_until.since(token.ready_lower);
    let is_late = delivered_at.since(token.ready_lower) * 2 >= usable;
    if !is_late {
        return Ok(());
    }
    let key = (Text::new(&host), Text::new(claim.kind.name()));
    let mut margin = tx.get::<Margins>(&key)?.unwrap_or_else(|| LearnedMargin {
        host,
        kind: claim.kind.clone(),
        extra: Duration::ZERO,
        good: 0,
        bad: 0,
    });
    // The token's own time was shortened already: steps are of the kind's whole time.
    let whole = usable + margin.extra;
    match feedback {
        Feedback::Bad => {
            margin.bad += 1;
            margin.extra = (margin.extra + whole / STEP).min(whole / MOST);
        }
        Feedback::Good => {
            margin.good += 1;
            margin.extra = margin.extra.saturating_sub(whole / (STEP * 4));
        }
    }
    tx.put::<Margins>(key, margin)
}

/// What is held back of the token of a solve, besides the kind's own margin.
pub(super) fn extra(tx: &dyn ReadTx, solve: &Solve) -> Result<Duration, StoreError> {
    let Some(challenge) = tx.get::<Challenges>(&solve.id)? else { return Ok(Duration::ZERO) };
    let Some(page) = challenge.pageurl() else { return Ok(Duration::ZERO) };
    let key = (Text::new(page.host()), Text::new(solve.kind.name()));
    Ok(tx.get::<Margins>(&key)?.map_or(Duration::ZERO, |margin| margin.extra))
}

fn host_of(page: &str) -> Option<String> {
    PageUrl::parse(page).ok().map(|page| page.host().to_owned())
}
