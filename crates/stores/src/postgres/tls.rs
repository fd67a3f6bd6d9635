//! TLS on the way to the server, with rustls. A server is asked to prove who it is when the URL says so
//! (`sslmode=verify-full`, or `sslrootcert`); `require` and `prefer` encrypt to whoever answers, as everywhere with PostgreSQL.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Socket,
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};
use tokio_rustls::TlsConnector;

use super::address::Tls;

/// Makes connections secure.
#[derive(Clone)]
pub(super) struct Secure {
    connector: TlsConnector,
}

/// One connection to be made secure.
pub(super) struct Securing {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// One that is.
pub(super) struct Secured<S>(tokio_rustls::client::TlsStream<S>);

/// Takes any certificate, but only from who has its key.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

// === impl Secure ===

impl Secure {
    /// What the URL asks for; in words what is wrong with it.
    pub(super) fn new(tls: &Tls) -> Result<Self, String> {
        let provider = ring::default_provider();
        let anybody = Anybody(provider.signature_verification_algorithms);
        let versions = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|why| why.to_string())?;
        let config = if tls.is_verified {
            versions.with_root_certificates(roots(tls)?).with_no_client_auth()
        } else {
            let anybody = Arc::new(anybody);
            versions.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }
}

fn roots(tls: &Tls) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = &tls.roots else {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        return Ok(roots);
    };
    let unread = |why: String| format!("its sslrootcert {} cannot be used: {why}", file.display());
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|why| unread(why.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|why| unread(why.to_string()))?;
        roots.add(certificate).map_err(|why| unread(why.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unread("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

impl MakeTlsConnect<Socket> for Secure {
    type Stream = Secured<Socket>;
    type TlsConnect = Securing;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Securing, Self::Error> {
        // A socket on this machine has no name, and is never made secure.
        let host = if host.is_empty() { "localhost" } else { host };
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Securing { connector: self.connector.clone(), name })
    }
}

impl TlsConnect<Socket> for Securing {
    type Stream = Secured<Socket>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<Socket>>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.name, stream).await.map(Secured) })
    }
}

// === impl Secured ===

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

// === impl Anybody ===

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
