//! Connections that end in the middle: a line between the driver and the server, which is cut as a test says.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    RedisStreams,
    ports::{DispatchError, Dispatcher, ErrorKind, Settled, Settlement, Transport},
};
use hapax_tests::RedisServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::rig::*;

/// What is asked goes to the server; what it answers is kept back once that is asked for, until the line is cut.
pub(crate) struct Line {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    keeps_answers: AtomicBool,
    /// How many connections are carried, and how many of those are answered; none: all.
    carried: AtomicUsize,
    answered: AtomicUsize,
    cut: Notify,
}

impl State {
    fn is_beyond(number: usize, most: &AtomicUsize) -> bool {
        let most = most.load(Ordering::Relaxed);
        most > 0 && number > most
    }

    fn keeps_answers_of(&self, number: usize) -> bool {
        self.keeps_answers.load(Ordering::Relaxed) || Self::is_beyond(number, &self.answered)
    }
}

impl Line {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        tokio::spawn(async move {
            for number in 1.. {
                let Ok((client, _)) = listener.accept().await else { return };
                if State::is_beyond(number, &shared.carried) {
                    continue;
                }
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                    tokio::spawn(carry(number, client, server, shared.clone()));
                }
            }
        });
        Self { port: here, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn keep_answers(&self, keep: bool) {
        self.state.keeps_answers.store(keep, Ordering::Relaxed);
    }

    /// Connections behind the first so many end as they begin.
    pub(crate) fn carry_only(&self, connections: usize) {
        self.state.carried.store(connections, Ordering::Relaxed);
    }

    /// From now on only the first so many get answers.
    pub(crate) fn answer_only(&self, connections: usize) {
        self.state.answered.store(connections, Ordering::Relaxed);
    }

    /// All connections of now.
    fn cut(&self) {
        self.state.cut.notify_waiters();
    }
}

async fn carry(number: usize, mut client: TcpStream, mut server: TcpStream, state: Arc<State>) {
    let cut = state.cut.notified();
    tokio::pin!(cut);
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            () = &mut cut => return,
            read = client.read(&mut asked) => match read {
                Ok(bytes) if bytes > 0 => if server.write_all(&asked[..bytes]).await.is_err() { return },
                _ => return,
            },
            read = server.read(&mut answered) => match read {
                Ok(bytes) if bytes > 0 && state.keeps_answers_of(number) => {}
                Ok(bytes) if bytes > 0 => if client.write_all(&answered[..bytes]).await.is_err() { return },
                _ => return,
            },
        }
    }
}

async fn until_length(queue: &RedisStreams, endpoint: &hapax::ids::EndpointName, length: u64) {
    let looking = async {
        while queue.backlog(endpoint).await.unwrap() != length {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("the server never has it");
}

/// The server has the messages, and nobody says so: they count as not sent, and as perhaps sent; repeated under their ids they
/// are copies.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_cut_before_its_confirmation_is_told_as_unknown_and_may_have_been_sent() {
    let server = RedisServer::start().await;
    let line = Line::to(server.port()).await;
    let (direct, here) = (RedisStreams::open(server.url()).await.unwrap(), endpoint());
    let queue = RedisStreams::open(line.url()).await.unwrap();
    let ends = direct.connect(&here, &[]).await.unwrap();
    let sent = ["a", "b", "c"].map(|body| to(&here, envelope(body)));
    line.keep_answers(true);
    let sending = {
        let (queue, sent) = (queue.clone(), sent.clone());
        tokio::spawn(async move { queue.dispatch(&sent).await })
    };
    until_length(&direct, &here, 3).await;
    line.cut();
    let results = sending.await.unwrap();
    line.keep_answers(false);
    for result in results {
        let Err(DispatchError::Transient(e)) = result else { panic!("{result:?}") };
        assert_eq!(e.kind(), ErrorKind::UnknownOutcome, "{e:?}");
    }
    // The next call has another connection.
    send(&queue, &sent).await;
    let mut came = Vec::new();
    for _ in 0..6 {
        let delivery = next(&ends).await;
        came.push((body(&delivery), delivery.envelope.message_id.clone()));
        ack(&ends, &delivery).await;
    }
    came.sort();
    came.dedup();
    assert_eq!(came.len(), 3, "copies have their ids: {came:?}");
}

/// Taken by a call whose answer was lost: it comes again once that lease has run out, and counts.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_on_a_line_that_is_cut_comes_again() {
    let server = RedisServer::start().await;
    let line = Line::to(server.port()).await;
    let options = || RedisStreams::options().lease(LEASE);
    let (direct, here) = (options().open(server.url()).await.unwrap(), endpoint());
    let ends = options().open(line.url()).await.unwrap().connect(&here, &[]).await.unwrap();
    // It waits, so that its connections are there.
    nothing(&ends, Duration::from_millis(300)).await;
    line.keep_answers(true);
    send(&direct, &[to(&here, envelope("m"))]).await;
    let receiver = ends.receiver.clone();
    let receiving = tokio::spawn(async move { receiver.receive(1).await });
    let mut connection = plain(&server.url()).await;
    let pending = format!("XPENDING hapax:queue:{here} hapax - + 10");
    while ask::<Vec<redis::Value>>(&mut connection, &pending).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    line.cut();
    let failed = tokio::time::timeout(PATIENCE, receiving).await.expect("it waits for ever").unwrap();
    line.keep_answers(false);
    assert!(failed.is_err(), "{failed:?}");
    let delivery = next(&ends).await;
    assert_eq!((body(&delivery).as_str(), delivery.attempts), ("m", 2));
    ack(&ends, &delivery).await;
}

