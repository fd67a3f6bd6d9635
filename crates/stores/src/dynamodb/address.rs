//! Where the table is: `dynamodb:TABLE`, with `?region=NAME`, `?endpoint=URL` and
//! `?file_every=N`.

use url::{Host, Url};

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) table: String,
    /// Where; otherwise where the SDK's own settings say.
    pub(super) region: Option<String>,
    /// Another server than Amazon's.
    pub(super) endpoint: Option<Url>,
    /// Commits are filed when there are so many.
    pub(super) file_every: usize,
}

/// Who starts reads all commits that are not filed.
const FILE_EVERY: usize = 256;

const FORM: &str = "write dynamodb:TABLE?region=eu-west-1";

impl Address {
    /// Reads a URL.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("dynamodb:").ok_or_else(|| FORM.to_owned())?;
        let (table, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut address = Self {
            table: checked_table(table)?,
            region: None,
            endpoint: None,
            file_every: FILE_EVERY,
        };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "region" => address.region = Some(checked_region(&value)?),
                "endpoint" => address.endpoint = Some(checked_endpoint(&value)?),
                "file_every" => address.file_every = checked_count(&value)?,
                _ => {
                    return Err(format!(
                        "only ?region=, ?endpoint= and ?file_every= may follow the table; {FORM}"
                    ));
                }
            }
        }
        Ok(address)
    }

    /// The server, for messages.
    pub(super) fn shown(&self) -> String {
        match (&self.endpoint, &self.region) {
            (Some(endpoint), _) => endpoint.to_string().trim_end_matches('/').to_owned(),
            (None, Some(region)) => region.clone(),
            (None, None) => "the region of the environment".to_owned(),
        }
    }

    /// Whether the server is on this machine: a stand-in, which takes any credentials.
    pub(super) fn is_local(&self) -> bool {
        match self.endpoint.as_ref().and_then(Url::host) {
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// Whether what travels there can be read on the way.
    pub(super) fn is_in_the_clear(&self) -> bool {
        !self.is_local() && self.endpoint.as_ref().is_some_and(|url| url.scheme() == "http")
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
    count.ok_or_else(|| "file_every is a number of commits, 1 to 10000".to_owned())
}

fn checked_region(name: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=40).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(name.to_owned());
    }
    Err("a region looks like eu-west-1".to_owned())
}

fn checked_endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|why| format!("the endpoint is no address: {why}"))?;
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if is_plain && url.has_host() && ["http", "https"].contains(&url.scheme()) {
        return Ok(url);
    }
    Err("an endpoint is http://HOST:PORT or https://HOST, without user, password and query"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_its_region_and_its_endpoint_are_read() {
        let address = Address::parse(
            "dynamodb:shop-1?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1%3A8000",
        )
        .unwrap();
        assert_eq!(
            (address.table.as_str(), address.region.as_deref()),
            ("shop-1", Some("eu-west-1"))
        );
        assert_eq!(address.shown(), "http://127.0.0.1:8000");
        assert!(address.is_local() && !address.is_in_the_clear());
        let plain = Address::parse("dynamodb:shop?endpoint=http://10.0.0.1:8000").unwrap();
        assert!(plain.is_in_the_clear());
        assert_eq!(Address::parse("dynamodb:shop?region=eu-west-1").unwrap().shown(), "eu-west-1");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
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
            let why = Address::parse(url).unwrap_err();
            assert!(!why.contains("geheim"), "{why}");
        }
    }
}
