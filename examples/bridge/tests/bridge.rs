//! Two programs of the bridge, killed again and again: each message is on the other broker under one id.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use bridge::{BRIDGED_BY, Broker, Placed};
use futures_util::TryStreamExt;
use hapax::{
    Message, MessageId,
    envelope::{Destination, Envelope},
    ids::{EndpointName, TypeName},
    ports::{Connected, Delivery, Settlement},
};
use hapax_servers::RedisServer;

const ORDERS: u64 = 400;
/// Messages that have come across between two kills.
const BETWEEN_KILLS: usize = 25;
/// What has to come comes long before this, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a lease of the bridge's, after which what a program had that was killed is given to another.
const QUIET: Duration = Duration::from_secs(7);

/// One of the bridge's programs; it ends with this.
struct Program {
    child: Child,
}

impl Program {
    fn start(name: &str, file: &Path, from: &str, to: &str, prefix: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let program = test.parent().unwrap().parent().unwrap().join("examples").join("bridge");
        assert!(program.exists(), "{program:?} is missing: cargo build -p hapax-example-bridge --examples");
        let mut command = Command::new(program);
        let mut child = command.arg(name).arg(file).args([from, to, prefix]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "bridging\n");
        Self { child }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A folder of the test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("hapax-bridge-{}", MessageId::random()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Removes what a test has declared: a prefix has dozens of queues on RabbitMQ, which bear some hundreds.
async fn clean_up(prefix: &str) {
    let options = lapin::ConnectionProperties::default();
    let connection = lapin::Connection::connect(&broker("HAPAX_TEST_RABBITMQ"), options).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let delays = (0..32).map(|level| format!("delay.{level}"));
    let ends = ["stock", "across", "to", "to-again", "back"];
    let queues = ends.iter().flat_map(|name| ["queue", "dead-letters"].map(|of| format!("{of}.{name}")));
    for name in delays.clone().chain(queues).chain(["unrouted".into()]) {
        channel.queue_delete(format!("{prefix}.{name}").as_str().into(), Default::default()).await.unwrap();
    }
    for name in delays.chain(["topics", "due", "unrouted"].map(String::from)) {
        channel.exchange_delete(format!("{prefix}.{name}").as_str().into(), Default::default()).await.unwrap();
    }
    let nats = async_nats::jetstream::new(async_nats::connect(broker("HAPAX_TEST_NATS")).await.unwrap());
    let streams: Vec<String> = nats.stream_names().try_collect().await.unwrap();
    for stream in streams.iter().filter(|name| name.contains(prefix)) {
        nats.delete_stream(stream).await.unwrap();
    }
}

fn placed() -> TypeName {
    TypeName::parse(Placed::TYPE).unwrap()
}

/// Each order twice, as by a shop that was not told that it was taken.
async fn publish(broker: &Broker) {
    let sender = broker.sender();
    for order in 0..ORDERS {
        let envelope: Envelope = sender.envelope(MessageId::random(), &Placed { order }).unwrap();
        for _ in 0..2 {
            sender.send_envelope(Destination::Topic(placed()), envelope.clone()).await.unwrap();
        }
    }
}

/// The ids under which each order has come, when all have under so many; `killed` is called now and then.
async fn collect(ends: &Connected, ids: usize, mut killed: impl FnMut()) -> BTreeMap<u64, BTreeSet<MessageId>> {
    let (mut came, mut since) = (BTreeMap::<u64, BTreeSet<MessageId>>::new(), 0);
    while came.values().filter(|came| came.len() >= ids).count() < ORDERS as usize {
        let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(10)).await;
        for delivery in received.unwrap_or_else(|_| panic!("{} of {ORDERS} have come", came.len())).unwrap() {
            came.entry(order_of(&delivery)).or_default().insert(delivery.envelope.message_id.clone());
            ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
            since += 1;
        }
        if since >= BETWEEN_KILLS {
            since = 0;
            killed();
        }
    }
    came
}

/// Goes on until nothing comes any more: one that comes again is late, and would be the last.
async fn look_on(ends: &Connected, came: &mut BTreeMap<u64, BTreeSet<MessageId>>) {
    while let Ok(received) = tokio::time::timeout(QUIET, ends.receiver.receive(10)).await {
        for delivery in received.unwrap() {
            came.entry(order_of(&delivery)).or_default().insert(delivery.envelope.message_id.clone());
            ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        }
    }
}

/// Which orders have come as several messages.
fn several(came: &BTreeMap<u64, BTreeSet<MessageId>>) -> Vec<u64> {
    came.iter().filter(|(_, ids)| ids.len() > 1).map(|(order, _)| *order).collect()
}

async fn bridged(from: &str, to: &str) {
    let (folder, prefix) = (Folder::new(), format!("br-{}", MessageId::random()));
    let (here, there) = (Broker::open(from, &prefix).await.unwrap(), Broker::open(to, &prefix).await.unwrap());
    // Who wants to know, before anything is published.
    let ends = there.transport.connect(&EndpointName::parse("stock").unwrap(), &[placed()]).await.unwrap();
    let start = || Program::start("across", &folder.0.join("bridge.db"), from, to, &prefix);
    let (mut programs, mut kills) = (vec![start(), start()], 0);
    let publishing = tokio::spawn(async move { publish(&here).await });
    let came = collect(&ends, 1, || {
        drop(programs.swap_remove(fastrand::usize(..programs.len())));
        programs.push(start());
        kills += 1;
    });
    let mut came = came.await;
    publishing.await.unwrap();
    look_on(&ends, &mut came).await;
    assert!(kills >= 5, "killed {kills} times");
    assert!(several(&came).is_empty(), "some have come as several messages: {:?}", several(&came));
    drop(programs);
    clean_up(&prefix).await;
}

fn broker(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("no broker to test with: run `cargo xtask test`, or set {variable}"))
}

#[tokio::test]
async fn what_is_published_on_rabbitmq_is_on_nats_under_one_id_while_the_bridge_is_killed() {
    bridged(&broker("HAPAX_TEST_RABBITMQ"), &broker("HAPAX_TEST_NATS")).await;
}

#[tokio::test]
async fn what_is_published_on_nats_is_on_rabbitmq_under_one_id_while_the_bridge_is_killed() {
    bridged(&broker("HAPAX_TEST_NATS"), &broker("HAPAX_TEST_RABBITMQ")).await;
}

/// Goal: the tests above can fail. Method: what takes the bridge's place publishes whatever it is given, each under a new id, and every order
/// is found to have come twice, the last as well.
#[tokio::test]
async fn a_bridge_that_remembers_nothing_is_found_out() {
    let [from, to] = ["HAPAX_TEST_RABBITMQ", "HAPAX_TEST_NATS"].map(broker);
    let prefix = format!("br-{}", MessageId::random());
    let (here, there) = (Broker::open(&from, &prefix).await.unwrap(), Broker::open(&to, &prefix).await.unwrap());
    let ends = there.transport.connect(&EndpointName::parse("stock").unwrap(), &[placed()]).await.unwrap();
    let across = here.transport.connect(&EndpointName::parse("across").unwrap(), &[placed()]).await.unwrap();
    publish(&here).await;
    let sender = there.sender();
    let forwarding = tokio::spawn(async move {
        loop {
            for delivery in across.receiver.receive(10).await.unwrap() {
                let order = order_of(&delivery);
                let envelope: Envelope = sender.envelope(MessageId::random(), &Placed { order }).unwrap();
                sender.send_envelope(Destination::Topic(placed()), envelope).await.unwrap();
                across.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
            }
        }
    });
    let mut came = collect(&ends, 1, || ()).await;
    look_on(&ends, &mut came).await;
    forwarding.abort();
    assert_eq!(several(&came), Vec::from_iter(0..ORDERS));
    clean_up(&prefix).await;
}

/// A server that keeps what it confirms, in a folder of its own: the bridge is refused by any other.
async fn redis(folder: &Folder) -> RedisServer {
    let mut server = RedisServer::create(&folder.0).unwrap();
    let is_there = async {
        loop {
            server.run().unwrap();
            if Broker::open(&server.url(), "br").await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_there).await.unwrap_or_else(|_| panic!("it does not answer"));
    server
}

#[tokio::test]
async fn what_is_published_on_rabbitmq_is_on_redis_under_one_id_while_the_bridge_is_killed() {
    let folder = Folder::new();
    let redis = redis(&folder).await;
    bridged(&broker("HAPAX_TEST_RABBITMQ"), &redis.url()).await;
}

#[tokio::test]
async fn what_is_published_on_redis_is_on_nats_under_one_id_while_the_bridge_is_killed() {
    let folder = Folder::new();
    let redis = redis(&folder).await;
    bridged(&redis.url(), &broker("HAPAX_TEST_NATS")).await;
}

/// Goal: bridges of one broker and one file take nothing from each other, and of both directions nothing goes round. Method: two go from one
/// broker to another, so that each message is there under two ids, and one goes back.
#[tokio::test]
async fn bridges_with_names_of_their_own_take_nothing_from_each_other_and_send_nothing_round() {
    let [from, to] = ["HAPAX_TEST_RABBITMQ", "HAPAX_TEST_NATS"].map(broker);
    let (folder, prefix) = (Folder::new(), format!("br-{}", MessageId::random()));
    let (here, there) = (Broker::open(&from, &prefix).await.unwrap(), Broker::open(&to, &prefix).await.unwrap());
    let stock = EndpointName::parse("stock").unwrap();
    let ends_here = here.transport.connect(&stock, &[placed()]).await.unwrap();
    let ends_there = there.transport.connect(&stock, &[placed()]).await.unwrap();
    let start = |name, from: &str, to: &str| Program::start(name, &folder.0.join("bridge.db"), from, to, &prefix);
    let programs = [start("to", &from, &to), start("to-again", &from, &to), start("back", &to, &from)];
    publish(&here).await;
    let mut came = collect(&ends_there, 2, || ()).await;
    look_on(&ends_there, &mut came).await;
    assert!(came.values().all(|ids| ids.len() == 2), "{came:?}");
    let sender = there.sender();
    let last: Envelope = sender.envelope(MessageId::random(), &Placed { order: ORDERS }).unwrap();
    sender.send_envelope(Destination::Topic(placed()), last).await.unwrap();
    assert_eq!(bridged_until(ORDERS, &ends_here).await, [ORDERS], "what was published here has come back");
    drop(programs);
    clean_up(&prefix).await;
}

/// Which orders come over a bridge, until `last` has.
async fn bridged_until(last: u64, ends: &Connected) -> Vec<u64> {
    let mut came = Vec::new();
    while !came.contains(&last) {
        let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(10)).await;
        for delivery in received.expect("the last one comes").unwrap() {
            if delivery.envelope.headers.value(BRIDGED_BY).is_some() {
                came.push(order_of(&delivery));
            }
            ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        }
    }
    came
}

fn order_of(delivery: &Delivery) -> u64 {
    let digits = delivery.envelope.body.iter().filter(|byte| byte.is_ascii_digit());
    String::from_utf8(digits.copied().collect()).unwrap().parse().unwrap()
}
