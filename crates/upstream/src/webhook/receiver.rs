//! Validates a receiver's URL before any DNS lookup. The error texts contain nothing of the URL, because its path and query
//! are often secret and its host may be.

use std::fmt;

use domain::ports::AddressRefused;
use http::{HeaderValue, Uri};
use url::{Host, Position, Url};

use super::BadWebhookConfig;
use crate::tls::server_name;

const MAX_URL: usize = 2048;

/// The ports we connect to on a host that the operator did not list.
const PORTS: [u16; 2] = [443, 8443];

/// Appended where the operator can allow what is refused.
const ALLOW: &str = "or list the host under [callbacks] hosts";

/// A valid receiver URL.
pub(super) struct Receiver {
    pub(super) host: Host<String>,
    pub(super) port: u16,
    pub(super) tls: bool,
    /// The `Host` header.
    pub(super) authority: HeaderValue,
    /// Path and query, as in the request line.
    pub(super) target: Uri,
    /// Whether the operator listed its host.
    pub(super) trusted: bool,
}

/// A host that the operator listed.
#[derive(PartialEq, Eq)]
pub(super) struct TrustedHost {
    host: Host<String>,
    port: Option<u16>,
}

// === impl Receiver ===

impl Receiver {
    /// Parses a URL. Addresses in any notation and names in any alphabet are judged in their canonical form.
    pub(super) fn parse(text: &str, trusted: &[TrustedHost]) -> Result<Self, AddressRefused> {
        let url = read(text)?;
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(refused("it has no host"));
        };
        let host = without_dot(host.to_owned());
        let tls = url.scheme() == "https";
        let trusted = trusted.iter().any(|listed| listed.covers(&host, port));
        if !trusted {
            check_untrusted(tls, port)?;
        }
        if server_name(&host).is_none() {
            return Err(refused("its host is neither a DNS name nor an IP address"));
        }
        let unfit = || refused("it has characters that HTTP does not allow; percent-encode them");
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        let authority = authority.try_into().map_err(|_| unfit())?;
        let target = url[Position::BeforePath..Position::AfterQuery].parse();
        Ok(Self { host, port, tls, authority, target: target.map_err(|_| unfit())?, trusted })
    }

    /// The error for a host that is, or resolves to, an address that is not public.
    pub(super) fn refuse_address(&self, what: &str) -> AddressRefused {
        let verb = if matches!(self.host, Host::Domain(_)) { "resolves to" } else { "is" };
        let allow = "list the host under [callbacks] hosts to allow it";
        refused(&format!("its host {verb} {what}; {allow}"))
    }
}

// === impl TrustedHost ===

impl TrustedHost {
    /// Reads `host` or `host:port`.
    pub(super) fn parse(text: &str) -> Result<Self, BadWebhookConfig> {
        let bad = || BadWebhookConfig::Host(text.chars().take(100).collect());
        if text.contains(|c: char| c.is_control() || c.is_whitespace() || "/\\@?#".contains(c)) {
            return Err(bad());
        }
        // `Url` hides the default port of its scheme, so we parse with both schemes to see an explicit 80 or 443.
        let read = |scheme: &str| Url::parse(&format!("{scheme}://{text}/")).map_err(|_| bad());
        let (plain, tls) = (read("http")?, read("https")?);
        let host = without_dot(plain.host().ok_or_else(bad)?.to_owned());
        server_name(&host).ok_or_else(bad)?;
        Ok(Self { host, port: plain.port().or(tls.port()) })
    }

    fn covers(&self, host: &Host<String>, port: u16) -> bool {
        self.host == *host && self.port.is_none_or(|listed| listed == port)
    }
}

impl fmt::Debug for TrustedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => write!(f, "{}", self.host),
        }
    }
}

/// The rules that hold for listed hosts too.
fn read(text: &str) -> Result<Url, AddressRefused> {
    if text.chars().count() > MAX_URL {
        return Err(refused("it is longer than 2048 characters"));
    }
    // Parsers drop some of these silently, so two of them could see two different addresses.
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(refused("it contains spaces or control characters; percent-encode them"));
    }
    let url = Url::parse(text).map_err(|_| refused("it is not an absolute URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("it does not start with https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("it contains a user name or a password; verify the signature instead"));
    }
    if url.fragment().is_some() {
        return Err(refused("it contains a fragment, which is never sent; remove the #"));
    }
    Ok(url)
}

fn check_untrusted(tls: bool, port: u16) -> Result<(), AddressRefused> {
    if !tls {
        return Err(refused(&format!("it is not encrypted; use https, {ALLOW}")));
    }
    if !PORTS.contains(&port) {
        return Err(refused(&format!(
            "its port is neither 443 nor 8443; use one of them, {ALLOW}"
        )));
    }
    Ok(())
}

/// `example.com.` means `example.com` in certificates and in the operator's list.
fn without_dot(host: Host<String>) -> Host<String> {
    match host {
        Host::Domain(name) => {
            Host::Domain(name.strip_suffix('.').map(ToOwned::to_owned).unwrap_or(name))
        }
        Host::Ipv4(_) | Host::Ipv6(_) => host,
    }
}

pub(super) fn refused(why: &str) -> AddressRefused {
    AddressRefused(format!("the address is refused: {why}"))
}
