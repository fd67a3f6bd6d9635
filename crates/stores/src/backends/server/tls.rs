//! The certificate authorities a server's certificate is checked against: those of a PEM file, or the public ones.

use std::{fs, path::Path};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// The certificates of a PEM file, as its text and parsed. `option`: the URL option that named the file.
pub(crate) fn read_authorities(
    option: &str,
    file: &Path,
) -> Result<(Vec<u8>, RootCertStore), String> {
    let failed = |why: String| format!("{option}={} cannot be used: {why}", file.display());
    let pem = fs::read(file).map_err(|why| failed(why.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|why| failed(why.to_string()))?;
        roots.add(certificate).map_err(|why| failed(why.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("the file contains no certificate".to_owned()));
    }
    Ok((pem, roots))
}

pub(crate) fn public_roots() -> RootCertStore {
    webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()
}
