//! The quick part of the campaign: a minute on each of some pairs, with faults so many times as often, and a few crash points. The whole is
//! `cargo xtask campaign`.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

/// Long enough for everything to be met at that pace.
const MINUTES: &str = "0.7";
const PACE: &str = "5";
/// At the first call of each of these somebody dies before it, and somebody else after it: each step of a message's way.
const KINDS: [&str; 7] = ["load", "save", "dispatch", "finish", "settle", "add", "pending"];
/// After so many void runs in a row it is no accident.
const RUNS_MAX: u32 = 3;

fn soak(store: &str, transport: &str, more: &[&str]) -> (Output, String) {
    let report =
        std::env::temp_dir().join(format!("hapax-soak-{store}-{transport}-{}-{}", std::process::id(), more.len()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax-soak"));
    command.args(["--store", store, "--transport", transport, "--minutes", MINUTES, "--pace", PACE, "--report"]);
    let output = command.arg(&report).args(more).output().unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    drop(std::fs::remove_dir_all(report));
    println!("{told}");
    (output, told)
}

/// A run in which something was not met shows nothing, and what is wrong is never called void: so it is made again. On a fast machine few workers
/// die between a save and what it has to send, and the sweeper may find nothing to do.
fn passes(store: &str, transport: &str) {
    for _ in 0..RUNS_MAX {
        let (output, told) = soak(store, transport, &[]);
        if told.contains("Void: there were no ") {
            eprintln!("a run was void, and is made again");
            continue;
        }
        assert!(output.status.success(), "{told}");
        assert!(told.contains("Nothing lost, nothing twice."), "{told}");
        return;
    }
    panic!("{RUNS_MAX} runs were void: let them be longer, or have more faults");
}

#[test]
fn a_minute_of_faults_is_made_good_on_sqlite() {
    passes("sqlite", "file");
}

/// Nothing is written in one go with a dedup entry: each step of the algorithm is a write of its own.
#[test]
fn a_minute_of_faults_is_made_good_with_dedup_entries_elsewhere() {
    passes("sqlite-apart", "file");
}

#[test]
fn a_minute_of_faults_is_made_good_on_postgres_and_rabbitmq() {
    passes("postgres", "rabbitmq");
}

#[test]
fn a_minute_of_faults_is_made_good_on_postgres_and_nats() {
    passes("postgres", "nats");
}

/// Lines that no other run here has, to a server by a protocol of its own: MariaDB, and Kafka's broker, which has everything in its memory and so is
/// not killed.
#[cfg(feature = "kafka")]
#[test]
fn a_minute_of_faults_is_made_good_on_mysql_and_kafka() {
    passes("mysql", "kafka");
}

/// The same by HTTP: Cosmos DB, whose emulator is not killed, and SQS, whose emulator keeps what it confirms and is.
#[cfg(all(feature = "cosmos", feature = "sqs"))]
#[test]
fn a_minute_of_faults_is_made_good_on_cosmos_and_sqs() {
    passes("cosmos", "sqs");
}

/// As the campaign's `--points`, which takes all calls of each kind, on every store.
#[test]
fn a_kill_before_and_after_a_call_of_each_step_is_made_good_on_sqlite() {
    let (output, told) = soak("sqlite", "file", &["--points", "--calls", "1", "--kinds", &KINDS.join(",")]);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("Nothing lost, nothing twice."), "{told}");
    for kind in KINDS {
        assert!(told.contains(&format!("| at `{kind}` | ")), "nobody was killed at a call of `{kind}`: {told}");
    }
}

/// The control: were the ledger blind, the others would pass too.
#[test]
fn workers_that_keep_no_marks_are_found_out_by_the_ledger() {
    let (output, told) = soak("sqlite", "file", &["--forgets"]);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains(" with two effects: "), "{told}");
}
