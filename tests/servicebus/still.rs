//! A process that is killed (SIGKILL) with what it holds; and one that is stopped (SIGSTOP) until the server has given it up, and then goes on as
//! if nothing were.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::Receiver,
};

use hapax::{
    ids::EndpointName,
    ports::{Connected, DeadLetters, Delivery, Page, Settlement, Transport},
};
use hapax_tests::RabbitMqServer;
use rustix::process::{Pid, Signal, kill_process};

use super::{cut::nothing_comes, rig::*};

/// Where the other process receives, and as which endpoint.
const ROLE: &str = "HAPAX_TEST_HOLDS_MESSAGES";
/// The other process.
const OTHER: &str = "servicebus::still::the_process_that_is_killed_or_stopped";
const BODIES: [&str; 3] = ["first", "second", "third"];
/// How long the server asks its clients not to be silent, in seconds; a minute unless configured. It gives up who says nothing for about five
/// times as long.
const HEARTBEAT: u64 = 1;

/// Takes three messages, and settles them when it is told to: one at once, and two when it has heard that its connection has ended, as an endpoint
/// hears it, which always receives. Nothing, unless a test below runs it, in a process of its own.
#[tokio::test]
async fn the_process_that_is_killed_or_stopped() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (server, endpoint) = role.rsplit_once(' ').unwrap();
    let bus = options_at(server).open(server).await.unwrap();
    let ends = bus.connect(&EndpointName::parse(endpoint).unwrap(), &[]).await.unwrap();
    let held = three(&ends).await;
    eprintln!("has {}", bodies(&held).join(" "));
    // Without a turn for the driver's tasks, as a handler that computes.
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    let [first, second, third] = held;
    // AMQP answers no settlement: it may count as done, and goes nowhere.
    drop(ends.receiver.settle(&first.receipt, Settlement::Ack).await);
    let ended = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it never hears of it");
    assert!(ended.is_err(), "{ended:?}");
    let settled = ends.receiver.settle(&second.receipt, Settlement::Ack).await;
    let letter = Settlement::DeadLetter { reason: "late".into() };
    let set_aside = ends.receiver.settle(&third.receipt, letter).await;
    eprintln!("said {settled:?} {set_aside:?}");
}

async fn three(ends: &Connected) -> [Delivery; 3] {
    [next(ends).await, next(ends).await, next(ends).await]
}

fn bodies(deliveries: &[Delivery; 3]) -> [String; 3] {
    let mut bodies = deliveries.each_ref().map(body);
    bodies.sort();
    bodies
}

/// It ends with the test.
struct Other {
    child: Child,
    lines: Receiver<String>,
}

impl Other {
    /// One that has the messages of `endpoint`.
    fn holding(server: &str, endpoint: &EndpointName) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", OTHER, "--nocapture"]).env(ROLE, format!("{server} {endpoint}"));
        let started = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = started.unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tell, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || said.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let other = Self { child, lines };
        assert_eq!(other.says("has "), BODIES.join(" "));
        other
    }

    fn says(&self, what: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never says `{what}`"));
            if let Some(rest) = line.strip_prefix(what) {
                return rest.to_owned();
            }
        }
    }

    /// By SIGKILL.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn settle_all(queue: &Queues, here: &EndpointName, ends: &Connected, taken: &[Delivery; 3]) {
    for delivery in taken {
        settle(ends, delivery, Settlement::Ack).await;
    }
    nothing_comes(ends).await;
    assert_eq!(queue.list(here, &Page::first(1)).await.unwrap(), [], "what another has was set aside");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_that_is_killed_held_goes_to_another() {
    let (queue, here) = (open().await, endpoint());
    queue.declare(&here, &[]).await;
    send(&queue, &BODIES.map(|body| to(&here, envelope(body)))).await;
    let mut other = Other::holding(&url(), &here);
    let ends = queue.connect(&here, &[]).await.unwrap();
    // As long as it lives, it has them.
    nothing_comes(&ends).await;
    other.kill();
    let taken = three(&ends).await;
    assert_eq!(bodies(&taken), BODIES);
    settle_all(&queue, &here, &ends, &taken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_stopped_until_it_is_given_up_changes_nothing_of_what_another_has() {
    let server = RabbitMqServer::with_amqp_1_0_and(&[("heartbeat", HEARTBEAT)]).await;
    let (queue, here) = (Queues::open(server.url()).await, endpoint());
    queue.declare(&here, &[]).await;
    send(&queue, &BODIES.map(|body| to(&here, envelope(body)))).await;
    let mut other = Other::holding(&server.url(), &here);
    let pid = Pid::from_child(&other.child);
    kill_process(pid, Signal::STOP).unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let taken = three(&ends).await;
    assert_eq!(bodies(&taken), BODIES);
    kill_process(pid, Signal::CONT).unwrap();
    other.child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let said = other.says("said ");
    assert!(!said.contains("Done"), "{said}");
    settle_all(&queue, &here, &ends, &taken).await;
}
