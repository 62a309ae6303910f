//! Over TLS, with an authority of one's own.

use std::time::Duration;

use hapax::{
    RabbitMq,
    ports::{ErrorKind, Transport, TransportError},
    transports::rabbitmq::RabbitMqOptions,
};
use hapax_tests::{RabbitMqServer, Signed};

use super::rig::{ack, body, endpoint, envelope, next, send, to};

fn options() -> RabbitMqOptions {
    RabbitMq::options().patience(Duration::from_secs(10))
}

async fn sends_and_receives(rabbit: RabbitMq) {
    let endpoint = endpoint();
    let ends = rabbit.connect(&endpoint, &[]).await.unwrap();
    send(&rabbit, &[to(&endpoint, envelope("over TLS"))]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "over TLS");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn a_server_of_an_authority_of_ones_own_is_trusted_when_that_is_named() {
    let Some(signed) = Signed::new() else { return };
    let mut server = RabbitMqServer::start().await;
    let port = server.with_tls(false, |folder| signed.copy_to(folder)).await;
    let url = format!("amqps://guest:guest@localhost:{port}");
    let refused = |opened: Result<RabbitMq, TransportError>| format!("{:?}", opened.expect_err("it is not trusted"));
    let opened = options().open(&url).await;
    if let Err(error) = &opened
        && error.kind() == ErrorKind::Misconfigured
        && error.to_string().contains("tls-ring")
    {
        return eprintln!("SKIPPED: built without TLS: `cargo xtask test`");
    }
    let said = refused(opened);
    assert!(said.contains("certificate_authority"), "{said}");
    let trusting = options().certificate_authority(signed.read("authority.pem"));
    sends_and_receives(trusting.clone().open(&url).await.unwrap()).await;
    // The right authority, and another server's name.
    let other = trusting.open(url.replace("localhost", "127.0.0.1")).await;
    let said = refused(other);
    assert!(said.contains("certificate") && said.contains("127.0.0.1"), "{said}");

    let port = server.with_tls(true, |_| {}).await;
    let url = format!("amqps://guest:guest@localhost:{port}");
    let trusting = options().certificate_authority(signed.read("authority.pem"));
    refused(trusting.clone().open(&url).await);
    let known = trusting.client_certificate(signed.read("client.pem"), signed.read("client.key"));
    assert!(!format!("{known:?}").contains("PRIVATE"), "the key is not shown");
    sends_and_receives(known.open(&url).await.unwrap()).await;
}

#[tokio::test]
async fn certificates_that_are_none_are_refused_before_the_server_is_asked() {
    let said = |opened: Result<RabbitMq, TransportError>| {
        let error = opened.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        error.to_string()
    };
    let plain = options().certificate_authority("-----BEGIN CERTIFICATE-----").open("amqp://localhost:1").await;
    let said_of_plain = said(plain);
    assert!(said_of_plain.contains("amqps://"), "{said_of_plain}");
    let none = options().certificate_authority("/etc/ssl/authority.pem").open("amqps://localhost:1").await;
    let said_of_none = said(none);
    assert!(said_of_none.contains("PEM") || said_of_none.contains("tls-ring"), "{said_of_none}");
    let key = options().client_certificate("-----BEGIN CERTIFICATE-----", "secret").open("amqps://localhost:1").await;
    let said_of_key = said(key);
    assert!(said_of_key.contains("key is not PEM") || said_of_key.contains("tls-ring"), "{said_of_key}");
    assert!(!said_of_key.contains("secret"));
}
