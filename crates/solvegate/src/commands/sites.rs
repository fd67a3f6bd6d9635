//! `solvegate sites`: lists the declared sites and checks whether a page is covered: those of the configuration, or those in
//! force in a running gateway.

use domain::{
    challenge::Kind,
    declarations::{Declarations, Images},
    ports::Clock as _,
    site::{Opened, PageUrl, Site},
    time::Day,
};
use doors::site_json;
use serde_json::{Value, json};

use super::{Context, gateway_client::GatewayClient};
use crate::{
    cli::{ClientArgs, SitesAction},
    client::Call,
    clock::SystemClock,
    exit::{Exit, Failure},
    output,
};

pub(super) async fn run(context: &Context, action: &SitesAction) -> Result<(), Failure> {
    let (SitesAction::List(client) | SitesAction::Check { client, .. }) = action;
    let declarations = if client.server.is_none() {
        context.sources.load()?.declarations
    } else {
        let answer = GatewayClient::call(context, client, &Call::get("/v1/sites")).await?;
        let unreadable = "cannot read the declarations; is --server a solvegate?";
        in_force(&answer).ok_or_else(|| Failure::new(Exit::Unreachable, unreadable))?
    };
    match action {
        SitesAction::List(ClientArgs { json: true, .. }) => {
            let sites: Vec<_> = declarations.sites.iter().map(site_json).collect();
            let images = declarations.images.as_ref();
            output::json(&json!({
                "sites": sites,
                "images": images.map(|images| &images.basis),
                "images_kinds": images.map(|images| &images.kinds),
                "images_expires": images.and_then(|images| images.expires),
            }))
        }
        SitesAction::List(_) => list(&declarations.sites, declarations.images.as_ref()),
        SitesAction::Check { url, client } => {
            let page = PageUrl::parse(url).map_err(Failure::of(Exit::Refused))?;
            let now = SystemClock::start().now();
            let site = declarations.site(&page, now).map_err(Failure::of(Exit::Refused))?;
            if client.json {
                return output::json(&json!({ "canonical": page, "site": site_json(site) }));
            }
            output::line(format_args!("{page} is covered by {}: {}", site.rule, site.basis))?;
            details(site)
        }
    }
}

/// The declarations of a running gateway, as far as they are shown here.
fn in_force(answer: &Value) -> Option<Declarations> {
    let day = |value: &Value| value.as_str().and_then(|text| text.parse::<Day>().ok());
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let site = |item: &Value| {
        let mut site = Site::new(item["host"].as_str()?.parse().ok()?, item["basis"].as_str()?);
        site.owner = item["owner"].as_str().map(Into::into);
        site.expires = day(&item["expires"]);
        site.reuse = serde_json::from_value(item["reuse"].clone()).ok()?;
        site.after_failure =
            serde_json::from_value(item["after_failure"].clone()).unwrap_or_default();
        site.ambiguous = serde_json::from_value(item["ambiguous"].clone()).ok()?;
        site.key_ignores_proxy = item["key_ignores_proxy"].as_bool()?;
        let [methods, params, sitekeys] =
            ["methods", "params", "sitekeys"].map(|name| texts(&item[name]));
        site.opened = Opened { methods, params, sitekeys };
        Some(site)
    };
    let sites = answer["items"].as_array()?.iter().map(site).collect::<Option<_>>()?;
    let images = answer["images"].as_str().map(|basis| Images {
        basis: basis.into(),
        kinds: texts(&answer["images_kinds"]).iter().filter_map(|kind| kind.parse().ok()).collect(),
        expires: day(&answer["images_expires"]),
    });
    Some(Declarations { sites, images, ..Declarations::default() })
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
