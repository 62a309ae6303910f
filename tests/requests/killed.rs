//! Over files, with real processes: who is asked sends itself SIGKILL before or after a port call, and another one takes over.

use std::{
    io::Read,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use hapax::{RequestClient, SqliteQueue, ids::IdempotencyKey, requests::RequestSettings};
use hapax_tests::Scratch;

use crate::{
    bank::MINUTE,
    stored::Stored,
    tally::ENDPOINT,
    tills::{Deposit, Deposited},
};

const CALLS: [&str; 6] = ["receive", "load", "save", "dispatch", "finish", "settle"];
/// At a time: each waits for files and for other processes.
const SCENARIOS: usize = 4;
const SIGKILL: i32 = 9;

/// Goal: whoever dies, whenever: one effect and one answer. Method: at each call, before and after it; in half of the scenarios the
/// client is a new one after the kill.
#[tokio::test]
async fn a_request_outlives_a_kill_of_who_answers_at_any_port_call() {
    let scenarios = CALLS.into_iter().flat_map(|call| {
        ["before", "after"].into_iter().flat_map(move |side| [true, false].map(|restarted| (call, side, restarted)))
    });
    stream::iter(scenarios)
        .for_each_concurrent(SCENARIOS, |(call, side, restarted)| killed(call, side, restarted))
        .await;
}

async fn killed(call: &str, side: &str, restarted: bool) {
    let context = format!("{side} {call}, the client {}", if restarted { "restarted" } else { "kept" });
    let scratch = Scratch::new(&format!("requests-{call}-{side}"));
    let mut dying = worker(scratch.folder(), &format!("{call}-0-{side}"));
    let client = client(scratch.folder()).await;
    let asked = tokio::spawn(async move { ask(&client).await });
    let (status, said) = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        dying.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        (dying.wait().unwrap(), said)
    })
    .await
    .unwrap();
    assert_eq!(status.signal(), Some(SIGKILL), "{context}: {said}");
    assert_eq!(said.trim().to_lowercase(), format!("{side} {call}"), "{context}");
    let mut running = worker(scratch.folder(), "none");
    let answer = if restarted {
        asked.abort();
        drop(asked.await);
        ask(&self::client(scratch.folder()).await).await
    } else {
        asked.await.unwrap()
    };
    assert_eq!(answer.deposits, 1, "{context}");
    // Once more, when all is over.
    assert_eq!(ask(&self::client(scratch.folder()).await).await, answer, "{context}");
    drop(running.stdin.take());
    let ended = tokio::task::spawn_blocking(move || running.wait().unwrap()).await.unwrap();
    assert!(ended.success(), "{context}");
    let mut stored = Stored::open(scratch.folder()).await;
    assert_eq!(stored.handled("till").await, [["deposit"]], "{context}");
    assert_eq!(stored.count("dead_letter").await, 0, "{context}");
    stored.close().await;
}

fn worker(folder: &Path, point: &str) -> Child {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_hapax-test-worker"));
    worker.arg(folder).args(["answer", point]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

async fn client(folder: &Path) -> RequestClient {
    let queue = SqliteQueue::open(folder.join("store.db")).await.unwrap();
    let settings = RequestSettings { ask_again_delay: Duration::from_millis(100), ..RequestSettings::default() };
    RequestClient::builder("front").transport(queue).settings(settings).start().await.unwrap()
}

async fn ask(client: &RequestClient) -> Deposited {
    let key = IdempotencyKey::parse("deposit").unwrap();
    let deposit = Deposit { till: "till".into(), name: "deposit".into() };
    client.request_with_key(key, ENDPOINT, &deposit, MINUTE).await.unwrap()
}