/// The same where order is kept: it comes before what is new, at once, and no handler has seen it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_on_a_line_that_is_cut_comes_before_what_is_new_where_order_is_kept() {
    let server = RedisServer::start().await;
    let line = Line::to(server.port()).await;
    let options = || RedisStreams::options().ordered_keys(true).lease(PATIENCE * 2);
    let (direct, here) = (options().open(server.url()).await.unwrap(), endpoint());
    let ends = options().open(line.url()).await.unwrap().connect(&here, &[]).await.unwrap();
    send(&direct, &[to(&here, envelope("held"))]).await;
    let held = next(&ends).await;
    nothing(&ends, Duration::from_millis(300)).await;
    line.keep_answers(true);
    send(&direct, &["missed-1", "missed-2"].map(|name| to(&here, envelope(name)))).await;
    let receiver = ends.receiver.clone();
    let receiving = tokio::spawn(async move { receiver.receive(1).await });
    let mut connection = plain(&server.url()).await;
    let pending = format!("XPENDING hapax:queue:{here} hapax-in-order - + 10");
    while ask::<Vec<redis::Value>>(&mut connection, &pending).await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    line.cut();
    let failed = tokio::time::timeout(PATIENCE, receiving).await.expect("it waits for ever").unwrap();
    line.keep_answers(false);
    assert!(failed.is_err(), "{failed:?}");
    send(&direct, &[to(&here, envelope("new"))]).await;
    let mut came = Vec::new();
    while came.len() < 3 {
        let deliveries =
            tokio::time::timeout(PATIENCE, ends.receiver.receive(10)).await.expect("nothing came").unwrap();
        came.extend(deliveries.iter().map(|delivery| (body(delivery), delivery.attempts)));
    }
    assert_eq!(came, ["missed-1", "missed-2", "new"].map(|name| (name.to_owned(), 1)));
    ack(&ends, &held).await; // What is held is not given once more.
}

/// An acknowledgement whose answer was lost: nobody knows, and whoever asks again is told that the lease is gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_on_a_line_that_is_cut_is_never_told_as_done() {
    let server = RedisServer::start().await;
    let line = Line::to(server.port()).await;
    let (direct, here) = (RedisStreams::open(server.url()).await.unwrap(), endpoint());
    let ends = RedisStreams::open(line.url()).await.unwrap().connect(&here, &[]).await.unwrap();
    send(&direct, &[to(&here, envelope("m"))]).await;
    let delivery = next(&ends).await;
    line.keep_answers(true);
    let (receiver, receipt) = (ends.receiver.clone(), delivery.receipt.clone());
    let settling = tokio::spawn(async move { receiver.settle(&receipt, Settlement::Ack).await });
    until_length(&direct, &here, 0).await;
    line.cut();
    let settled = tokio::time::timeout(PATIENCE, settling).await.expect("it is never answered").unwrap();
    line.keep_answers(false);
    assert_eq!(settled.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap(), Settled::LeaseLost);
}

/// A server that stands still answers nobody, and nobody waits for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_not_waited_for_longer_than_was_said() {
    let server = RedisServer::start().await;
    let line = Line::to(server.port()).await;
    let patience = Duration::from_millis(300);
    let queue = RedisStreams::options().patience(patience).open(line.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    line.keep_answers(true);
    let failed = queue.dispatch(&[to(&here, envelope("m"))]).await.pop().unwrap();
    let Err(DispatchError::Transient(e)) = failed else { panic!("{failed:?}") };
    assert_eq!(e.kind(), ErrorKind::UnknownOutcome);
    assert!(e.to_string().contains("did not answer within 300ms"), "{e}");
    tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it waits for ever").unwrap_err();
    line.keep_answers(false);
    line.cut();
    let came = async {
        loop {
            match ends.receiver.receive(1).await {
                Ok(deliveries) => break deliveries,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, came).await.expect("it never comes").len(), 1);
}
