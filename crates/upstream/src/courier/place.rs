//! The form of a receiver's address, checked before anything is resolved. The reasons hold nothing of the address:
//! its path and query are often a secret, and its host may be one.

use std::fmt;

use domain::ports::AddressRefused;
use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;
use url::{Host, Position, Url};

use super::BadHooks;
use crate::connect;

/// The longest address.
const LONGEST: usize = 2048;

/// The ports a host may be told on that the operator did not name.
const PORTS: [u16; 2] = [443, 8443];

/// What to do about it, when the operator may allow what is refused.
const ALLOW: &str = "or name the host under [callbacks] hosts";

/// An address of the right form.
pub(super) struct Place {
    host: Host<String>,
    port: u16,
    tls: bool,
    name: ServerName<'static>,
    authority: HeaderValue,
    target: Uri,
    trusted: bool,
}

/// A host that the operator named.
#[derive(PartialEq, Eq)]
pub(super) struct Trusted {
    host: Host<String>,
    port: Option<u16>,
}

// === impl Place ===

impl Place {
    /// Reads an address. Numbers in any notation and names in any alphabet are judged by what they stand for.
    pub(super) fn parse(text: &str, trusted: &[Trusted]) -> Result<Self, AddressRefused> {
        let url = read(text)?;
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(refused("it has no host"));
        };
        let host = without_dot(host.to_owned());
        let tls = url.scheme() == "https";
        let trusted = trusted.iter().any(|named| named.covers(&host, port));
        if !trusted {
            check_untrusted(tls, port)?;
        }
        let name = connect::name(&host);
        let name = name.map_err(|_| refused("its host is neither a DNS name nor an IP address"))?;
        let unfit = || refused("it has characters that HTTP does not allow; percent-encode them");
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        let authority = authority.try_into().map_err(|_| unfit())?;
        let target = url[Position::BeforePath..Position::AfterQuery].parse();
        Ok(Self { host, port, tls, name, authority, target: target.map_err(|_| unfit())?, trusted })
    }

    pub(super) fn host(&self) -> &Host<String> {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls
    }

    /// What the certificate must name.
    pub(super) fn name(&self) -> ServerName<'static> {
        self.name.clone()
    }

    /// The `Host` header.
    pub(super) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Path and query.
    pub(super) fn target(&self) -> &Uri {
        &self.target
    }

    /// Whether the operator named it.
    pub(super) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Its host is, or resolves to, an address that is not public.
    pub(super) fn refuse_address(&self, what: &str) -> AddressRefused {
        let verb = if matches!(self.host, Host::Domain(_)) { "resolves to" } else { "is" };
        let allow = "name the host under [callbacks] hosts to allow it";
        refused(&format!("its host {verb} {what}; {allow}"))
    }
}

// === impl Trusted ===

impl Trusted {
    /// Reads `host` or `host:port`.
    pub(super) fn parse(text: &str) -> Result<Self, BadHooks> {
        let bad = || BadHooks::Host(text.chars().take(100).collect());
        if text.contains(|c: char| c.is_control() || c.is_whitespace() || "/\\@?#".contains(c)) {
            return Err(bad());
        }
        // Each scheme hides its own default port: what one of them does not show, the other does.
        let read = |scheme: &str| Url::parse(&format!("{scheme}://{text}/")).map_err(|_| bad());
        let (plain, tls) = (read("http")?, read("https")?);
        let host = without_dot(plain.host().ok_or_else(bad)?.to_owned());
        connect::name(&host).map_err(|_| bad())?;
        Ok(Self { host, port: plain.port().or(tls.port()) })
    }

    fn covers(&self, host: &Host<String>, port: u16) -> bool {
        self.host == *host && self.port.is_none_or(|named| named == port)
    }
}

impl fmt::Debug for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => write!(f, "{}", self.host),
        }
    }
}

/// What holds for every address, whoever named its host.
fn read(text: &str) -> Result<Url, AddressRefused> {
    if text.chars().count() > LONGEST {
        return Err(refused("it is longer than 2048 characters"));
    }
    // Parsers drop some of them in silence, so that two readers may see two addresses.
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(refused("it holds spaces or control characters; percent-encode them"));
    }
    let url = Url::parse(text).map_err(|_| refused("it is not an absolute URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("it does not begin with https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("it holds a user name or a password; notices are signed instead"));
    }
    if url.fragment().is_some() {
        return Err(refused("it holds a fragment, which is never sent; leave # out"));
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

/// `example.com.` is `example.com`: for certificates, and for what the operator named.
fn without_dot(host: Host<String>) -> Host<String> {
    match host {
        Host::Domain(name) => {
            Host::Domain(name.strip_suffix('.').map(ToOwned::to_owned).unwrap_or(name))
        }
        Host::Ipv4(_) | Host::Ipv6(_) => host,
    }
}

/// Why an address is not told anything.
pub(super) fn refused(why: &str) -> AddressRefused {
    AddressRefused(format!("the address is refused: {why}"))
}
