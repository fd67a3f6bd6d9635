//! `solvegate sites`: lists the declared sites and checks whether a page is covered, without a gateway.

use domain::{
    ports::Clock as _,
    site::{PageUrl, Site},
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
            output::json(&json!({ "sites": sites, "images": declarations.images }))
        }
        SitesAction::List { json: false } => {
            list(&declarations.sites, declarations.images.as_deref())
        }
        SitesAction::Check { url, json } => {
            let page = PageUrl::parse(url).map_err(Failure::of(Exit::Refused))?;
            let sites = declarations.sites();
            let now = SystemClock::start().now();
            let site = sites.check(&page, now).map_err(Failure::of(Exit::Refused))?;
            if *json {
                return output::json(&json!({ "canonical": page, "site": site_json(site) }));
            }
            output::line(format_args!("{page} is covered by {}: {}", site.rule, site.basis))
        }
    }
}

fn list(sites: &[Site], images: Option<&str>) -> Result<(), Failure> {
    if sites.is_empty() && images.is_none() {
        return output::line(format_args!(
            "no sites declared; add a [[site]] with host and basis to solvegate.toml"
        ));
    }
    let expires = |site: &Site| site.expires.map_or(String::new(), |day| day.to_string());
    let row = |site: &Site| [site.rule.to_string(), site.basis.to_string(), expires(site)];
    let images = images.map(|basis| ["(images)".into(), basis.into(), String::new()]);
    output::rows(["site", "basis", "expires"], sites.iter().map(row).chain(images))
}
