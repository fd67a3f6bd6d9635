//! TLS for the server: a certificate from files or a self-signed one. TLS 1.2 and 1.3, HTTP/2 by ALPN.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use domain::{
    secret::Secret,
    time::{Day, Timestamp},
};
use parking_lot::RwLock;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// A validated certificate with its key. Clones share it, and a reload replaces it.
#[derive(Clone)]
pub struct TlsMaterial(Arc<RwLock<Arc<ServerConfig>>>);

/// A self-signed certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    pub certificate: String,
    pub key: Secret,
}

/// Clients with a slow clock accept a new certificate at once.
const A_DAY: Duration = Duration::from_secs(24 * 3600);
const VALIDITY: Duration = Duration::from_secs(3652 * 24 * 3600);

/// Why a certificate is unusable.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    #[error("{path} cannot be read: {source}")]
    File { path: String, source: std::io::Error },
    #[error("no certificate found; expected PEM with BEGIN CERTIFICATE")]
    NoCertificate,
    #[error("no private key found; expected PEM with BEGIN PRIVATE KEY")]
    NoKey,
    #[error("the certificate cannot be used with this key: {0}")]
    Unusable(#[from] rustls::Error),
    #[error("failed to create a certificate for these names: {0}")]
    Names(#[from] rcgen::Error),
}

// === impl TlsMaterial ===

impl TlsMaterial {
    /// Reads a certificate chain and its key from PEM files.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, BadTls> {
        Self::from_pem(&read(certificate)?, &read(key)?)
    }

    /// Reads a certificate chain and its key from PEM text.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, BadTls> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| BadTls::NoCertificate)?;
        if chain.is_empty() {
            return Err(BadTls::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| BadTls::NoKey)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(RwLock::new(Arc::new(config)))))
    }

    /// Shows the other certificate on new connections; open ones go on with theirs.
    pub fn replace(&self, other: &Self) {
        let new = Arc::clone(&other.0.read());
        *self.0.write() = new;
    }

    pub(crate) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        Arc::clone(&self.0.read()).into()
    }
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsMaterial(…)")
    }
}

// === impl SelfSigned ===

impl SelfSigned {
    /// Creates a certificate for these host names and addresses, valid for ten years from the day before `today`. It is not
    /// renewed by itself, because workers trust this very certificate.
    pub fn create(names: impl IntoIterator<Item = String>, today: Day) -> Result<Self, BadTls> {
        let mut wanted = CertificateParams::new(names.into_iter().collect::<Vec<_>>())?;
        wanted.distinguished_name = DistinguishedName::new();
        wanted.distinguished_name.push(DnType::CommonName, "solvegate (self-signed)");
        let since_1970 = today.start().since(Timestamp::default());
        wanted.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_1970 - A_DAY;
        wanted.not_after = wanted.not_before + VALIDITY;
        let key = KeyPair::generate()?;
        let certificate = wanted.self_signed(&key)?.pem();
        Ok(Self { certificate, key: Secret::new(key.serialize_pem()) })
    }

    pub fn material(&self) -> Result<TlsMaterial, BadTls> {
        TlsMaterial::from_pem(self.certificate.as_bytes(), self.key.expose().as_bytes())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BadTls> {
    std::fs::read(path).map_err(|source| BadTls::File { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: Day = Day::from_number(20_000);

    #[test]
    fn a_certificate_names_the_gateway_and_is_valid_for_ten_years() {
        let made = SelfSigned::create(["a.example".to_owned()], TODAY).unwrap();
        let der = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
        let has = |text: &str| der.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has("solvegate (self-signed)"));
        // Day 20,000 is 2024-10-04; times are YYMMDDhhmmssZ.
        assert!(has("241003000000Z") && has("341003000000Z"), "{}", made.certificate);
    }

    #[test]
    fn a_certificate_of_our_own_can_be_used_and_hides_its_key() {
        let made =
            SelfSigned::create(["localhost".to_owned(), "127.0.0.1".to_owned()], TODAY).unwrap();
        assert!(made.material().is_ok());
        assert!(!format!("{made:?}").contains("PRIVATE KEY"));
    }

    #[test]
    fn a_wrong_file_is_named() {
        let missing = TlsMaterial::from_files(Path::new("/nowhere/a.pem"), Path::new("b.pem"));
        assert!(missing.unwrap_err().to_string().contains("/nowhere/a.pem"));
        let made = SelfSigned::create(["a.example".to_owned()], TODAY).unwrap();
        let other = SelfSigned::create(["a.example".to_owned()], TODAY).unwrap();
        let mixed =
            TlsMaterial::from_pem(made.certificate.as_bytes(), other.key.expose().as_bytes());
        assert!(matches!(mixed, Err(BadTls::Unusable(_))));
        assert!(matches!(TlsMaterial::from_pem(b"x", b"y"), Err(BadTls::NoCertificate)));
    }
}
