//! The examples of the outbox and the inbox, as the programs that a stranger runs.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hapax::{
    RabbitMq, SqliteQueue,
    ports::{Settlement, Transport},
};
use hapax_tests::{PostgresDatabase, RabbitMqServer, Scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sqlx::{AssertSqlSafe, SqlitePool, sqlite::SqliteConnectOptions};

const PATIENCE: Duration = Duration::from_secs(60);

/// Built with the tests: `cargo build --example` puts it beside them.
fn program(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{program:?} is missing: cargo build -p hapax --all-features --examples");
    Command::new(program)
}

/// A program that runs; it ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(file: &Path) -> Self {
        Self::run(program("outbox_http").arg(file).arg("127.0.0.1:0"))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where it listens").to_owned();
        Self { child, address }
    }

    /// The relay's example, which listens to nobody.
    fn relaying(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        assert!(line.starts_with("relaying"), "{line}");
        std::thread::spawn(move || std::io::copy(&mut says, &mut std::io::sink()));
        Self { child, address: String::new() }
    }

    /// Status and body; an error where the server has died.
    fn ask(&self, request: &str) -> std::io::Result<(u16, Value)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body).unwrap_or(Value::Null));
        status.zip(body).ok_or_else(|| std::io::Error::other(format!("no whole answer: {answer:?}")))
    }

    fn order(&self, key: &str, cups: i64) -> std::io::Result<(u16, Value)> {
        let body = format!("{{\"cups\": {cups}}}");
        self.ask(&format!(
            "POST /orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn health(&self) -> Value {
        self.ask("GET /health HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n").unwrap().1
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn file(dir: &Scratch) -> PathBuf {
    dir.file("shop.db")
}

/// A number out of the shop's file.
async fn number(file: &Path, sql: &str) -> i64 {
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(file)).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&pool).await.unwrap()
}

/// Ids and orders of what billing gets, until each of `orders` has come.
async fn told(file: &Path, orders: &BTreeSet<i64>) -> (BTreeSet<String>, BTreeSet<i64>) {
    let queue = SqliteQueue::open(file).await.unwrap();
    let billing = queue.connect(&"billing".parse().unwrap(), &[]).await.unwrap();
    let (mut ids, mut heard) = (BTreeSet::new(), BTreeSet::new());
    let until = Instant::now() + PATIENCE;
    while !orders.is_subset(&heard) || queue.backlog(&"billing".parse().unwrap()).await.unwrap() > 0 {
        assert!(Instant::now() < until, "billing was told of {} of {}", heard.len(), orders.len());
        let Ok(deliveries) = tokio::time::timeout(Duration::from_secs(1), billing.receiver.receive(100)).await else {
            continue;
        };
        for delivery in deliveries.unwrap() {
            let placed: Value = serde_json::from_slice(&delivery.envelope.body).unwrap();
            heard.insert(placed["order"].as_i64().unwrap());
            ids.insert(delivery.envelope.message_id.to_string());
            billing.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        }
    }
    (ids, heard)
}

/// Goal: a repeated request is one order and one message, and one that is rolled back is neither.
#[tokio::test]
async fn a_key_is_one_order_and_a_refused_one_is_none() {
    let dir = Scratch::new("outbox-http");
    let file = file(&dir);
    let mut server = Server::start(&file);
    let (status, first) = server.order("tea-1", 2).unwrap();
    assert_eq!(status, 201);
    assert_eq!(server.order("tea-1", 2).unwrap(), (201, first.clone()), "the same key gives the same order");
    assert_eq!(server.order("tea-1", 3).unwrap().0, 422, "the same key with another order");
    assert_eq!(server.order("tea-2", 2_000_000).unwrap().0, 409, "sold out, after its message was stored");
    assert_eq!(server.order("tea-3", 0).unwrap().0, 422);
    assert_eq!(server.health()["failed"], 0);

    server.signal(Signal::TERM);
    assert!(server.child.wait().unwrap().success(), "a stop is no failure");
    let orders = BTreeSet::from([first["order"].as_i64().unwrap()]);
    let (ids, heard) = told(&file, &orders).await;
    assert_eq!((ids.len(), heard), (1, orders));
    assert_eq!(number(&file, "SELECT count(*) FROM hapax_outbox").await, 1, "messages that were ever stored");
    assert_eq!(number(&file, "SELECT count(*) FROM shop_order").await, 1);
}

/// Goal: what was answered 201 is at the broker, though the service is killed among its requests. Method: four customers order
/// while it is killed five times and started again; in the end the orders, and nothing else, are at billing.
#[tokio::test]
async fn who_was_answered_is_told_of_though_the_service_is_killed() {
    let dir = Scratch::new("outbox-http-kills");
    let file = file(&dir);
    let mut answered = BTreeSet::new();
    for round in 0..5 {
        let server = Server::start(&file);
        std::thread::scope(|scope| {
            let customers: Vec<_> = (0..4)
                .map(|customer| {
                    let server = &server;
                    scope.spawn(move || {
                        let mut mine = Vec::new();
                        for number in 0.. {
                            let Ok((status, body)) = server.order(&format!("{round}-{customer}-{number}"), 1) else {
                                break;
                            };
                            if status == 201 {
                                mine.push(body["order"].as_i64().unwrap());
                            }
                            // Each kills after another number of orders, so that it meets every place of a request.
                            if customer == 0 && number == 5 + round {
                                server.signal(Signal::KILL);
                            }
                        }
                        mine
                    })
                })
                .collect();
            for customer in customers {
                answered.extend(customer.join().unwrap());
            }
        });
    }
    assert!(answered.len() >= 25, "only {} were answered", answered.len());
    let _server = Server::start(&file);
    let (ids, heard) = told(&file, &answered).await;
    let placed = number(&file, "SELECT count(*) FROM shop_order").await;
    let stored = number(&file, "SELECT count(*) FROM hapax_outbox").await;
    assert_eq!(stored, placed, "as many messages as orders");
    assert!(heard.is_superset(&answered));
    assert!(ids.len() == heard.len(), "{} ids for {} orders", ids.len(), heard.len());
}

/// Orders that billing gets from a broker, until there are so many.
async fn told_by(broker: &RabbitMqServer, orders: usize) -> BTreeSet<i64> {
    let ends = RabbitMq::open(broker.url()).await.unwrap().connect(&"billing".parse().unwrap(), &[]).await.unwrap();
    let mut heard = BTreeSet::new();
    while heard.len() < orders {
        let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(100)).await;
        for delivery in received.unwrap_or_else(|_| panic!("{} of {orders} came", heard.len())).unwrap() {
            let placed: Value = serde_json::from_slice(&delivery.envelope.body).unwrap();
            heard.insert(placed["order"].as_i64().unwrap());
            ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        }
    }
    heard
}

