//! The proxy that fails as it is told, in front of a server that counts what reaches it.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use hapax_tests::http_faults::{Canned, Fault, FaultProxy, Gate};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// A server that answers `served N: BODY` to its Nth request, and the header `x-echo` if it has one, and keeps connections until `connection: close` is asked.
struct Served {
    url: String,
    count: Arc<AtomicU32>,
}

impl Served {
    fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn on(listener: TcpListener) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicU32::new(0));
        let (counted, own) = (Arc::clone(&count), url.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (counted, own) = (Arc::clone(&counted), own.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &counted, &own));
            }
        });
        Self { url, count }
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, count: &AtomicU32, own: &str) {
    while let Some((head, body)) = read(&mut stream) {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let said = match head.starts_with("GET / ") {
            true => format!("my address is {own}/"),
            false => {
                let echo = head.lines().find_map(|line| line.strip_prefix("x-echo: "));
                format!("served {number}: {body}{}", echo.map(|echo| format!(", {echo}")).unwrap_or_default())
            }
        };
        let answer = format!("HTTP/1.1 200 OK\r\nx-served: {number}\r\ncontent-length: {}\r\n\r\n{said}", said.len());
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

/// One message: its head and its body. None at the end.
fn read(stream: &mut TcpStream) -> Option<(String, String)> {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        read.push(byte[0]);
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.to_lowercase().split("content-length: ").nth(1).map_or(0, |rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    });
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).unwrap()))
}

struct Client(TcpStream);

impl Client {
    fn new(proxy: &FaultProxy) -> Self {
        Self(TcpStream::connect(proxy.url().strip_prefix("http://").unwrap()).unwrap())
    }

