//! `--break`: each broken rule is caught, whatever the seed, and the collision is shown; with the rule kept, the very same
//! set-up balances. The runs of a test go side by side, since they wait for timeouts most of the time.
#![allow(clippy::unwrap_used)]

mod folder;
mod program;

use clap::Parser;
use folder::Folder;
use futures_util::future::join_all;
use orders::{Options, Report, Rule};
use program::program;

/// A few orders are enough: the adapters lie in wait.
async fn run(rule: Rule, seed: &str, store: &str, more: &[&str]) -> Report {
    let fixed = ["orders", "--break", rule.name(), "--orders", "40", "--seed", seed, "--store", store];
    let options = Options::try_parse_from([&fixed[..], more].concat()).unwrap();
    orders::run(&options).await.unwrap_or_else(|refusal| panic!("{rule}, seed {seed}: {refusal}"))
}

async fn is_caught(rule: Rule) {
    let folder = Folder::new("breaks");
    join_all(["1", "2", "3"].map(async |seed| {
        let report = run(rule, seed, &folder.path(seed), &[]).await;
        let said = report.to_string();
        assert!(!report.is_balanced(), "seed {seed}: {said}");
        assert!(said.contains("THE BOOKS DO NOT BALANCE"), "seed {seed}: {said}");
        let (_, story) = said.split_once(&format!("BROKEN ON PURPOSE: {rule}, ")).unwrap();
        for margin in ["step", "broken", "shipped", "example", "so", "books"] {
            let margin = format!("\n  {margin:<9}");
            assert!(story.contains(&margin), "seed {seed}: {margin:?} is missing in {said}");
        }
        let titles = story.lines().find(|line| line.trim_start().starts_with("ms ")).unwrap();
        assert_eq!(titles.matches("worker ").count(), 2, "seed {seed}: two passes in {said}");
        let fatal: Vec<_> = story.lines().filter(|line| line.starts_with(">>") && line.ends_with("<<")).collect();
        assert_eq!(fatal.len(), 1, "seed {seed}: one line is marked in {said}");
    }))
    .await;
}

#[tokio::test]
async fn a_check_before_the_load_is_caught() {
    is_caught(Rule::CheckBeforeLoad).await;
}

#[tokio::test]
async fn a_blind_save_is_caught() {
    is_caught(Rule::BlindSave).await;
}

#[tokio::test]
async fn an_early_ack_is_caught() {
    is_caught(Rule::AckEarly).await;
}

#[tokio::test]
async fn a_mark_before_the_dispatch_is_caught() {
    is_caught(Rule::MarkBeforeDispatch).await;
}

#[tokio::test]
async fn a_forgetful_dedup_store_is_caught() {
    is_caught(Rule::ForgetfulDedup).await;
}

/// The control. The ambush is laid, the same messages come twice and the same share of passes is dropped.
#[tokio::test]
async fn the_same_set_up_balances_when_the_rule_is_kept() {
    let folder = Folder::new("breaks");
    join_all(Rule::ALL.map(async |rule| {
        let report = run(rule, "1", &folder.path(rule.name()), &["--mend"]).await;
        assert!(report.is_balanced(), "{rule}: {report}");
        assert!(report.to_string().ends_with("the rule was kept\n"), "{report}");
    }))
    .await;
}

#[test]
fn the_program_exits_with_1_when_a_rule_is_broken() {
    let folder = Folder::new("breaks");
    let store = folder.path("program");
    let done = program().args(["--break", "blind-save", "--orders", "40", "--store", &store]).output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_rule_that_there_is_not_is_refused_with_the_names_of_those_there_are() {
    let done = program().args(["--break", "the-bank"]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(Rule::ALL.iter().all(|rule| said.contains(rule.name())), "{said}");
}
