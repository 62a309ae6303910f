//! The job in real processes, which are really killed.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// The program itself, which is built with its tests.
fn orders(arguments: &[&str]) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join("orders");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[test]
fn every_order_is_charged_once_while_workers_are_killed_and_stopped() {
    let mut arguments = vec!["--workers", "3", "--kill-every", "100ms", "--stall-every", "2s"];
    arguments.extend(["--orders", "150", "--seed", "5"]);
    let ended = orders(&arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains("every order charged exactly once"), "{said}");
    let killed = said.lines().find(|line| line.trim_start().starts_with("killed")).unwrap();
    let killed: u32 = killed.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(killed > 0, "{said}");
    // Of the first 150 orders four have a malformed card number, and one of these cannot be mended.
    for (name, expected) in [("dead letters", 4), ("mended", 3), ("discarded", 1), ("written off", 1)] {
        let row = said.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap();
        assert_eq!(row.split_whitespace().next().unwrap().parse(), Ok(expected), "{name}: {said}");
    }
}

#[test]
fn no_worker_outlives_the_process_that_started_it() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let folder = std::env::temp_dir().join(format!("hapax-orders-left-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let store = folder.join("orders.db");
    let store = store.to_str().unwrap();
    let mut parent = orders(&["--workers", "2", "--orders", "100000", "--store", store]);
    let mut parent = parent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while workers_of(store).len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "the workers do not start");
        sleep(Duration::from_millis(10)); // Another process: there is nothing to wait for but a look at it.
    }
    parent.kill().unwrap();
    parent.wait().unwrap();
    let begun = Instant::now();
    while !workers_of(store).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:?} are still there", workers_of(store));
        sleep(Duration::from_millis(10));
    }
    let _ = fs::remove_dir_all(&folder); // What stays is in the directory for temporary files.
}

/// Processes that work on `store`.
fn workers_of(store: &str) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let is_worker = |path: &PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let mut arguments = line.split(|byte| *byte == 0);
        arguments.any(|argument| argument == b"--worker-of") && arguments.next() == Some(store.as_bytes())
    };
    processes.filter(is_worker).collect()
}
