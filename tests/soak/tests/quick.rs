//! The quick part of the campaign: a minute on each of some pairs, with faults so many times as often. The whole is `cargo xtask soak`.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

/// Long enough for everything to be met at that pace.
const MINUTES: &str = "0.7";
const PACE: &str = "5";

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

fn passes(store: &str, transport: &str) {
    let (output, told) = soak(store, transport, &[]);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("Nothing lost, nothing twice."), "{told}");
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

/// The control: were the ledger blind, the others would pass too.
#[test]
fn workers_that_keep_no_marks_are_found_out_by_the_ledger() {
    let (output, told) = soak("sqlite", "file", &["--forgets"]);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains(" with two effects: "), "{told}");
}
