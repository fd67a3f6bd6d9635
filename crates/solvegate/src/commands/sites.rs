//! `solvegate sites`: lists the declared sites and checks whether a page is covered, without a gateway.

use domain::{
    challenge::Kind,
    declarations::Images,
    ports::Clock as _,
    site::{PageUrl, Site},
    time::Day,
};
use doors::site_json;
use serde_json::json;

use super::Context;
use crate::{
    cli::SitesAction,
    clock::SystemClock,
    exit::{Exit, Failure},
    output,
};

pub(super) fn run(context: &Context, action: &SitesAction) -> Result<(), Failure> {
    let declarations = context.sources.load()?.declarations;
    match action {
        SitesAction::List { json: true } => {
            let sites: Vec<_> = declarations.sites.iter().map(site_json).collect();
            let images = declarations.images.as_ref();
            output::json(&json!({
                "sites": sites,
                "images": images.map(|images| &images.basis),
                "images_kinds": images.map(|images| &images.kinds),
                "images_expires": images.and_then(|images| images.expires),
            }))
        }
        SitesAction::List { json: false } => {
            list(&declarations.sites, declarations.images.as_ref())
        }
        SitesAction::Check { url, json } => {
            let page = PageUrl::parse(url).map_err(Failure::of(Exit::Refused))?;
            let now = SystemClock::start().now();
            let site = declarations.site(&page, now).map_err(Failure::of(Exit::Refused))?;
            if *json {
                return output::json(&json!({ "canonical": page, "site": site_json(site) }));
            }
            output::line(format_args!("{page} is covered by {}: {}", site.rule, site.basis))
        }
    }
}

fn list(sites: &[Site], images: Option<&Images>) -> Result<(), Failure> {
    if sites.is_empty() && images.is_none() {
        return output::line(format_args!(
            "no sites declared; add a [[site]] with host and basis to solvegate.toml"
        ));
    }
    let until = |day: Option<Day>| day.map_or(String::new(), |day| day.to_string());
    let row = |site: &Site| [site.rule.to_string(), site.basis.to_string(), until(site.expires)];
    let images = images.map(|images| {
        let kinds: Vec<_> = images.kinds.iter().map(Kind::name).collect();
        [format!("({})", kinds.join(", ")), images.basis.to_string(), until(images.expires)]
    });
    output::rows(["site", "basis", "expires"], sites.iter().map(row).chain(images))
}
