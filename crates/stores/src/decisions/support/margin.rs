//! Learns how early a site needs its tokens. When a site refuses a token that was delivered late in its life, the margin of
//! that site and kind grows; when it accepts one, the margin shrinks. Tokens that were delivered early teach nothing.

use std::time::Duration;

use domain::{
    claim::Claim,
    ports::{Feedback, LearnedMargin},
    site::PageUrl,
    solve::Solve,
};

use crate::{
    Result,
    schema::keys::Text,
    schema::tables::{Challenges, Margins},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

/// A refusal adds this fraction (1/n) of the token's life to the margin. A success removes a quarter of that.
const STEP: u32 = 10;
/// The margin is at most this fraction (1/n) of the token's life.
const LIMIT: u32 = 2;

/// Learns from a report about a claim's token.
pub(crate) fn learn(tx: &mut dyn WriteTx, claim: &Claim, feedback: Feedback) -> Result<()> {
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
    // The margin shortened the life of this token. Steps are fractions of the whole life.
    let whole = usable + margin.extra;
    match feedback {
        Feedback::Bad => {
            margin.bad += 1;
            margin.extra = (margin.extra + whole / STEP).min(whole / LIMIT);
        }
        Feedback::Good => {
            margin.good += 1;
            margin.extra = margin.extra.saturating_sub(whole / (STEP * 4));
        }
    }
    tx.put::<Margins>(key, margin)
}

/// The learned margin for the token of a solve, in addition to the margin of its kind.
pub(crate) fn learned_margin(tx: &dyn ReadTx, solve: &Solve) -> Result<Duration> {
    let Some(challenge) = tx.get::<Challenges>(&solve.id)? else { return Ok(Duration::ZERO) };
    let Some(page) = challenge.pageurl() else { return Ok(Duration::ZERO) };
    let key = (Text::new(page.host()), Text::new(solve.kind.name()));
    Ok(tx.get::<Margins>(&key)?.map_or(Duration::ZERO, |margin| margin.extra))
}

fn host_of(page: &str) -> Option<String> {
    PageUrl::parse(page).ok().map(|page| page.host().to_owned())
}
