//! Filters for dead letters, the same in a query string and in a JSON body.

use std::time::Duration;

use domain::{
    challenge::Kind,
    dead_letter::DeadLetterClass,
    id::{Project, WorkerName},
    ports::{DeadLetterFilter, Scope},
    retry::Code,
    time::Timestamp,
};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::{query::Query, records};
use crate::error::{Refusal, bad_field};

/// All given filters must match. `null` is refused in a body, because a value that got lost would match everything.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FilterParams {
    #[serde(deserialize_with = "given")]
    class: Option<DeadLetterClass>,
    #[serde(deserialize_with = "given")]
    code: Option<Code>,
    #[serde(deserialize_with = "given")]
    kind: Option<Kind>,
    #[serde(deserialize_with = "given")]
    site: Option<String>,
    #[serde(deserialize_with = "given")]
    worker: Option<WorkerName>,
    #[serde(deserialize_with = "given")]
    project: Option<Project>,
    #[serde(deserialize_with = "given")]
    older_than_s: Option<u64>,
    #[serde(deserialize_with = "given")]
    newer_than_s: Option<u64>,
}

pub(super) const NAMES: [&str; 8] =
    ["class", "code", "kind", "site", "worker", "project", "older_than_s", "newer_than_s"];

/// The longest DNS name.
const SITE_MAX: usize = 253;

fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(member: D) -> Result<Option<T>, D::Error> {
    T::deserialize(member).map(Some)
}

impl FilterParams {
    pub(super) fn read(query: &Query) -> Result<Self, Refusal> {
        Ok(Self {
            class: class(query)?,
            code: query.get("code").map(Code::from),
            kind: records::kind(query)?,
            site: query.get("site").map(str::to_owned),
            worker: records::worker(query)?,
            project: records::project(query)?,
            older_than_s: query.parsed("older_than_s", SECONDS)?,
            newer_than_s: query.parsed("newer_than_s", SECONDS)?,
        })
    }

    /// The filter, restricted to the records the caller may see.
    pub(super) fn filter(self, scope: Scope, now: Timestamp) -> Result<DeadLetterFilter, Refusal> {
        let ago = |seconds| now.minus(Duration::from_secs(seconds));
        Ok(DeadLetterFilter {
            class: self.class,
            code: self.code,
            kind: self.kind,
            host: self.site.as_deref().map(host).transpose()?,
            project: self.project,
            since: self.newer_than_s.map(ago),
            until: self.older_than_s.map(ago),
            ..DeadLetterFilter::open(records::narrowed(scope, self.worker)?, 1)
        })
    }
}

fn class(query: &Query) -> Result<Option<DeadLetterClass>, Refusal> {
    let class = query.get("class").map(|name| DeadLetterClass::deserialize(json!(name)));
    class.transpose().map_err(|_| Refusal::BadQuery("`class` is not failed or lapsed".into()))
}

const SECONDS: &str = "a whole number of seconds";

/// Validates a host and converts it to lower case.
fn host(site: &str) -> Result<String, Refusal> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let literal = site.strip_prefix('[').and_then(|site| site.strip_suffix(']'));
    let is_address = literal.is_some_and(|site| site.parse::<std::net::Ipv6Addr>().is_ok());
    if site.is_empty() || site.len() > SITE_MAX || !(is_address || site.bytes().all(is_plain)) {
        let why = "is not a host such as shop.example.com, without scheme, port and path";
        return bad_field("site", why);
    }
    Ok(site.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::{super::object::Object, *};

    fn body(text: &str) -> Result<FilterParams, serde_json::Error> {
        serde_json::from_str(text).map(|Object(wanted)| wanted)
    }

    #[test]
    fn query_and_body_give_the_same_filter() {
        let query = "class=lapsed&code=ERROR_PAGEURL&kind=turnstile&site=Shop.Example.com&worker=one&project=p\
                     &older_than_s=10&newer_than_s=60";
        let of_query = FilterParams::read(&Query::read(Some(query), &NAMES).unwrap()).unwrap();
        let of_body = body(
            r#"{"class":"lapsed","code":"ERROR_PAGEURL","kind":"turnstile","site":"Shop.Example.com","worker":"one",
            "project":"p","older_than_s":10,"newer_than_s":60}"#,
        )
        .unwrap();
        let now = Timestamp::from_millis(100_000);
        let [a, b] = [of_query, of_body].map(|wanted| wanted.filter(Scope::All, now).unwrap());
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        assert_eq!(a.host.as_deref(), Some("shop.example.com"));
        assert_eq!(a.class, Some(DeadLetterClass::Lapsed));
        assert_eq!((a.since, a.until), (Some(ms(40_000)), Some(ms(90_000))));
        assert_eq!(a.scope, Scope::Worker(WorkerName::new("one").unwrap()));
    }

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_malformed_filter_is_refused_and_never_matches_everything() {
        for bad in [
            r#"{"class":"late"}"#,
            r#"{"code":null}"#,
            r#"{"closed":true}"#,
            r#"{"older_than_s":"60"}"#,
            "[]",
        ] {
            assert!(body(bad).is_err(), "{bad}");
        }
        assert!(body("{}").is_ok());
        for site in ["", "https://a.example", "a.example:443", "a.example/x", "[::1", "ä.example"]
        {
            assert!(host(site).is_err(), "{site}");
        }
        assert_eq!(host("[::1]").unwrap(), "[::1]");
    }
}
