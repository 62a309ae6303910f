//! A connection that is cut while something is under way on it, by a proxy of the test's own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax::{
    Nats,
    ports::{DispatchError, Dispatcher, Receiver, Settled, Settlement, Transport},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::broadcast,
    time::timeout,
};

use super::rig::*;

/// Passes on what comes, until told otherwise.
pub(crate) struct Proxy {
    port: u16,
    /// What the server says is taken and not passed on.
    is_deaf: Arc<AtomicBool>,
    cuts: broadcast::Sender<()>,
}

impl Proxy {
    pub(crate) async fn to(server: String) -> Self {
        let server = server.split_once("//").unwrap().1.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_deaf, cuts) = (Arc::new(AtomicBool::new(false)), broadcast::channel(4).0);
        let proxy = Self { port, is_deaf: is_deaf.clone(), cuts: cuts.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, is_deaf, mut cut) = (server.clone(), is_deaf.clone(), cuts.subscribe());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        () = passed_on(client, server, &is_deaf) => {}
                        _ = cut.recv() => {}
                    }
                });
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// From now on nothing comes back.
    pub(crate) fn deafen(&self) {
        self.is_deaf.store(true, Ordering::SeqCst);
    }

    /// All connections end; the next ones are whole.
    fn cut(&self) {
        self.is_deaf.store(false, Ordering::SeqCst);
        self.cuts.send(()).unwrap();
    }
}

async fn passed_on(client: TcpStream, server: TcpStream, is_deaf: &AtomicBool) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let there = tokio::io::copy(&mut from_client, &mut to_server);
    let back = async {
        let mut part = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from_server.read(&mut part).await {
            if !is_deaf.load(Ordering::SeqCst) && to_client.write_all(&part[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = there => {}
        () = back => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_confirmed_when_the_connection_was_cut_is_sent_again_and_is_there_once() {
    let proxy = Proxy::to(url()).await;
    let queue = options().open(proxy.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let outgoing: Vec<_> = (0..50).map(|number| to(&here, envelope(&format!("m {number}")))).collect();
    proxy.deafen();
    let sending = {
        let (queue, outgoing) = (queue.clone(), outgoing.clone());
        tokio::spawn(async move { queue.dispatch(&outgoing).await })
    };
    // The server has all of them, and nobody here knows.
    let direct = open().await;
    let stored = async {
        while direct.backlog(&here).await.unwrap() < 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, stored).await.expect("the server has not got them");
    assert!(!sending.is_finished(), "they count as sent, unconfirmed");
    proxy.cut();
    let results = timeout(Duration::from_secs(5), sending).await.expect("a cut is not noticed").unwrap();
    for result in results {
        let Err(DispatchError::Transient(error)) = result else { panic!("{result:?}") };
        assert!(error.is_unknown_outcome(), "{error:?}");
    }
    let mut left = outgoing;
    let again = async {
        while !left.is_empty() {
            let mut results = queue.dispatch(&left).await.into_iter();
            left.retain(|_| results.next().unwrap().is_err());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, again).await.expect("they are never confirmed");
    assert_eq!(direct.backlog(&here).await.unwrap(), 50, "the server knows them by their ids");
    drop(ends);
}

/// A lease is the server's, not the connection's: what was given before is settled on the next one.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_while_the_connection_is_cut_is_settled_on_the_next_one() {
    let proxy = Proxy::to(url()).await;
    let queue = options().lease(Duration::from_secs(20)).open(proxy.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("one")), to(&here, envelope("two"))]).await;
    let (one, two) = (next(&ends).await, next(&ends).await);
    proxy.deafen();
    let settling = {
        let receiver = ends.receiver.clone();
        tokio::spawn(async move { receiver.settle(&one.receipt, Settlement::Ack).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!settling.is_finished(), "it counts as settled, unconfirmed");
    proxy.cut();
    assert_eq!(timeout(PATIENCE, settling).await.unwrap().unwrap().unwrap(), Settled::Done);
    ack(&ends, &two).await;
    assert_eq!(open().await.unsettled(&here).await.unwrap(), 0);
    // The receiver goes on.
    send_until_sent(&queue, &here, "three").await;
    assert_eq!(body(&received(&*ends.receiver).await), "three");
}

/// It had asked, and the server has forgotten; nobody waits for an answer that cannot come.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_when_the_connection_is_cut_is_told_and_asks_again() {
    let proxy = Proxy::to(url()).await;
    let queue = options().open(proxy.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let receiver = ends.receiver.clone();
    let waiting = tokio::spawn(async move { receiver.receive(10).await });
    tokio::time::sleep(Duration::from_millis(200)).await; // It has asked by then, or asks on the next connection.
    proxy.cut();
    send_until_sent(&open().await, &here, "after").await;
    let waited = timeout(Duration::from_secs(5), waiting).await.expect("it waits for ever").unwrap();
    let given = match waited {
        Ok(mut given) => given.pop().unwrap(),
        Err(_) => received(&*ends.receiver).await,
    };
    assert_eq!((body(&given).as_str(), given.attempts), ("after", 1));
}

pub(crate) async fn send_until_sent(queue: &Nats, here: &hapax::ids::EndpointName, body: &str) {
    let message = [to(here, envelope(body))];
    let sent = async {
        while queue.dispatch(&message).await.iter().any(Result::is_err) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, sent).await.expect("it cannot be sent");
}

/// The next message, through what is told of the connection meanwhile.
pub(crate) async fn received(receiver: &dyn Receiver) -> hapax::ports::Delivery {
    let received = async {
        loop {
            if let Ok(mut given) = receiver.receive(1).await {
                return given.pop().unwrap();
            }
        }
    };
    timeout(PATIENCE, received).await.expect("nothing comes")
}
