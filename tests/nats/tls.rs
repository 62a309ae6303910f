//! Over TLS, with an authority of one's own.

use std::time::Duration;

use hapax::{
    Nats,
    ports::{ErrorKind, Transport, TransportError},
    transports::nats::NatsOptions,
};
use hapax_tests::{NatsServer, Signed};

use super::rig::{ack, body, endpoint, envelope, next, send, to};

fn options() -> NatsOptions {
    Nats::options().patience(Duration::from_secs(10))
}

/// A server that has just begun may not answer yet.
async fn opened(options: NatsOptions, url: &str) -> Result<Nats, TransportError> {
    for _ in 0..500 {
        match options.clone().open(url).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => tokio::time::sleep(Duration::from_millis(20)).await,
            opened => return opened,
        }
    }
    options.open(url).await
}

async fn sends_and_receives(queue: Nats) {
    let endpoint = endpoint();
    let ends = queue.connect(&endpoint, &[]).await.unwrap();
    send(&queue, &[to(&endpoint, envelope("over TLS"))]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "over TLS");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn a_server_of_an_authority_of_ones_own_is_trusted_when_that_is_named() {
    let Some(signed) = Signed::new() else { return };
    let mut server = NatsServer::start().await;
    server.with_tls(false, |folder| signed.copy_to(folder));
    let url = format!("tls://localhost:{}", server.port());
    let refused = |opened: Result<Nats, TransportError>| format!("{:?}", opened.expect_err("it is not trusted"));
    let first = opened(options(), &url).await;
    if let Err(error) = &first
        && error.kind() == ErrorKind::Misconfigured
        && error.to_string().contains("tls-ring")
    {
        return eprintln!("SKIPPED: built without TLS: `cargo xtask test`");
    }
    let said = refused(first);
    assert!(said.contains("certificate_authority"), "{said}");
    let trusting = options().certificate_authority(signed.read("authority.pem"));
    sends_and_receives(trusting.clone().open(&url).await.unwrap()).await;
    // The right authority, and another server's name.
    let said = refused(trusting.clone().open(url.replace("localhost", "127.0.0.1")).await);
    assert!(said.contains("certificate") && said.contains("127.0.0.1"), "{said}");

    server.with_tls(true, |_| {});
    let known = trusting.clone().client_certificate(signed.read("client.pem"), signed.read("client.key"));
    assert!(!format!("{known:?}").contains("PRIVATE"), "the key is not shown");
    sends_and_receives(opened(known, &url).await.unwrap()).await;
    refused(trusting.open(&url).await);
}

#[tokio::test]
async fn certificates_that_are_none_are_refused_before_the_server_is_asked() {
    let said = |opened: Result<Nats, TransportError>| {
        let error = opened.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        error.to_string()
    };
    let plain = options().certificate_authority("-----BEGIN CERTIFICATE-----").open("nats://localhost:1").await;
    let said_of_plain = said(plain);
    assert!(said_of_plain.contains("tls://"), "{said_of_plain}");
    let none = options().certificate_authority("/etc/ssl/authority.pem").open("tls://localhost:1").await;
    let said_of_none = said(none);
    assert!(said_of_none.contains("PEM") || said_of_none.contains("tls-ring"), "{said_of_none}");
    let key = options().client_certificate("-----BEGIN CERTIFICATE-----", "secret").open("tls://localhost:1").await;
    let said_of_key = said(key);
    assert!(said_of_key.contains("key is not PEM") || said_of_key.contains("tls-ring"), "{said_of_key}");
    assert!(!said_of_key.contains("secret"));
}
