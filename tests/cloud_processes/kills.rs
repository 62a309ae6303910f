//! A process may end at any call of a port, before it and after it. The calls are counted until there is none left, so that no list leaves one out.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use hapax::SqliteQueue;
use hapax_tests::Scratch;

use crate::{
    books::{SIGKILL, Scenario, feed, step, worker},
    stored::name_server,
    tally::ENDPOINT,
};

/// A task that asks for more than this does not end.
const CALLS_MAX: u32 = 100;

/// What is stored when all is done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Books {
    /// Steps and notes, each time they were handled.
    pub(crate) steps: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) dedup_entries: usize,
    pub(crate) pending: usize,
    pub(crate) dead_letters: usize,
}

impl Books {
    /// One step with one note.
    fn balanced() -> Self {
        let (steps, notes) = (vec!["a".to_owned()], vec!["a/0".to_owned()]);
        Self { steps, notes, dedup_entries: 2, pending: 0, dead_letters: 0 }
    }
}

/// A place of its own for each run.
pub(crate) struct Place {
    /// As a worker is told it: the kind of service, a space, and its address.
    pub(crate) service: String,
    pub(crate) name: String,
}

/// How the first process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    /// It stands still until the second has ended.
    Late,
}

/// Kills or delays a worker before and after each of its calls, and asserts that it was so around all of `calls`.
pub(crate) async fn everywhere(
    task: &'static str,
    calls: &[&str],
    place: impl Fn() -> Place,
    books: impl AsyncFn(&Place) -> Books,
) {
    for end in [End::Killed, End::Late] {
        let mut points = BTreeSet::new();
        for number in 0..CALLS_MAX {
            let before = points.len();
            let mut reached = false;
            for side in ["before", "after"] {
                let point = format!("any-{number}-{side}");
                let place = place();
                if let Some(said) = run(task, &point, end, &place).await {
                    reached = true;
                    points.insert(said);
                }
                assert_eq!(books(&place).await, Books::balanced(), "{task}, {end:?} at {point}, {points:?}");
            }
            if !reached {
                assert!(before > 0, "no call at all");
                break;
            }
        }
        println!("{task}, {end:?}: {points:?}");
        for point in calls.iter().flat_map(|call| [format!("Before {call}"), format!("After {call}")]) {
            assert!(points.contains(&point), "none {point}, only {points:?}");
        }
    }
}

/// Answers where the first process was, if it came there.
async fn run(task: &'static str, point: &str, end: End, place: &Place) -> Option<String> {
    let scratch = Scratch::new(&format!("clouds-{point}"));
    let folder = scratch.folder();
    name_server(folder, &place.service, &place.name);
    let scenario = Scenario { task, recovery: task, apart: true, steps: vec![step("a", 1, false)], ..Scenario::work() };
    feed(folder, &scenario).await;
    let (mut first, said) = begin(folder, task, &if end == End::Late { format!("hold-{point}") } else { point.into() });
    let second = worker(folder, task, "none");
    assert!(second.status.success(), "{point}: {second:?}");
    if end == End::Late && said.as_deref() == Some("Before receive") {
        feed(folder, &scenario).await; // It waits for a message, and there is none: it is sent the same again.
    }
    if let Some(mut input) = first.stdin.take() {
        let _ = input.write_all(b"go on\n"); // It may have ended.
    }
    let ended = first.wait().unwrap();
    match (end, &said) {
        (End::Killed, Some(_)) => assert_eq!(ended.signal(), Some(SIGKILL), "{point}: {ended:?}"),
        _ => assert!(ended.success(), "{point}: {ended:?}"),
    }
    let queue = SqliteQueue::open(folder.join("queue.db")).await.unwrap();
    assert_eq!(queue.backlog(&ENDPOINT.parse().unwrap()).await.unwrap(), 0, "{point}");
    said
}

/// A worker that was killed or stands still, and where; or that has ended.
fn begin(folder: &Path, task: &str, point: &str) -> (Child, Option<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax-test-worker"));
    let command = command.arg(folder).args([task, point]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let said = said.trim().to_owned();
    (child, (!said.is_empty()).then_some(said))
}
