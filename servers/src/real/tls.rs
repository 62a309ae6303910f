//! TLS to the services themselves.

use std::{
    io,
    sync::{Arc, LazyLock},
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

/// TLS over a connection to `host`, whose certificate is to be one of Mozilla's authorities. HTTP/1.1 is all that is offered.
///
/// # Errors
/// `host` is none, or proves not to be itself.
pub async fn encrypted(host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("ring has the usual versions");
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    });
    let name = ServerName::try_from(host.to_owned()).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    TlsConnector::from(CONFIG.clone()).connect(name, stream).await
}
