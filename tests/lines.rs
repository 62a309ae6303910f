//! The line that fails as networks do, by itself: each trouble is what it says, and each is met.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hapax_tests::{Line, Trouble, Weather};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// A request, and its answer: a number.
const BYTES: usize = 8;
const LASTS: Duration = Duration::from_millis(200);
/// Far above what anything takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Enough for every kind to be met, whatever is drawn.
const REQUESTS: u64 = 10_000;
const FEW: u32 = 20;

/// What a server has served, and when first.
type Served = Arc<Mutex<HashMap<u64, Instant>>>;

/// One that answers each request with the same bytes.
async fn server() -> (String, Served) {
    let (listener, served) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Served::default());
    let place = listener.local_addr().unwrap().to_string();
    let serves = served.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let served = serves.clone();
            tokio::spawn(async move {
                let mut request = [0; BYTES];
                while client.read_exact(&mut request).await.is_ok() {
                    served.lock().unwrap().entry(u64::from_be_bytes(request)).or_insert_with(Instant::now);
                    if client.write_all(&request).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (place, served)
}

/// A request that got no answer: when that was clear, and when it was sent.
struct Unanswered {
    number: u64,
    sent: Instant,
    over: Instant,
    /// What is late is on it.
    line: Line,
}

/// Asks through a line with this trouble alone until somebody goes without an answer; each connection is used until then.
async fn first_unanswered(trouble: Trouble) -> (Unanswered, Served) {
    let (place, served) = server().await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let line = Line::to(&place, seed).await.unwrap();
    line.weather(Some(Weather { troubles: vec![trouble], every: Duration::from_millis(5), lasts: LASTS }));
    let mut client = TcpStream::connect(line.place()).await.unwrap();
    for number in 0..REQUESTS {
        let (sent, mut answer) = (Instant::now(), [0; BYTES]);
        client.write_all(&number.to_be_bytes()).await.unwrap();
        match timeout(PATIENCE, client.read_exact(&mut answer)).await.expect("neither an answer nor an end") {
            Ok(_) => assert_eq!(u64::from_be_bytes(answer), number),
            Err(_) => {
                let over = Instant::now();
                // What is late has not come yet.
                assert!(trouble == Trouble::Late || line.met()[&trouble] > 0, "a connection ended by itself");
                return (Unanswered { number, sent, over, line }, served);
            }
        }
    }
    panic!("{trouble} was never met");
}

fn when(served: &Served, number: u64) -> Option<Instant> {
    served.lock().unwrap().get(&number).copied()
}

#[tokio::test]
async fn what_is_swallowed_was_served_and_its_answer_never_comes() {
    let (unanswered, served) = first_unanswered(Trouble::Swallow).await;
    let served = when(&served, unanswered.number).expect("a request whose answer is swallowed is served");
    assert!(served < unanswered.over);
}

#[tokio::test]
async fn what_is_late_is_served_after_its_client_has_gone() {
    // One may be late by no time at all, and is served either way.
    for _ in 0..FEW {
        let (unanswered, served) = first_unanswered(Trouble::Late).await;
        let came = async {
            loop {
                if let Some(at) = when(&served, unanswered.number) {
                    return at;
                }
                tokio::task::yield_now().await;
            }
        };
        let came = timeout(PATIENCE, came).await.expect("what is late comes");
        assert!(unanswered.line.met()[&Trouble::Late] > 0, "a connection ended by itself");
        if came > unanswered.over {
            return;
        }
    }
    panic!("each came while its client was there");
}

#[tokio::test]
async fn a_black_hole_says_nothing_until_it_ends_the_connection() {
    let (unanswered, _) = first_unanswered(Trouble::BlackHole).await;
    assert!(unanswered.over - unanswered.sent < PATIENCE);
}

#[tokio::test]
async fn a_connection_that_is_cut_ends_at_once() {
    let (unanswered, _) = first_unanswered(Trouble::Cut).await;
    assert!(unanswered.over - unanswered.sent < PATIENCE);
}

#[tokio::test]
async fn what_is_delayed_or_in_pieces_comes_whole_and_in_order() {
    let (place, _) = server().await;
    let line = Line::to(&place, fastrand::u64(..)).await.unwrap();
    let troubles = vec![Trouble::Delay, Trouble::Slice];
    line.weather(Some(Weather { troubles, every: Duration::from_millis(2), lasts: Duration::from_millis(20) }));
    let mut client = TcpStream::connect(line.place()).await.unwrap();
    let mut number = 0_u64;
    while line.met()[&Trouble::Delay] == 0 || line.met()[&Trouble::Slice] == 0 {
        let mut answer = [0; BYTES];
        client.write_all(&number.to_be_bytes()).await.unwrap();
        timeout(PATIENCE, client.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(u64::from_be_bytes(answer), number);
        number += 1;
        assert!(number < REQUESTS, "{:?}", line.met());
    }
}

#[tokio::test]
async fn in_fair_weather_and_behind_a_cut_all_is_as_without_a_line() {
    let (place, served) = server().await;
    let line = Line::to(&place, 1).await.unwrap();
    let mut client = TcpStream::connect(line.place()).await.unwrap();
    for number in 0..100_u64 {
        client.write_all(&number.to_be_bytes()).await.unwrap();
        let mut answer = [0; BYTES];
        timeout(PATIENCE, client.read_exact(&mut answer)).await.unwrap().unwrap();
    }
    line.cut();
    assert!(timeout(PATIENCE, client.read(&mut [0])).await.unwrap().is_ok_and(|read| read == 0));
    let mut client = TcpStream::connect(line.place()).await.unwrap();
    client.write_all(&100_u64.to_be_bytes()).await.unwrap();
    timeout(PATIENCE, client.read_exact(&mut [0; BYTES])).await.unwrap().unwrap();
    assert_eq!(served.lock().unwrap().len(), 101);
    assert!(line.met().values().all(|count| *count == 0));
}
