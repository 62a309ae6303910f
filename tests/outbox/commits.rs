//! Commits whose answers are lost: on the way there, and on the way back.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{
    rig::Place,
    sink::{Placed, Sink, quick, relay},
};

/// What is lost of the next commit, with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Request,
    Answer,
}

/// A way to a server on which a commit may get lost.
struct Way {
    port: u16,
    loses: Arc<Mutex<Option<Lost>>>,
}

impl Way {
    async fn to(server: (String, u16)) -> Self {
        let door = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, loses) = (door.local_addr().unwrap().port(), Arc::new(Mutex::new(None)));
        let told = loses.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = door.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(carry(client, server, told.clone()));
            }
        });
        Self { port, loses }
    }

    fn lose(&self, what: Lost) {
        *self.loses.lock().unwrap() = Some(what);
    }

    fn has_lost(&self) -> bool {
        self.loses.lock().unwrap().is_none()
    }
}

/// Both ends are closed when it returns.
async fn carry(mut client: TcpStream, mut server: TcpStream, loses: Arc<Mutex<Option<Lost>>>) {
    let (mut asked, mut said) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let asked = &asked[..length];
                let is_commit = asked.windows(6).any(|word| word == b"COMMIT");
                let lost = is_commit.then(|| loses.lock().unwrap().take()).flatten();
                if lost == Some(Lost::Request) || server.write_all(asked).await.is_err() {
                    return;
                }
                if lost == Some(Lost::Answer) {
                    let _ = server.read(&mut said).await; // It is made now.
                    return;
                }
            }
            read = server.read(&mut said) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&said[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Nobody is told that it is committed, and nobody that it is not; a repetition under the user's own key stores it once.
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unknown_and_its_message_is_sent_if_it_was_made() {
    const ORDERS: u32 = 10;
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick().birth_lease(Duration::from_millis(100)));
    let way = Way::to(place.server()).await;
    for order in 0..ORDERS {
        let mut tx = place.pool_through(way.port).await.begin().await.unwrap();
        let insert = format!("INSERT INTO hapax.orders VALUES ({order})");
        place.within(&mut tx, &insert).await;
        let ticket = outbox.enqueue(&mut tx, &Placed { order }).await.unwrap();
        let lost = if order % 2 == 0 { Lost::Answer } else { Lost::Request };
        way.lose(lost);
        let error = outbox.commit(tx, ticket).await.unwrap_err();
        assert!(way.has_lost(), "no commit came by");
        assert!(error.is_unknown_outcome(), "{lost:?}: {error:?}");
        // Waits for the one before, if its connection's end has not been noticed.
        let mut tx = place.begin().await;
        let stored = place.try_within(&mut tx, &insert).await.is_err();
        assert_eq!(stored, lost == Lost::Answer, "{order}");
        if !stored {
            let ticket = outbox.enqueue(&mut tx, &Placed { order }).await.unwrap();
            outbox.commit(tx, ticket).await.unwrap();
        }
    }
    sink.until_all(0..ORDERS).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 0", 0).await;
    relay.stop().await.unwrap();
    let told: HashSet<_> = sink.taken().into_iter().collect();
    assert_eq!(told.len() as u32, ORDERS, "each order under one id");
}
