//! The connection to a server by its URL: DNS, TCP, TLS. The steps are separate, because `doctor` reports each of them.

use std::{fmt, io, net::SocketAddr, path::Path};

use tokio::net::{TcpStream, lookup_host};
use upstream::{Stream, TlsClient};
use url::{Position, Url};

pub struct Endpoint {
    url: Url,
    tls: TlsClient,
}

// === impl Endpoint ===

impl Endpoint {
    /// Does not connect yet. Trusts the public certificate authorities, and `cacert` besides.
    pub fn new(url: Url, cacert: Option<&Path>) -> Result<Self, String> {
        let at = |error: &dyn fmt::Display| {
            format!("{}: {error}", cacert.unwrap_or(Path::new("")).display())
        };
        let pem = cacert.map(std::fs::read).transpose().map_err(|error| at(&error))?;
        let tls = TlsClient::new(pem.as_deref()).map_err(|error| at(&error))?;
        Ok(Self { url, tls })
    }

    /// Host and port as written in the URL.
    pub fn authority(&self) -> &str {
        &self.url[Position::BeforeHost..Position::BeforePath]
    }

    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let port = self.url.port_or_known_default().unwrap_or(80);
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        Ok(lookup_host((host, port)).await?.collect())
    }

    /// Does the TLS handshake if the URL is https.
    pub async fn handshake(&self, stream: TcpStream) -> io::Result<Box<dyn Stream>> {
        match self.url.host() {
            Some(host) if self.is_tls() => self.tls.connect(&host.to_owned(), stream).await,
            Some(_) | None => Ok(Box::new(stream)),
        }
    }
}
