//! TLS with rustls. The server's certificate is verified when the URL says so (`sslmode=verify-full`, or `sslrootcert`); `require`
//! and `prefer` only encrypt, as in every PostgreSQL client.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Socket,
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};
use tokio_rustls::TlsConnector;

use crate::{
    OpenError,
    backends::server::tls::{public_roots, read_authorities},
};

use super::{SERVER, address::TlsOptions};

#[derive(Clone)]
pub(super) struct MakeTls(TlsConnector);

pub(super) struct TlsHandshake(TlsConnector, ServerName<'static>);

pub(super) struct TlsSocket(tokio_rustls::client::TlsStream<Socket>);

/// Accepts any certificate, but only from a server that has its key.
#[derive(Debug)]
struct AcceptAnyCertificate(WebPkiSupportedAlgorithms);

// === impl MakeTls ===

impl MakeTls {
    pub(super) fn new(tls: &TlsOptions) -> Result<Self, OpenError> {
        let provider = ring::default_provider();
        let any_certificate = AcceptAnyCertificate(provider.signature_verification_algorithms);
        let versions = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("ring supports both versions");
        let config = if tls.is_verified {
            let roots = match &tls.roots {
                Some(file) => {
                    let read = read_authorities("sslrootcert", file);
                    read.map_err(|why| SERVER.bad_address(why))?.1
                }
                None => public_roots(),
            };
            versions.with_root_certificates(roots).with_no_client_auth()
        } else {
            let verifier = Arc::new(any_certificate);
            versions.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

impl MakeTlsConnect<Socket> for MakeTls {
    type Stream = TlsSocket;
    type TlsConnect = TlsHandshake;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsHandshake, Self::Error> {
        // A Unix socket has no name, and never uses TLS.
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(TlsHandshake(self.0.clone(), ServerName::try_from(host.to_owned())?))
    }
}

impl TlsConnect<Socket> for TlsHandshake {
    type Stream = TlsSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsSocket>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, stream).await.map(TlsSocket) })
    }
}

// === impl TlsSocket ===

impl TlsStream for TlsSocket {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsSocket {
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

// === impl AcceptAnyCertificate ===

impl ServerCertVerifier for AcceptAnyCertificate {
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
