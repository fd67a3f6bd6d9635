//! `solvegate sites`: lists the declared sites and checks whether a page is covered, without a gateway.

use domain::{
    challenge::Kind,
    declarations::Images,
    ports::Clock as _,
    site::{Opened, PageUrl, Site},
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
            output::line(format_args!("{page} is covered by {}: {}", site.rule, site.basis))?;
            details(site)
        }
    }
}

/// Owner, end, and what the declaration opens or pins; only what is set.
fn details(site: &Site) -> Result<(), Failure> {
    let Opened { methods, params, sitekeys } = &site.opened;
    let lines = [
        ("owner", site.owner.as_deref().unwrap_or_default().to_owned()),
        ("expires", site.expires.map_or_else(String::new, |day| day.to_string())),
        ("methods", methods.join(", ")),
        ("params", params.join(", ")),
        ("sitekeys", sitekeys.join(", ")),
    ];
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        output::line(format_args!("  {name}: {value}"))?;
    }
    Ok(())
}

/// Methods, parameters and site keys of a declaration in one cell.
fn opened(site: &Site) -> String {
    let Opened { methods, params, sitekeys } = &site.opened;
    let part = |name: &str, list: &[String]| match list {
        [] => None,
        list => Some(format!("{name}: {}", list.join(", "))),
    };
    let parts = [part("methods", methods), part("params", params), part("sitekeys", sitekeys)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn list(sites: &[Site], images: Option<&Images>) -> Result<(), Failure> {
    if sites.is_empty() && images.is_none() {
        return output::line(format_args!(
            "no sites declared; add a [[site]] with host and basis to solvegate.toml"
        ));
    }
    let until = |day: Option<Day>| day.map_or(String::new(), |day| day.to_string());
    let owner = |site: &Site| site.owner.as_deref().unwrap_or_default().to_owned();
    let row = |site: &Site| {
        let (rule, basis) = (site.rule.to_string(), site.basis.to_string());
        [rule, basis, owner(site), until(site.expires), opened(site)]
    };
    let images = images.map(|images| {
        let kinds: Vec<_> = images.kinds.iter().map(Kind::name).collect();
        let (kinds, basis) = (format!("({})", kinds.join(", ")), images.basis.to_string());
        [kinds, basis, String::new(), until(images.expires), String::new()]
    });
    let columns = ["site", "basis", "owner", "expires", "opens"];
    output::rows(columns, sites.iter().map(row).chain(images))
}
