//! The provider's address: one host, taken from the configuration and from nowhere else. Used by connect.rs.

use std::{fmt, net::SocketAddr};

use url::{Host, Position, Url};

use crate::BadUpstream;

/// The provider's host, port and path, already validated.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: Host<String>,
    port: u16,
    pub(crate) tls: bool,
    /// The `Host` header.
    pub(crate) authority: String,
    prefix: String,
}

// === impl Address ===

impl Address {
    /// Reads `https://host[:port][/path]`; `http://` for this machine only.
    pub(crate) fn parse(text: &str) -> Result<Self, BadUpstream> {
        let url = Url::parse(text).map_err(|error| BadUpstream::Url(error.to_string()))?;
        let refused = |why: &str| Err(BadUpstream::Url(why.to_owned()));
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return refused("it does not start with https://"),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refused("it contains a user name or a password");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refused("it contains ? or #");
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return refused("it has no host");
        };
        let host = host.to_owned();
        if !tls && !is_loopback(&host) {
            return Err(BadUpstream::Insecure(host.to_string()));
        }
        let authority = url[Position::BeforeHost..Position::AfterPort].to_owned();
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { host, port, tls, authority, prefix })
    }

    /// The path of `in.php` or `res.php`, never with a query: the key in it would end up in logs.
    pub(crate) fn path(&self, script: &str) -> String {
        format!("{}/{script}", self.prefix)
    }

    /// Resolves the name. Without TLS only loopback addresses are kept, whatever the name resolves to.
    pub(crate) async fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let all: Vec<SocketAddr> = match &self.host {
            Host::Ipv4(ip) => vec![(*ip, self.port).into()],
            Host::Ipv6(ip) => vec![(*ip, self.port).into()],
            Host::Domain(name) => {
                tokio::net::lookup_host((name.as_str(), self.port)).await?.collect()
            }
        };
        Ok(all.into_iter().filter(|address| self.tls || address.ip().is_loopback()).collect())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

fn is_loopback(host: &Host<String>) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(ip) => ip.is_loopback(),
        Host::Ipv6(ip) => ip.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_and_the_host_header_come_from_the_configured_url() {
        for (text, authority, path) in [
            ("https://ocr.example.com", "ocr.example.com", "/in.php"),
            ("https://ocr.example.com/", "ocr.example.com", "/in.php"),
            ("https://ocr.example.com:443", "ocr.example.com", "/in.php"),
            ("https://OCR.example.com:8443/api/", "ocr.example.com:8443", "/api/in.php"),
            ("http://[::1]:9", "[::1]:9", "/in.php"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                (address.authority.as_str(), address.path("in.php").as_str()),
                (authority, path)
            );
        }
    }

    #[test]
    fn an_unencrypted_upstream_is_refused_unless_it_is_this_machine() {
        for local in ["http://127.0.0.1:1", "http://127.9.9.9", "http://[::1]", "http://localhost"]
        {
            assert!(Address::parse(local).is_ok(), "{local}");
        }
        for remote in [
            "http://ocr.example.com",
            "http://localhost.example.com",
            "http://10.0.0.1",
            "http://0.0.0.0",
            "http://[::ffff:127.0.0.1]",
            "http://[::]",
        ] {
            let refused = Address::parse(remote);
            assert!(matches!(refused, Err(BadUpstream::Insecure(_))), "{remote}");
        }
    }

    #[test]
    fn odd_urls_are_refused_without_showing_what_they_hold() {
        for odd in [
            "",
            "ocr.example.com",
            "ftp://ocr.example.com",
            "https://",
            "https://user:canary@ocr.example.com",
            "https://ocr.example.com/?key=canary",
            "https://ocr.example.com/#canary",
        ] {
            let error = Address::parse(odd).unwrap_err();
            assert!(matches!(error, BadUpstream::Url(_)), "{odd}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{odd}");
        }
    }

    #[tokio::test]
    async fn an_unencrypted_connection_never_leaves_this_machine() {
        let addresses = Address::parse("http://localhost:9").unwrap().resolve().await.unwrap();
        assert!(!addresses.is_empty());
        assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    }
}
