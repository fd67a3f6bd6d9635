//! Opens a line to the provider: name, TCP, TLS. A failure here proves that nothing was sent. courier.rs opens its
//! own with the same parts.
//! Certificates are always checked; there is no switch.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use domain::ports::Fault;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use url::Host;

use crate::{
    BadUpstream,
    address::Address,
    counted::{Counted, Sent, Stream},
    line::Line,
};

/// Knows how to reach the provider.
pub(crate) struct Connector {
    address: Address,
    tls: Option<Tls>,
    timeout: Duration,
}

/// How a line is encrypted, and whom the certificate must name.
pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

// === impl Connector ===

impl Connector {
    /// Trusts the usual authorities and those of `extra_root_pem`.
    pub(crate) fn new(
        address: Address,
        extra_root_pem: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<Self, BadUpstream> {
        let tls = address.is_tls().then(|| Tls::new(&address, extra_root_pem)).transpose()?;
        Ok(Self { address, tls, timeout })
    }

    /// Where it leads.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Opens a line, within the connect timeout. What is written to it is counted in `sent`.
    pub(crate) async fn open(&self, sent: Sent) -> Result<Line, Fault> {
        let dialled = timeout(self.timeout, self.dial()).await;
        let stream = dialled.map_err(|_| Fault::seen("no connection within the timeout"))??;
        Line::new(Counted::new(stream, sent)).await
    }

    async fn dial(&self) -> Result<Box<dyn Stream>, Fault> {
        let resolved = self.address.resolve().await;
        let addresses = resolved.map_err(|error| seen("cannot connect", &error))?;
        dial(&addresses, self.tls.as_ref(), self.timeout).await
    }
}

// === impl Tls ===

impl Tls {
    fn new(address: &Address, extra_root_pem: Option<&[u8]>) -> Result<Self, BadUpstream> {
        Ok(Self { connector: tls_connector(extra_root_pem)?, name: name(address.host())? })
    }
}

/// Trusts the usual authorities and those of `extra_root_pem`.
pub(crate) fn tls_connector(extra_root_pem: Option<&[u8]>) -> Result<TlsConnector, BadUpstream> {
    let roots = roots(extra_root_pem)?;
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(ring)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| BadUpstream::Tls(error.to_string()))?;
    let mut config = versions.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A stream to one of these addresses and to no other. The caller bounds the time of the whole.
pub(crate) async fn dial(
    addresses: &[SocketAddr],
    tls: Option<&Tls>,
    limit: Duration,
) -> Result<Box<dyn Stream>, Fault> {
    let tcp = dial_tcp(addresses, limit).await.map_err(|error| seen("cannot connect", &error))?;
    // Requests go out whole; waiting to fill a packet only delays them.
    tcp.set_nodelay(true).map_err(|error| seen("cannot connect", &error))?;
    let Some(tls) = tls else { return Ok(Box::new(tcp)) };
    let secured = tls.connector.connect(tls.name.clone(), tcp).await;
    Ok(Box::new(secured.map_err(|error| seen("the TLS handshake failed", &error))?))
}

/// Each address gets its share of the time, so that a dead first one leaves some for the next.
async fn dial_tcp(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

fn roots(extra_pem: Option<&[u8]>) -> Result<RootCertStore, BadUpstream> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let Some(pem) = extra_pem else { return Ok(roots) };
    let refused = |why: String| BadUpstream::Roots(why);
    let mut added = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
        added += 1;
    }
    if added == 0 { Err(refused("it holds no certificate".to_owned())) } else { Ok(roots) }
}

/// What the certificate of this host must name.
pub(crate) fn name(host: &Host<String>) -> Result<ServerName<'static>, BadUpstream> {
    match host {
        Host::Ipv4(ip) => Ok(ServerName::from(std::net::IpAddr::from(*ip))),
        Host::Ipv6(ip) => Ok(ServerName::from(std::net::IpAddr::from(*ip))),
        Host::Domain(name) => ServerName::try_from(name.clone())
            .map_err(|_| BadUpstream::Url("its host is not a DNS name".to_owned())),
    }
}

/// Bounded and on one line: a certificate's error quotes names that the other side chose.
fn seen(what: &str, error: &io::Error) -> Fault {
    let why: String = format!("{what}: {error}").chars().filter(|c| !c.is_control()).collect();
    Fault::seen(why.chars().take(200).collect::<String>())
}
