//! HTTPS.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rf_server::{Tls, TlsError};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::server::{Setup, TestServer, exchange, rest};

/// A certificate for localhost or its key. They were made for these tests.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(format!("{name}.pem"))
}

fn tls(name: &str) -> Tls {
    Tls::from_files(&file(&format!("{name}.cert")), &file(&format!("{name}.key"))).unwrap()
}

/// The status of `/health` for a client that trusts one certificate.
fn health(address: SocketAddr, trusted: &str) -> std::io::Result<u16> {
    let mut roots = RootCertStore::empty();
    let certificate = file(&format!("{trusted}.cert"));
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let request = hyper::Request::get("/health").header("host", "localhost");
        Ok(exchange(stream, request.body(String::new()).unwrap()).await.status)
    })
}

#[test]
fn a_server_with_a_certificate_speaks_https_only() {
    let mut setup = Setup::default();
    setup.server.tls = Some(tls("first"));
    let server = TestServer::with(setup);
    assert_eq!(health(server.address, "first").unwrap(), 200);
    assert!(health(server.address, "second").is_err(), "it has the first certificate");
    let mut plain = TcpStream::connect(server.address).unwrap();
    std::io::Write::write_all(&mut plain, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    assert!(!rest(plain).contains("200"));
    // A client that says nothing keeps nobody waiting.
    let _silent = TcpStream::connect(server.address).unwrap();
    server.control.set_tls(tls("second"));
    assert_eq!(health(server.address, "second").unwrap(), 200);
    assert!(health(server.address, "first").is_err(), "it has the second certificate");
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let mixed = Tls::from_files(&file("first.cert"), &file("second.key"));
    assert!(matches!(mixed, Err(TlsError::Mismatch(_))), "{mixed:?}");
    let swapped = Tls::from_files(&file("first.key"), &file("first.key"));
    assert!(matches!(swapped, Err(TlsError::NoCertificate(_))), "{swapped:?}");
    let no_key = Tls::from_files(&file("first.cert"), &file("first.cert"));
    assert!(matches!(no_key, Err(TlsError::File { .. })), "{no_key:?}");
    let missing = Tls::from_files(&file("third.cert"), &file("first.key"));
    assert!(matches!(missing, Err(TlsError::File { .. })), "{missing:?}");
}
