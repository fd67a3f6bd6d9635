//! The URL of the store: `dynamodb:TABLE`, with the options `region=NAME`, `endpoint=URL` and `file_every=N`.

use std::fmt;

use url::{Host, Url};

use crate::backends::server::options::UrlOptions;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DynamoDbAddress {
    pub(super) table: String,
    /// `None`: as the SDK's own configuration says.
    pub(super) region: Option<String>,
    /// Another server than Amazon's.
    pub(super) endpoint: Option<Url>,
    /// A compaction is due after this many commits (`file_every=`).
    pub(super) compact_every: usize,
}

/// A gateway that starts reads all commits that are not compacted.
const COMPACT_EVERY: usize = 256;

const FORM: &str = "write dynamodb:TABLE?region=eu-west-1";

impl DynamoDbAddress {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("dynamodb:").ok_or_else(|| FORM.to_owned())?;
        let (table, query) = rest.split_once('?').unwrap_or((rest, ""));
        let table = checked_table(table)?;
        let mut options = UrlOptions::parse(query, &["region", "endpoint", "file_every"])?;
        let region = options.take("region").map(checked_region).transpose()?;
        let endpoint = options.take("endpoint").map(|url| checked_endpoint(&url)).transpose()?;
        let compact_every = options.take("file_every").map(|count| checked_count(&count));
        let compact_every = compact_every.transpose()?.unwrap_or(COMPACT_EVERY);
        Ok(Self { table, region, endpoint, compact_every })
    }

    /// Whether the server is on this machine: a test server, which accepts any credentials.
    pub(super) fn is_local(&self) -> bool {
        match self.endpoint.as_ref().and_then(Url::host) {
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// Whether the connection leaves this machine unencrypted.
    pub(super) fn is_unencrypted(&self) -> bool {
        !self.is_local() && self.endpoint.as_ref().is_some_and(|url| url.scheme() == "http")
    }
}

impl fmt::Display for DynamoDbAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.endpoint, &self.region) {
            (Some(endpoint), _) => f.write_str(endpoint.as_str().trim_end_matches('/')),
            (None, Some(region)) => f.write_str(region),
            (None, None) => f.write_str("the region of the environment"),
        }
    }
}

fn checked_table(name: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if (3..=255).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(name.to_owned());
    }
    Err(format!("a table's name is 3 to 255 of a-z, A-Z, 0-9, _, . and -; {FORM}"))
}

fn checked_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=10_000).contains(count));
    count.ok_or_else(|| "file_every= must be a number of commits, 1 to 10000".to_owned())
}

fn checked_region(name: String) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=40).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(name);
    }
    Err("region= must be a name such as eu-west-1".to_owned())
}

fn checked_endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|why| format!("endpoint= is not a URL: {why}"))?;
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if is_plain && url.has_host() && ["http", "https"].contains(&url.scheme()) {
        return Ok(url);
    }
    Err("endpoint= must be http://HOST:PORT or https://HOST, without user, password and query"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_its_region_and_its_endpoint_are_read() {
        let address = DynamoDbAddress::parse(
            "dynamodb:shop-1?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1%3A8000",
        )
        .unwrap();
        assert_eq!(
            (address.table.as_str(), address.region.as_deref()),
            ("shop-1", Some("eu-west-1"))
        );
        assert_eq!(address.to_string(), "http://127.0.0.1:8000");
        assert!(address.is_local() && !address.is_unencrypted());
        let plain = DynamoDbAddress::parse("dynamodb:shop?endpoint=http://10.0.0.1:8000").unwrap();
        assert!(plain.is_unencrypted());
        assert_eq!(
            DynamoDbAddress::parse("dynamodb:shop?region=eu-west-1").unwrap().to_string(),
            "eu-west-1"
        );
    }

    #[test]
    fn an_invalid_address_is_refused() {
        for url in [
            "dynamodb:",
            "dynamodb:ab",
            "dynamodb:a b c",
            "dynamodb:shop?x=y",
            "dynamodb:shop?file_every=0",
            "dynamodb:shop?region=",
            "dynamodb:shop?endpoint=ftp://h",
            "dynamodb:shop?endpoint=http://user:geheim@h",
        ] {
            let why = DynamoDbAddress::parse(url).unwrap_err();
            assert!(!why.contains("geheim"), "{why}");
        }
    }
}
