//! Over TLS, with an authority of one's own.

use hapax::{
    RedisStreams,
    ports::{ErrorKind, Transport, TransportError},
};
use hapax_tests::{RedisServer, Signed};

use super::rig::{ack, body, endpoint, envelope, next, send, to};

async fn sends_and_receives(queue: RedisStreams) {
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
    let options = RedisStreams::options;
    let mut server = RedisServer::start().await;
    let Some(port) = server.with_tls(false, |folder| signed.copy_to(folder)).await else {
        return eprintln!("SKIPPED: this redis-server was built without TLS: take Debian's");
    };
    let url = format!("rediss://localhost:{port}");
    let refused =
        |opened: Result<RedisStreams, TransportError>| format!("{:?}", opened.expect_err("it is not trusted"));
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
    let said = refused(trusting.clone().open(url.replace("localhost", "127.0.0.1")).await);
    assert!(said.contains("certificate") && said.contains("127.0.0.1"), "{said}");

    let port = server.with_tls(true, |_| {}).await.unwrap();
    let url = format!("rediss://localhost:{port}");
    refused(trusting.clone().open(&url).await);
    let known = trusting.client_certificate(signed.read("client.pem"), signed.read("client.key"));
    assert!(!format!("{known:?}").contains("PRIVATE"), "the key is not shown");
    sends_and_receives(known.open(&url).await.unwrap()).await;
}

#[tokio::test]
async fn certificates_that_are_none_are_refused_before_the_server_is_asked() {
    let said = |opened: Result<RedisStreams, TransportError>| {
        let error = opened.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        error.to_string()
    };
    let options = RedisStreams::options;
    let plain = options().certificate_authority("-----BEGIN CERTIFICATE-----").open("redis://localhost:1").await;
    let said_of_plain = said(plain);
    assert!(said_of_plain.contains("rediss://"), "{said_of_plain}");
    let none = options().certificate_authority("/etc/ssl/authority.pem").open("rediss://localhost:1").await;
    let said_of_none = said(none);
    assert!(said_of_none.contains("PEM") || said_of_none.contains("tls-ring"), "{said_of_none}");
    let said_of_any = said(options().open("rediss://localhost:1/#insecure").await);
    assert!(said_of_any.contains("#insecure") || said_of_any.contains("tls-ring"), "{said_of_any}");
    let key = options().client_certificate("-----BEGIN CERTIFICATE-----", "secret").open("rediss://localhost:1").await;
    let said_of_key = said(key);
    assert!(said_of_key.contains("key is not PEM") || said_of_key.contains("tls-ring"), "{said_of_key}");
    assert!(!said_of_key.contains("secret"));
}
