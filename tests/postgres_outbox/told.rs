//! Listening where the server's words do not arrive, though nobody has said so: something on the way passes on everything else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{Postgres, ports::OutboxTable};
use hapax_tests::LogLines;
use sqlx::postgres::PgConnectOptions;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{
    rig::{Outbox, Place},
    sink::{PATIENCE, Sink, quick, relay},
};

/// The message of PostgreSQL's protocol that carries what was told by `NOTIFY`.
const NOTIFICATION: u8 = b'A';
/// Whoever listens notices it as often as this before it is well.
const DEAF: usize = 2;

/// A way to the server on which, of the first connections that listen, the server's words are lost and nothing else.
struct Way {
    port: u16,
    listening: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl Way {
    async fn to(server: (String, u16)) -> Self {
        let door = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = door.local_addr().unwrap().port();
        let (listening, lost) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (listening.clone(), lost.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = door.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(carry(client, server, counts.clone()));
            }
        });
        Self { port, listening, lost }
    }
}

/// Both ends are closed when it returns.
async fn carry(client: TcpStream, server: TcpStream, (listening, lost): (Arc<AtomicUsize>, Arc<AtomicUsize>)) {
    let ((mut asks, mut hears), (mut says, mut asked)) = (client.into_split(), server.into_split());
    // Which of those that listen it is, once it does.
    let number = AtomicUsize::new(0);
    let asking = async {
        let mut some = vec![0; 1 << 16];
        while let Ok(length @ 1..) = asks.read(&mut some).await {
            if some[..length].windows(8).any(|word| word == b"LISTEN \"") {
                number.store(listening.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            if asked.write_all(&some[..length]).await.is_err() {
                break;
            }
        }
    };
    let saying = async {
        while let Some(message) = message(&mut says).await {
            if message[0] == NOTIFICATION && (1..=DEAF).contains(&number.load(Ordering::Relaxed)) {
                lost.fetch_add(1, Ordering::Relaxed);
            } else if hears.write_all(&message).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = asking => {}
        () = saying => {}
    }
}

/// The next that the server says: a letter, and its length with what follows.
async fn message(says: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut message = vec![0; 5];
    says.read_exact(&mut message).await.ok()?;
    let length = u32::from_be_bytes(message[1..].try_into().unwrap());
    message.resize(1 + length as usize, 0);
    says.read_exact(&mut message[5..]).await.ok()?;
    Some(message)
}

/// Takes 20 s: an attempt to listen is given up after 5 s, and the next one is made 5 s later.
#[tokio::test]
async fn where_the_servers_words_do_not_arrive_it_is_said_once_and_the_outbox_is_looked_at_until_they_do() {
    let logged = LogLines::here();
    let warnings = || {
        let mut lines = logged.with("WARN");
        lines.retain(|line| line.contains("listening to the server was lost"));
        lines
    };
    let (place, sink) = (Place::new().await, Sink::new());
    let writer = place.outbox().await;
    let way = Way::to(place.server()).await;
    let through: PgConnectOptions = place.schema.url().parse().unwrap();
    let through = through.host("127.0.0.1").port(way.port).ssl_mode(sqlx::postgres::PgSslMode::Disable);
    let database = Postgres::with(through).schema(place.schema.name());
    let outbox = Outbox::options().open_database(database).await.unwrap();
    let relay = relay(&outbox, &sink, quick());

    let is_deaf = async {
        while way.listening.load(Ordering::Relaxed) <= DEAF {
            assert!(!outbox.is_told(), "it trusts words that do not arrive");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Another process's, which this one finds by looking; those that it has itself stored it would have heard of.
    let mut orders = 0;
    let storing = async {
        loop {
            place.orders(&writer, orders..orders + 1).await;
            orders += 1;
            sink.until_all(0..orders).await;
        }
    };
    tokio::select! {
        deaf = tokio::time::timeout(PATIENCE * 2, is_deaf) => deaf.expect("it listens again"),
        () = storing => {}
    }
    assert!(orders > 1, "nothing is sent meanwhile");
    let heard = async {
        while !outbox.is_told() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE * 2, heard).await.expect("it listens once it can");
    assert_eq!(way.listening.load(Ordering::Relaxed), DEAF + 1);
    assert!(way.lost.load(Ordering::Relaxed) >= DEAF, "nothing was lost on the way");
    let [line] = &warnings()[..] else { panic!("{:?}", warnings()) };
    assert!(line.contains("the server's words do not arrive"), "{line}");
    relay.stop().await.unwrap();
}
