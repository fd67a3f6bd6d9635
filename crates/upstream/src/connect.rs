//! Opens a connection to the provider: DNS, TCP, TLS. A failure here proves that nothing was sent.
//! webhook.rs dials its receivers with the same `dial`.

use std::{io, net::SocketAddr, time::Duration};

use domain::ports::Fault;
use tokio::{net::TcpStream, time::timeout};
use url::Host;

use crate::{
    BadUpstream,
    address::Address,
    connection::Connection,
    counted::{BytesSent, CountedStream},
    tls::{Stream, TlsClient, server_name},
};

/// Opens connections to the provider.
pub(crate) struct Connector {
    pub(crate) address: Address,
    tls: Option<TlsClient>,
    timeout: Duration,
}

// === impl Connector ===

impl Connector {
    pub(crate) fn new(
        address: Address,
        extra_root_pem: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<Self, BadUpstream> {
        if server_name(&address.host).is_none() {
            return Err(BadUpstream::Url("its host is not a DNS name".to_owned()));
        }
        let tls = address.tls.then(|| TlsClient::new(extra_root_pem)).transpose()?;
        Ok(Self { address, tls, timeout })
    }

    /// Opens a connection within the connect timeout. Bytes written to it are counted in `sent`.
    pub(crate) async fn open(&self, sent: BytesSent) -> Result<Connection, Fault> {
        let dialled = timeout(self.timeout, self.dial()).await;
        let stream = dialled.map_err(|_| Fault::seen("no connection within the timeout"))??;
        Connection::new(CountedStream::new(stream, sent)).await
    }

    async fn dial(&self) -> Result<Box<dyn Stream>, Fault> {
        let resolved = self.address.resolve().await;
        let addresses = resolved.map_err(|error| fault("cannot connect", &error))?;
        let tls = self.tls.as_ref().map(|tls| (tls, &self.address.host));
        dial(&addresses, tls, self.timeout).await
    }
}

/// Connects to one of these addresses and to no other, with TLS for the given host. The caller bounds the total time.
pub(crate) async fn dial(
    addresses: &[SocketAddr],
    tls: Option<(&TlsClient, &Host<String>)>,
    limit: Duration,
) -> Result<Box<dyn Stream>, Fault> {
    let tcp = dial_tcp(addresses, limit).await.map_err(|error| fault("cannot connect", &error))?;
    // Requests are written whole; Nagle's algorithm would only delay them.
    tcp.set_nodelay(true).map_err(|error| fault("cannot connect", &error))?;
    let Some((tls, host)) = tls else { return Ok(Box::new(tcp)) };
    tls.connect(host, tcp).await.map_err(|error| fault("the TLS handshake failed", &error))
}

/// Each address gets its share of the time, so that an unreachable first one leaves some for the next.
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

/// The text is bounded and on one line, because a certificate error quotes names that the other side chose.
fn fault(what: &str, error: &io::Error) -> Fault {
    let why: String = format!("{what}: {error}").chars().filter(|c| !c.is_control()).collect();
    Fault::seen(why.chars().take(200).collect::<String>())
}
