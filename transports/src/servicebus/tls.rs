//! TLS, where the feature `tls-ring` brings it.

use std::io;

use tokio::net::TcpStream;

use super::ServiceBusOptions;

/// What goes over a connection.
pub(super) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls-ring")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// How a server is recognised, if it is to be.
pub(super) struct Tls(#[cfg(feature = "tls-ring")] Option<tokio_rustls::TlsConnector>);

#[cfg(not(feature = "tls-ring"))]
impl Tls {
    pub(super) fn of(options: &ServiceBusOptions, is_used: bool) -> Result<Self, String> {
        if is_used || options.authority.is_some() {
            return Err("this asks for TLS; build hapax with the feature `tls-ring`".into());
        }
        Ok(Self())
    }

    // Async, as with the feature.
    pub(super) async fn over(&self, _: &str, stream: TcpStream) -> io::Result<Stream> {
        Ok(Stream::Plain(stream))
    }
}

#[cfg(feature = "tls-ring")]
impl Tls {
    pub(super) fn of(options: &ServiceBusOptions, is_used: bool) -> Result<Self, String> {
        use std::sync::Arc;

        use rustls::{
            ClientConfig, RootCertStore, crypto,
            pki_types::{CertificateDer, pem::PemObject},
        };
        if !is_used {
            return match options.authority {
                Some(_) => {
                    Err("a certificate was given, and the address does not ask for TLS: begin it with amqps://".into())
                }
                None => Ok(Self(None)),
            };
        }
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some(pem) = &options.authority {
            let mut count = 0;
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|_| "the certificate authority is not PEM that can be read")?;
                roots.add(certificate).map_err(|e| format!("the certificate authority is of no use: {e}"))?;
                count += 1;
            }
            if count == 0 {
                return Err("the certificate authority is not PEM: it has no line `-----BEGIN CERTIFICATE-----`".into());
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Some(Arc::new(config).into())))
    }

    pub(super) async fn over(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let Some(connector) = &self.0 else { return Ok(Stream::Plain(stream)) };
        let name = rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(connector.connect(name, stream).await?)))
    }
}
