//! The one TLS client: for the provider (connect.rs), for webhooks (webhook.rs) and for commands that call a gateway.
//! It always verifies certificates; there is deliberately no switch.

use std::{fmt, io, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use url::Host;

/// A TLS client for HTTP/1.1. Cloning shares its configuration.
#[derive(Clone)]
pub struct TlsClient(TlsConnector);

/// A TCP or TLS connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The additional root certificates are unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; expected certificates in PEM form")]
pub struct BadRoots(String);

// === impl TlsClient ===

impl TlsClient {
    /// Trusts the public certificate authorities and those in `extra_root_pem`.
    pub fn new(extra_root_pem: Option<&[u8]>) -> Result<Self, BadRoots> {
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .expect("ring supports TLS 1.2 and 1.3")
            .with_root_certificates(roots(extra_root_pem)?)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// Does the handshake; the certificate must be valid for `host`.
    pub async fn connect(
        &self,
        host: &Host<String>,
        tcp: TcpStream,
    ) -> io::Result<Box<dyn Stream>> {
        let name = server_name(host).ok_or_else(|| io::Error::other("not a DNS name"))?;
        Ok(Box::new(self.0.connect(name, tcp).await?))
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient(…)")
    }
}

/// The name a certificate for this host must carry; `None` for a host no certificate can name.
pub(crate) fn server_name(host: &Host<String>) -> Option<ServerName<'static>> {
    match host {
        Host::Ipv4(ip) => Some(std::net::IpAddr::from(*ip).into()),
        Host::Ipv6(ip) => Some(std::net::IpAddr::from(*ip).into()),
        Host::Domain(name) => ServerName::try_from(name.clone()).ok(),
    }
}

fn roots(extra_pem: Option<&[u8]>) -> Result<RootCertStore, BadRoots> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let Some(pem) = extra_pem else { return Ok(roots) };
    let public = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| BadRoots(error.to_string()))?;
        roots.add(certificate).map_err(|error| BadRoots(error.to_string()))?;
    }
    if roots.len() == public {
        return Err(BadRoots("no certificate found".to_owned()));
    }
    Ok(roots)
}