/// Goal: the service sends to RabbitMQ when it is told where that is, and what was answered before a kill is there.
#[tokio::test]
async fn a_service_over_rabbitmq_that_is_killed_tells_of_each_order() {
    let (dir, broker) = (Scratch::new("outbox-http-broker"), RabbitMqServer::start().await);
    let start = || Server::run(program("outbox_http").arg(file(&dir)).arg("127.0.0.1:0").arg(broker.url()));
    let mut answered = BTreeSet::new();
    for round in 0..3 {
        let server = start();
        for number in 0..5 {
            let (status, body) = server.order(&format!("{round}-{number}"), 1).unwrap();
            assert_eq!(status, 201);
            answered.insert(body["order"].as_i64().unwrap());
        }
        server.signal(Signal::KILL);
    }
    let _server = start();
    assert_eq!(told_by(&broker, answered.len()).await, answered);
}

/// Goal: the example does what its first lines say, in one process and as a process for each task.
#[tokio::test]
async fn a_shop_on_postgres_sells_and_relays_in_one_process_and_in_two() {
    let (database, broker) = (PostgresDatabase::new(&[]).await, RabbitMqServer::start().await);
    let of = |task: &[&str]| {
        let mut command = program("outbox_relay");
        command.args([database.url(), broker.url()]).args(task);
        command
    };
    let said = |task: &[&str]| {
        let out = of(task).output().unwrap();
        assert!(out.status.success(), "{task:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let both = said(&[]);
    for words in ["sold 90, failed 10", "at the broker: 90", "billing was told of 90"] {
        assert!(both.contains(words), "{both}");
    }
    let relay = Server::relaying(&mut of(&["relay"]));
    assert!(said(&["sell"]).contains("sold 90, failed 10"));
    // While the relay runs, which has declared the queue: it keeps nothing of it.
    assert_eq!(told_by(&broker, 90).await.len(), 90);
    relay.signal(Signal::INT);
    let mut relay = relay;
    assert!(relay.child.wait().unwrap().success(), "a stop is no failure");
}

/// Goal: the example says what happened, and a second run on the same file charges nothing.
#[test]
fn the_inbox_charges_each_order_once() {
    let dir = Scratch::new("inbox-handler");
    let run = || {
        let out = program("inbox_handler").arg(dir.file("billing.db")).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let first = "sent 30 messages of 10 orders\ncharges 10, of 10 orders\nthe shop heard 10, with 10 ids\n";
    assert_eq!(run(), first);
    let again = "sent 30 messages of 10 orders\ncharges 10, of 10 orders\nthe shop heard 0, with 0 ids\n";
    assert_eq!(run(), again);
}
