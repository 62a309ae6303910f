//! Over TLS, with an authority of one's own: what speaks it is the proxy, since the broker of the tests does not.

use std::{sync::Arc, time::Duration};

use hapax::{
    Kafka,
    ports::{ErrorKind, TransportError},
};
use hapax_tests::Signed;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

use super::{proxy::Proxied, rig::*};

fn certificates(signed: &Signed, name: &str) -> Vec<CertificateDer<'static>> {
    let pem = signed.read(&format!("{name}.pem"));
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap()
}

/// A broker that shows a certificate for its address, since clients are told to come to that, and may ask for theirs.
async fn broker(signed: &Signed, asks: bool) -> Proxied {
    signed.sign("broker", "subjectAltName=IP:127.0.0.1");
    let key = PrivateKeyDer::from_pem_slice(signed.read("broker.key").as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let begun = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let begun = if asks {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(signed, "authority"));
        let known = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        begun.with_client_cert_verifier(known)
    } else {
        begun.with_no_client_auth()
    };
    Proxied::start_with_tls(begun.with_single_cert(certificates(signed, "broker"), key).unwrap()).await
}

/// What is refused is tried again until then.
const SOON: Duration = Duration::from_secs(3);

fn refused(opened: Result<Kafka, TransportError>) -> String {
    format!("{:?}", opened.expect_err("it is not trusted"))
}

#[tokio::test]
async fn a_broker_of_an_authority_of_ones_own_is_trusted_when_that_is_named() {
    let Some(signed) = Signed::new() else { return };
    let broker = broker(&signed, false).await;
    let url = broker.url().replace("kafka://", "kafka+tls://");
    let opened = options().patience(SOON).open(&url).await;
    if let Err(error) = &opened
        && error.kind() == ErrorKind::Misconfigured
        && error.to_string().contains("kafka-tls")
    {
        return eprintln!("SKIPPED: built without TLS: `cargo xtask test`");
    }
    let said = refused(opened);
    assert!(said.contains("certificate"), "{said}");
    let trusting = options().certificate_authority(signed.read("authority.pem"));
    sends_and_receives(&trusting.clone().open(&url).await.unwrap()).await;
    // The right authority, and another server's name.
    let said = refused(trusting.patience(SOON).open(url.replace("127.0.0.1", "localhost")).await);
    assert!(said.contains("certificate") && said.contains("localhost"), "{said}");
    sends_and_receives(&options().danger_accept_any_certificate().open(&url).await.unwrap()).await;
}

#[tokio::test]
async fn a_broker_that_asks_for_certificates_is_shown_one() {
    let Some(signed) = Signed::new() else { return };
    let broker = broker(&signed, true).await;
    let url = broker.url().replace("kafka://", "kafka+tls://");
    let trusting = options().certificate_authority(signed.read("authority.pem"));
    let known = trusting.clone().client_certificate(signed.read("client.pem"), signed.read("client.key"));
    assert!(!format!("{known:?}").contains("PRIVATE"), "the key is not shown");
    let opened = known.open(&url).await;
    if let Err(error) = &opened
        && error.to_string().contains("kafka-tls")
    {
        return eprintln!("SKIPPED: built without TLS: `cargo xtask test`");
    }
    sends_and_receives(&opened.unwrap()).await;
    refused(trusting.patience(SOON).open(&url).await);
}
