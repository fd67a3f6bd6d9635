//! The way to a server by its URL: name, connection, TLS. One step after the other, because `doctor` tells them apart.

use std::{fmt, io, net::SocketAddr, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;
use url::Url;

/// The way to one server.
pub struct Reach {
    url: Url,
    tls: TlsConnector,
}

/// A connection, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

// === impl Reach ===

impl Reach {
    /// Connects to nobody yet. Trusts the usual authorities, and `cacert` besides.
    pub fn new(url: Url, cacert: Option<&Path>) -> Result<Self, String> {
        Ok(Self { url, tls: tls(cacert)? })
    }

    /// Host and port, as they are written.
    pub fn authority(&self) -> &str {
        &self.url[url::Position::BeforeHost..url::Position::BeforePath]
    }

    /// Whether TLS is spoken.
    pub fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The addresses its name stands for.
    pub async fn find(&self) -> io::Result<Vec<SocketAddr>> {
        let port = self.url.port_or_known_default().unwrap_or(80);
        Ok(lookup_host((self.host(), port)).await?.collect())
    }

    /// Connects to the first address that answers.
    pub async fn connect(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        TcpStream::connect(addresses).await
    }

    /// Speaks TLS from here on, where the URL asks for it.
    pub async fn secure(&self, stream: TcpStream) -> io::Result<Box<dyn Stream>> {
        if !self.is_secure() {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.host().to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(self.tls.connect(name, stream).await?))
    }

    fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default().trim_matches(['[', ']'])
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("authority", &self.authority()).finish_non_exhaustive()
    }
}

fn tls(cacert: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
    if let Some(path) = cacert {
        let pem = std::fs::read(path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|_| format!("{} is not PEM", path.display()))?;
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
