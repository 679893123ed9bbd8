//! The certificate of a server that speaks HTTPS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate with its key. The server speaks HTTPS with it, TLS 1.2 and 1.3.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ServerConfig>);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not in PEM format.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The file has no certificate.
    #[error("{} has no certificate in PEM format", .0.display())]
    NoCertificate(PathBuf),
    /// The key is not that of the certificate, or of an unknown kind.
    #[error("cannot use the certificate: {0}")]
    Mismatch(#[from] tokio_rustls::rustls::Error),
}

impl Tls {
    /// Reads a chain of certificates, that of the server first, and its private key, in PEM format.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or they do not belong together.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::File { path, source }
        };
        let chain = CertificateDer::pem_file_iter(certificate).map_err(file(certificate))?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(file(certificate))?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate(certificate.to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(file(key))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}