    fn send(&mut self, operation: &str, body: &str) {
        let length = body.len();
        let asked = format!(
            "POST /items?a=b HTTP/1.1\r\nhost: x\r\nX-Amz-Target: Db_2012.{operation}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.0.write_all(asked.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> Option<(String, String)> {
        read(&mut self.0)
    }

    fn ask(&mut self, operation: &str, body: &str) -> Option<(String, String)> {
        self.send(operation, body);
        self.answer()
    }

    /// The body alone.
    fn said(&mut self, operation: &str, body: &str) -> Option<String> {
        self.ask(operation, body).map(|(_, said)| said)
    }
}

fn rig() -> (Served, FaultProxy, Client) {
    let served = Served::start();
    let proxy = FaultProxy::start(&served.url).unwrap();
    let client = Client::new(&proxy);
    (served, proxy, client)
}

#[test]
fn what_no_rule_is_for_passes_and_is_logged() {
    let (served, proxy, mut client) = rig();
    let (head, said) = client.ask("Put", "one").unwrap();
    assert!(head.contains("x-served: 1") && head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(said, "served 1: one");
    assert_eq!(client.said("Get", "").unwrap(), "served 2: ", "on the same connection");
    let asked = proxy.asked();
    assert_eq!((asked.len(), served.count()), (2, 2));
    let first = &asked[0];
    assert_eq!((first.method(), first.path(), first.body()), ("POST", "/items?a=b", &b"one"[..]));
    assert_eq!((first.target(), first.operation()), (Some("Db_2012.Put"), Some("Put")));
    assert_eq!((first.header("HOST"), first.header("none")), (Some("x"), None));
    assert_eq!(proxy.count(|asked| asked.operation() == Some("Get")), 1);
    proxy.forget();
    assert!(proxy.asked().is_empty());
}

#[test]
fn a_rule_is_for_the_first_that_match_and_the_first_rule_counts() {
    let (served, proxy, mut client) = rig();
    let first = proxy.first(1, |asked| asked.operation() == Some("Put"), Fault::answer(503, &[], "no"));
    let every = proxy.every(|asked| asked.body() == b"x", Fault::answer(400, &[], "never"));
    assert_eq!(client.said("Get", "").unwrap(), "served 1: ");
    assert_eq!(client.said("Put", "x").unwrap(), "no");
    assert_eq!(client.said("Put", "x").unwrap(), "never");
    assert_eq!(client.said("Get", "x").unwrap(), "never");
    assert_eq!(client.said("Put", "").unwrap(), "served 2: ");
    every.end();
    assert_eq!(client.said("Get", "x").unwrap(), "served 3: x");
    assert_eq!((first.matched(), every.matched(), every.served(), served.count()), (1, 2, 0, 3));
}

#[test]
fn a_dropped_request_reaches_nobody() {
    let (served, proxy, mut client) = rig();
    let rule = proxy.first(1, |_| true, Fault::DropRequest);
    assert!(client.ask("Put", "one").is_none(), "no byte of an answer");
    assert_eq!((rule.matched(), rule.served(), served.count()), (1, 0, 0));
    assert!(Client::new(&proxy).ask("Put", "two").is_some());
}

#[test]
fn a_dropped_answer_was_served() {
    let (served, proxy, mut client) = rig();
    let rule = proxy.first(1, |_| true, Fault::DropAnswer);
    assert!(client.ask("Put", "one").is_none(), "no byte of an answer");
    assert_eq!((rule.matched(), rule.served(), served.count()), (1, 1, 1));
    assert_eq!(Client::new(&proxy).said("Put", "two").unwrap(), "served 2: two");
}

#[test]
fn a_canned_answer_has_status_headers_and_body() {
    let (served, proxy, mut client) = rig();
    proxy.first(1, |_| true, Fault::Answer(Canned::new(429, &[("retry-after", "3")], "slow down")));
    let (head, said) = client.ask("Put", "one").unwrap();
    assert!(head.starts_with("HTTP/1.1 429") && head.contains("retry-after: 3"), "{head}");
    assert_eq!((said.as_str(), served.count()), ("slow down", 0));
}

#[test]
fn the_client_is_told_something_else_than_what_was_served() {
    let (served, proxy, mut client) = rig();
    let rule = proxy.first(1, |_| true, Fault::answer_after_served(500, &[], "broken"));
    let (head, said) = client.ask("Put", "one").unwrap();
    assert!(head.starts_with("HTTP/1.1 500") && said == "broken", "{head}");
    assert_eq!((rule.served(), served.count()), (1, 1));
}

#[test]
fn an_answer_that_is_cut_in_the_middle_was_served() {
    let (served, proxy, mut client) = rig();
    let rule = proxy.first(1, |_| true, Fault::CutAnswer);
    client.send("Put", "one");
    let mut came = String::new();
    let _ = client.0.read_to_string(&mut came); // It may end by a reset.
    assert!(came.starts_with("HTTP/1.1 200") && came.contains("content-length: 13"), "{came}");
    assert!(came.ends_with("\r\n\r\nserved"), "{came}");
    assert_eq!((rule.matched(), rule.served(), served.count()), (1, 1, 1));
    assert_eq!(Client::new(&proxy).said("Put", "two").unwrap(), "served 2: two");
}

#[test]
fn the_server_is_asked_with_another_header() {
    let (_served, proxy, mut client) = rig();
    proxy.first(1, |_| true, Fault::ask_with(&[("x-echo", "small pages")]));
    assert_eq!(client.said("Put", "one").unwrap(), "served 1: one, small pages");
    assert_eq!(client.said("Put", "two").unwrap(), "served 2: two");
}

#[tokio::test]
async fn a_held_request_reaches_the_server_when_the_client_has_gone() {
    let (served, proxy, mut client) = rig();
    let gate = Gate::new();
    let rule = proxy.first(1, |_| true, Fault::Hold(gate.clone()));
    client.send("Put", "late");
    rule.until_matched(1).await;
    drop(client);
    // Held all the same, whether the proxy has seen by now that the client is gone or not.
    assert_eq!(Client::new(&proxy).said("Put", "early").unwrap(), "served 1: early");
    assert_eq!(rule.served(), 0);
    // Idle only when it is served.
    let idle = proxy.until_idle();
    tokio::pin!(idle);
    assert!(futures_util::poll!(&mut idle).is_pending());
    gate.open();
    idle.await;
    assert_eq!((rule.served(), served.count()), (1, 2));
}

#[tokio::test]
async fn a_delayed_request_reaches_the_server_late() {
    let (served, proxy, mut client) = rig();
    let (begun, by) = (Instant::now(), Duration::from_millis(200));
    let rule = proxy.first(1, |_| true, Fault::Delay(by));
    client.send("Put", "late");
    rule.until_matched(1).await;
    drop(client);
    rule.until_served(1).await;
    assert!(begun.elapsed() >= by);
    assert_eq!(served.count(), 1);
}

#[tokio::test]
async fn a_held_answer_comes_late_to_what_was_served() {
    let (served, proxy, mut client) = rig();
    let gate = Gate::new();
    let rule = proxy.first(1, |_| true, Fault::HoldAnswer(gate.clone()));
    client.send("Put", "one");
    rule.until_served(1).await;
    assert_eq!(served.count(), 1);
    client.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(client.answer().is_none(), "not yet");
    client.0.set_read_timeout(None).unwrap();
    gate.open();
    assert_eq!(client.answer().unwrap().1, "served 1: one");
}

#[test]
fn an_answer_is_rewritten_with_its_length() {
    let (_served, proxy, mut client) = rig();
    proxy.first(1, |_| true, Fault::rewrite(|body| [body, b", and more"].concat()));
    assert_eq!(client.said("Put", "one").unwrap(), "served 1: one, and more");
    assert_eq!(client.said("Put", "two").unwrap(), "served 2: two");
}

#[test]
fn the_address_of_the_server_is_the_proxys_in_its_account_alone() {
    let (served, proxy, mut client) = rig();
    assert_eq!(client.said("Put", &served.url).unwrap(), format!("served 1: {}", served.url));
    client.0.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert_eq!(client.answer().unwrap().1, format!("my address is {}/", proxy.url()));
}

#[test]
fn a_server_that_is_not_there_closes_the_connection_and_is_found_when_it_is_back() {
    let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = FaultProxy::start(&format!("http://{place}")).unwrap();
    assert!(Client::new(&proxy).ask("Put", "one").is_none());
    let _served = Served::on(TcpListener::bind(place).unwrap());
    assert_eq!(Client::new(&proxy).said("Put", "two").unwrap(), "served 1: two");
}

#[test]
fn what_is_no_url_of_a_server_is_refused() {
    // A proxy that speaks TLS to the server is for the services themselves.
    let tls = (!cfg!(feature = "real")).then_some("https://127.0.0.1:1");
    for url in ["", "127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:1/path"].into_iter().chain(tls) {
        assert!(FaultProxy::start(url).is_err(), "{url}");
    }
}

#[test]
fn fifty_clients_at_once_are_all_served() {
    let (served, proxy, _client) = rig();
    let lost = proxy.first(10, |_| true, Fault::DropAnswer);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let mut client = Client::new(&proxy);
                    while client.ask("Put", "x").is_none() {
                        client = Client::new(&proxy);
                    }
                }
            });
        }
    });
    assert_eq!((lost.matched(), lost.served(), served.count(), proxy.asked().len()), (10, 10, 210, 210));
}

#[tokio::test]
async fn a_client_of_http_2_loses_its_connection_with_the_answer() {
    let (served, proxy, _client) = rig();
    let lost = proxy.first(1, |asked| asked.method() == "PUT", Fault::DropAnswer);
    let ask = async |method: &str| {
        let stream = tokio::net::TcpStream::connect(proxy.url().strip_prefix("http://").unwrap()).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let uri = format!("{}/items", proxy.url());
        let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::from("one"))).unwrap();
        let answer = sender.send_request(request).await.ok()?;
        Some(answer.into_body().collect().await.unwrap().to_bytes())
    };
    assert_eq!(ask("PUT").await, None);
    assert_eq!((lost.served(), served.count()), (1, 1));
    assert_eq!(ask("POST").await.unwrap(), "served 2: one");
}
