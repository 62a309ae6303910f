//! A process that is stopped (SIGSTOP) until the server has given up its connection, and then goes on as if nothing were.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use hapax::{
    ids::EndpointName,
    ports::{DeadLetters, Page, Settlement, Transport},
};
use rustix::process::{Pid, Signal, kill_process};

use super::rig::*;

/// The endpoint of the process that is stopped.
const ROLE: &str = "HAPAX_TEST_STANDS_STILL";
/// The other process.
const OTHER: &str = "rabbitmq::still::the_process_that_is_stopped";

/// Takes two messages, and settles them when it is told to and has heard that its connection has ended, as an endpoint hears it: it always
/// receives. Nothing, unless the test below runs it, in a process of its own.
#[tokio::test]
async fn the_process_that_is_stopped() {
    let Ok(endpoint) = std::env::var(ROLE) else { return };
    let queue = options().open(format!("{}/%2f?heartbeat=1", url())).await.unwrap();
    let ends = queue.connect(&EndpointName::parse(endpoint).unwrap(), &[]).await.unwrap();
    let (one, two) = (next(&ends).await, next(&ends).await);
    eprintln!("has {} {}", body(&one), body(&two));
    // Without a turn for the driver's task, as a handler that computes.
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    let ended = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it never hears of it");
    assert!(ended.is_err(), "{ended:?}");
    let settled = ends.receiver.settle(&one.receipt, Settlement::Ack).await;
    let letter = Settlement::DeadLetter { reason: "late".into() };
    let set_aside = ends.receiver.settle(&two.receipt, letter).await;
    eprintln!("said {settled:?} {set_aside:?}");
}

/// It ends with the test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stood_still_beyond_its_heartbeat_changes_nothing_of_what_another_has() {
    let (queue, here) = (open().await, endpoint());
    queue.connect(&here, &[]).await.unwrap();
    send(&queue, &["one", "two"].map(|body| to(&here, envelope(body)))).await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", OTHER, "--nocapture"]).env(ROLE, here.to_string());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut other = Other(child);
    let lines = BufReader::new(other.0.stderr.take().unwrap()).lines();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let wait_for = |what: &str| loop {
        let line = told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never says `{what}`"));
        if let Some(rest) = line.strip_prefix(what) {
            return rest.to_owned();
        }
    };
    assert_eq!(wait_for("has "), "one two");

    let pid = Pid::from_child(&other.0);
    kill_process(pid, Signal::STOP).unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let taken = [next(&ends).await, next(&ends).await];
    assert_eq!(
        taken.each_ref().map(|delivery| (body(delivery), delivery.attempts)),
        [("one".to_owned(), 2), ("two".to_owned(), 2)]
    );
    kill_process(pid, Signal::CONT).unwrap();
    other.0.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let said = wait_for("said ");
    assert_eq!(said, "Ok(LeaseLost) Ok(LeaseLost)");
    for delivery in &taken {
        ack(&ends, delivery).await;
    }
    assert_eq!(queue.list(&here, &Page::first(1)).await.unwrap(), [], "it has set aside what another has");
    let nothing = tokio::time::timeout(Duration::from_millis(300), ends.receiver.receive(1)).await;
    assert!(nothing.is_err(), "{nothing:?}");
}
