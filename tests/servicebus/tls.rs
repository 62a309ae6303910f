//! Over TLS, with an authority of one's own. The service takes nothing without it; what stands in for it here speaks none, and neither does the
//! server of the tests, so a door stands before each.

use std::{sync::Arc, time::Duration};

use hapax::{
    ServiceBus,
    ports::{ErrorKind, Settlement, Transport, TransportError},
};
use hapax_tests::Signed;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{peer::Peer, rig::*};

fn certificates(signed: &Signed) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(signed.read("server.pem").as_bytes()).collect::<Result<_, _>>().unwrap()
}

/// Shows a certificate for `localhost`, and passes on to `place` what comes by TLS. Its port.
async fn door(signed: &Signed, place: &str) -> u16 {
    let key = PrivateKeyDer::from_pem_slice(signed.read("server.key").as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let begun = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = begun.with_no_client_auth().with_single_cert(certificates(signed), key).unwrap();
    let (acceptor, place) = (TlsAcceptor::from(Arc::new(config)), place.to_owned());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, place) = (acceptor.clone(), place.clone());
            tokio::spawn(async move {
                // Who does not trust it goes away.
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let Ok(mut server) = TcpStream::connect(place).await else { return };
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    port
}

fn is_without_tls(opened: &Result<ServiceBus, TransportError>) -> bool {
    opened.as_ref().is_err_and(|error| {
        error.kind() == ErrorKind::Misconfigured
            && error.to_string().contains("build hapax with the feature `tls-ring`")
    })
}

fn is_refused(opened: Result<ServiceBus, TransportError>) {
    let error = opened.expect_err("it is trusted");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("certificate_authority"), "{error:?}");
}

#[tokio::test]
async fn a_namespace_of_an_authority_of_ones_own_is_trusted_when_that_is_named() {
    let Some(signed) = Signed::new() else { return };
    let (peer, here) = (Peer::start().await, endpoint());
    let string = peer.connection_string();
    // The service's own is the same without the last word, which is what asks for no TLS.
    let (place, account) = string.strip_prefix("Endpoint=sb://").unwrap().split_once(';').unwrap();
    let account = account.strip_suffix(";UseDevelopmentEmulator=true").unwrap();
    let port = door(&signed, place).await;
    let at = |host: &str| format!("Endpoint=sb://{host}:{port};{account}");
    // Its locks do not run out while a slow machine is at it.
    let options = options_at(&string).lock_duration(Duration::from_secs(60));
    let opened = options.clone().open(at("localhost")).await;
    if is_without_tls(&opened) {
        return eprintln!("SKIPPED: built without TLS: `cargo xtask test`");
    }
    is_refused(opened);
    let trusting = options.certificate_authority(signed.read("authority.pem"));
    // The right authority, and another server's name.
    is_refused(trusting.clone().open(at("127.0.0.1")).await);
    let bus = trusting.open(at("localhost")).await.unwrap();
    peer.run(&bus.az_commands(&here, &[]));
    let ends = bus.connect(&here, &[]).await.unwrap();
    send(&bus, &[to(&here, envelope("over TLS"))]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "over TLS");
    // On a connection of its own.
    ends.receiver.extend(std::slice::from_ref(&delivery.receipt)).await.unwrap();
    assert_eq!(peer.seen(&queue_of(&here)).renewed, 1);
    settle(&ends, &delivery, Settlement::Ack).await;
}

/// Not what stands in for the service: RabbitMQ, which is asked for no queue, since over TLS queues have the service's addresses.
#[tokio::test]
async fn another_server_lets_in_who_trusts_the_door_before_it_and_has_the_key() {
    if is_azure() {
        return eprintln!("SKIPPED: the service has TLS itself, and all tests on it go over that");
    }
    let Some(signed) = Signed::new() else { return };
    let server = url();
    let (account, place) = server.strip_prefix("amqp://").unwrap().rsplit_once('@').unwrap();
    let port = door(&signed, place.split('/').next().unwrap()).await;
    let trusting = ServiceBus::options().certificate_authority(signed.read("authority.pem"));
    let opened = trusting.clone().open(format!("amqps://{account}@localhost:{port}")).await;
    if is_without_tls(&opened) {
        return eprintln!("SKIPPED: built without TLS: `cargo xtask test`");
    }
    opened.unwrap();
    let stranger = trusting.open(format!("amqps://stranger:secret@localhost:{port}")).await.unwrap_err();
    assert_eq!(stranger.kind(), ErrorKind::Denied, "{stranger:?}");
}

#[tokio::test]
async fn certificates_that_are_none_are_refused_before_the_server_is_asked() {
    let refused = async |pem: &str, at: &str, says: &str| {
        let error = ServiceBus::options().certificate_authority(pem).open(at).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        let said = error.to_string();
        assert!(said.contains(says) || said.contains("build hapax with the feature `tls-ring`"), "{said}");
    };
    refused("-----BEGIN CERTIFICATE-----", "amqp://localhost:1", "begin it with amqps://").await;
    refused("/etc/ssl/authority.pem", "amqps://localhost:1", "is not PEM").await;
}
