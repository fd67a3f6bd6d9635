//! The challenges of all benches, and the declared sites that allow them. No real provider ever solves one.

use std::{collections::BTreeMap, sync::Arc};

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    declarations::{Declarations, Images},
    site::{PageUrl, Site},
};
use solvegate::exit::{Exit, Failure};

use crate::requests::ChallengeText;

/// The basis in the declarations.
pub(crate) const BASIS: &str = "own shop, bench";

/// Declares these hosts, and images without a page.
pub(crate) fn declared(hosts: &[&str]) -> Result<Arc<Declarations>, Failure> {
    let sites: Result<Vec<Site>, Failure> = hosts.iter().map(|host| site(host)).collect();
    let images = Some(Images::new(BASIS));
    Ok(Declarations { sites: sites?, images, ..Declarations::default() }.into())
}

/// The challenge of every bench that needs only one.
pub(crate) fn challenge() -> Result<Challenge, Failure> {
    let ChallengeText { sitekey, pageurl } = ChallengeText::new();
    on_page(Kind::Turnstile, sitekey, &pageurl)
}

pub(crate) fn on_page(kind: Kind, sitekey: String, pageurl: &str) -> Result<Challenge, Failure> {
    let pageurl = PageUrl::parse(pageurl).map_err(Failure::of(Exit::Failed))?;
    let draft = ChallengeParts {
        sitekey: Some(sitekey),
        pageurl: Some(pageurl),
        ..ChallengeParts::default()
    };
    Challenge::new(kind, draft).map_err(Failure::of(Exit::Failed))
}

/// An image without a page.
pub(crate) fn picture(bytes: Vec<u8>) -> Result<Challenge, Failure> {
    let draft = ChallengeParts {
        files: BTreeMap::from([("body".to_owned(), bytes)]),
        ..ChallengeParts::default()
    };
    Challenge::new(Kind::Image, draft).map_err(Failure::of(Exit::Failed))
}

fn site(host: &str) -> Result<Site, Failure> {
    Ok(Site::new(host.parse().map_err(Failure::of(Exit::Failed))?, BASIS))
}
