//! A process that is stopped (SIGSTOP) beyond its session, until another has its partitions, and then goes on as if nothing had happened.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use hapax::ports::{Settled, Settlement, Transport};
use rustix::process::{Pid, Signal, kill_process};

use super::rig::*;

/// Which endpoint the other process is of.
const ENDPOINT: &str = "HAPAX_KAFKA_STALLED";
const MESSAGES: usize = 3;
const GIVEN: &str = "it has them";
const SETTLED: &str = "settled: ";

/// The other process: it takes all there is, and settles it once it is told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_is_stopped() {
    let Ok(here) = std::env::var(ENDPOINT) else { return };
    let queue = options().partitions(1).patience(Duration::from_secs(5)).open(url()).await.unwrap();
    let ends = queue.connect(&here.parse().unwrap(), &[]).await.unwrap();
    let mut given = Vec::new();
    while given.len() < MESSAGES {
        given.push(next(&ends).await);
    }
    println!("{GIVEN}");
    std::io::stdin().lines().next().unwrap().unwrap();
    for delivery in &given {
        println!("{SETTLED}{:?}", ends.receiver.settle(&delivery.receipt, Settlement::Ack).await);
    }
}

/// Ends it, also while it is stopped.
struct Other {
    child: Child,
    tells: ChildStdin,
    told: Option<BufReader<ChildStdout>>,
}

impl Other {
    fn start(here: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["kafka::stalls::process_that_is_stopped", "--exact", "--nocapture"]).env(ENDPOINT, here);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (tells, told) = (child.stdin.take().unwrap(), child.stdout.take().map(BufReader::new));
        Self { child, tells, told }
    }

    /// What it says up to a line with `last` in it, or its end.
    async fn lines(&mut self, last: &'static str) -> Vec<String> {
        let mut told = self.told.take().unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut lines: Vec<String> = Vec::new();
            while lines.last().is_none_or(|line| !line.contains(last)) {
                let mut line = String::new();
                if told.read_line(&mut line).unwrap() == 0 {
                    break;
                }
                lines.push(line);
            }
            (told, lines)
        });
        let (told, lines) = tokio::time::timeout(PATIENCE, read).await.expect("it says nothing").unwrap();
        self.told = Some(told);
        lines
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_settles_that_stood_still_is_refused_and_no_commit_goes_back() {
    let (queue, here) = (options().partitions(1).open(url()).await.unwrap(), endpoint());
    drop(queue.connect(&here, &[]).await.unwrap());
    let mut other = Other::start(here.as_str());
    for number in 0..MESSAGES {
        send(&queue, &[to(&here, envelope(&number.to_string()))]).await;
    }
    let lines = other.lines(GIVEN).await;
    assert!(lines.last().is_some_and(|line| line.contains(GIVEN)), "{lines:?}");
    other.signal(Signal::STOP);
    send(&queue, &[to(&here, envelope("more"))]).await;
    let ends = queue.connect(&here, &[]).await.unwrap();
    for number in 0..=MESSAGES {
        let delivery = next(&ends).await;
        assert_eq!(delivery.attempts, if number < MESSAGES { 2 } else { 1 }, "{}", body(&delivery));
        ack(&ends, &delivery).await;
    }
    let at = async || {
        let (group, topic) = (format!("{PREFIX}.{here}"), format!("{PREFIX}.queue.{here}"));
        tokio::task::spawn_blocking(move || committed(&group, &topic, 0)).await.unwrap()
    };
    let all = i64::try_from(MESSAGES).unwrap() + 1;
    assert_eq!(at().await, Some(all));
    writeln!(other.tells, "go on").unwrap();
    other.signal(Signal::CONT);
    let lines = other.lines("test result").await;
    let settled: Vec<&str> =
        lines.iter().filter_map(|line| line.split_once(SETTLED)).map(|(_, how)| how.trim()).collect();
    assert_eq!(settled.len(), MESSAGES, "{lines:?}");
    let done = format!("{:?}", Ok::<_, ()>(Settled::Done));
    assert!(!settled.iter().any(|how| *how == done), "what was another's is settled: {settled:?}");
    assert_eq!(at().await, Some(all), "a commit went back");
    send(&queue, &[to(&here, envelope("last"))]).await;
    let last = next(&ends).await;
    assert_eq!((body(&last).as_str(), last.attempts), ("last", 1));
    ack(&ends, &last).await;
}
