//! Names and passwords: the proxy asks for them as Kafka does (SASL PLAIN), since the broker of the tests is asked by nobody.

use std::{io, time::Duration};

use hapax::{
    Kafka,
    ports::{ErrorKind, TransportError},
    transports::kafka::Mechanism,
};
use hapax_tests::KfakeServer;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::{
    proxy::{Proxied, WHICH, read, write},
    rig::*,
};

/// Kinds of requests, as Kafka's protocol numbers them.
const HANDSHAKE: i16 = 17;
const AUTHENTICATE: i16 = 36;
const AUTHENTICATION_FAILED: i16 = 58;

/// Asks who is there until that is known; nobody else gets to the broker.
///
/// # Errors
/// It is somebody else, who has been told so, or has gone.
pub(crate) async fn let_in(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    server: &mut TcpStream,
    (user, password): (&str, &str),
) -> io::Result<()> {
    let expected = format!("\0{user}\0{password}");
    loop {
        let request = read(client).await?;
        let (kind, number) = (i16::from_be_bytes([request[0], request[1]]), &request[4..8]);
        match kind {
            _ if kind == WHICH.0 => {
                write(server, &request).await?;
                let answer = read(server).await?;
                write(client, &answer).await?;
            }
            // No error, and one mechanism.
            HANDSHAKE => write(client, &[number, &[0, 0, 0, 0, 0, 1, 0, 5], b"PLAIN"].concat()).await?,
            AUTHENTICATE => {
                let version = i16::from_be_bytes([request[2], request[3]]);
                assert!(version < 2, "its lengths are read as those of before");
                let knows = request.ends_with(expected.as_bytes());
                let code = if knows { 0 } else { AUTHENTICATION_FAILED }.to_be_bytes();
                // No text, nothing more to say, and from version 1 on: for ever.
                let life = vec![0; if version == 1 { 8 } else { 0 }];
                write(client, &[number, &code, &[0xff, 0xff], &[0; 4], &life].concat()).await?;
                return if knows { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) };
            }
            _ => return Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

#[tokio::test]
async fn who_knows_the_password_is_let_in_and_nobody_else() {
    let broker = Proxied::start_with_password("shop", "corner 7").await;
    let url = |login: &str| broker.url().replace("kafka://", &format!("kafka://{login}@"));
    let queue = options().open(url("shop:corner%207")).await.unwrap();
    sends_and_receives(&queue).await;
    let soon = || options().patience(Duration::from_secs(3));
    let said = |opened: Result<Kafka, TransportError>| {
        let error = opened.expect_err("it is let in");
        (error.kind(), format!("{error:?}"))
    };
    let (kind, text) = said(soon().open(url("shop:hunter2")).await);
    assert_eq!(kind, ErrorKind::Denied, "{text}");
    assert!(text.contains("password") && !text.contains("hunter2"), "{text}");
    said(soon().open(broker.url()).await);
}

/// The name of this module is in the names of its tests, by which they are left out where there is no kfake.
mod kfake {
    use super::*;

    /// What the proxy does not speak, from another broker, where there is one. SCRAM needs OpenSSL, as TLS does.
    #[tokio::test]
    async fn who_knows_the_password_is_let_in_by_each_mechanism() {
        let Some(broker) = KfakeServer::that_asks_for("corner 7") else { return };
        for (user, mechanism) in
            [("plain", Mechanism::Plain), ("scram256", Mechanism::ScramSha256), ("scram512", Mechanism::ScramSha512)]
        {
            let url = |password: &str| broker.url().replace("kafka://", &format!("kafka://{user}:{password}@"));
            let usual = || options().mechanism(mechanism);
            let queue = match usual().open(url("corner%207")).await {
                Err(error) if error.kind() == ErrorKind::Misconfigured => {
                    return eprintln!("SKIPPED: built without TLS: `cargo xtask test`: {error:?}");
                }
                opened => opened.unwrap(),
            };
            sends_and_receives(&queue).await;
            // That broker ends the connection of who does not know it, and says no more.
            let error = usual().patience(Duration::from_secs(3)).open(url("hunter2")).await.expect_err("it is let in");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
