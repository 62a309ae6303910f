//! The job on DynamoDB and Cosmos DB, on their emulators, and with the dedup entries apart.
#![allow(clippy::unwrap_used)]

use std::{
    path::PathBuf,
    process::{Command, Output},
};

/// The program itself, which is built with its tests.
fn orders(arguments: &[&str]) -> Output {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join("orders");
    Command::new(program).args(arguments).output().unwrap()
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs it and expects the books to balance.
fn balanced(arguments: &[&str]) -> String {
    let output = orders(arguments);
    let report = words(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.contains("charged exactly once") && !report.contains("still there"), "{report}");
    report
}

/// A folder that no other test uses, and that is not there yet.
fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("hapax-orders-{name}-{}", std::process::id()))
}

/// `--store` for the emulator that `cargo xtask test` has started.
#[cfg(any(feature = "dynamodb", feature = "cosmos", feature = "objects"))]
fn store(scheme: &str, variable: &str) -> String {
    let url = std::env::var(variable).unwrap_or_else(|_| panic!("no {scheme} to test with: run `cargo xtask test`"));
    format!("{scheme}://{}", url.trim_start_matches("http://"))
}

mod object {
    use super::*;

    #[cfg(feature = "objects")]
    #[test]
    fn the_books_balance_with_the_dedup_entries_in_s3_while_workers_are_killed() {
        let dedup = store("s3", "HAPAX_TEST_S3");
        balanced(&["--orders", "40", "--workers", "2", "--kill-every", "700ms", "--dedup", &dedup]);
    }

    #[cfg(feature = "objects")]
    #[test]
    fn who_does_not_answer_is_named_with_how_to_start_one() {
        for scheme in ["s3", "azure-blob"] {
            let output = orders(&["--orders", "3", "--dedup", &format!("{scheme}://127.0.0.1:1")]);
            assert_eq!(output.status.code(), Some(2), "{}", words(&output));
            assert!(words(&output).contains(&format!("`cargo xtask emulator {scheme}`")), "{}", words(&output));
        }
    }

    #[test]
    fn the_books_balance_with_the_dedup_entries_in_a_folder_while_workers_are_killed() {
        let folder = folder("dedup");
        let dedup = folder.to_str().unwrap();
        let report = balanced(&["--orders", "100", "--workers", "3", "--kill-every", "500ms", "--dedup", dedup]);
        assert!(report.contains("killed"), "{report}");
        let output = orders(&["--orders", "3", "--dedup", dedup]);
        assert_eq!(output.status.code(), Some(2), "{}", words(&output));
        assert!(words(&output).contains("is not empty; name a folder of the run's own"), "{}", words(&output));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[cfg(feature = "dynamodb")]
mod dynamodb {
    use super::*;

    #[test]
    fn the_books_balance_while_workers_are_killed_and_stopped() {
        let store = store("dynamodb", "HAPAX_TEST_DYNAMODB");
        let faults = ["--workers", "3", "--kill-every", "500ms", "--stall-every", "2s"];
        let report = balanced(&[&["--orders", "60", "--store", &store], &faults[..]].concat());
        assert!(report.contains("service, queues in a file"), "{report}");
    }

    #[test]
    fn the_books_balance_with_the_dedup_entries_in_a_folder() {
        let (store, folder) = (store("dynamodb", "HAPAX_TEST_DYNAMODB"), folder("dynamodb-dedup"));
        let dedup = ["--dedup", folder.to_str().unwrap(), "--kill-every", "500ms"];
        balanced(&[&["--orders", "40", "--workers", "2", "--store", &store], &dedup[..]].concat());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(feature = "objects")]
    #[test]
    fn the_books_balance_with_the_dedup_entries_in_azure_blob_while_workers_are_killed() {
        let [store, dedup] = [store("dynamodb", "HAPAX_TEST_DYNAMODB"), store("azure-blob", "HAPAX_TEST_AZURE_BLOB")];
        let faults = ["--workers", "2", "--kill-every", "700ms"];
        balanced(&[&["--orders", "40", "--store", &store, "--dedup", &dedup], &faults[..]].concat());
    }

    #[test]
    fn who_does_not_answer_is_named_with_how_to_start_one() {
        let output = orders(&["--orders", "3", "--store", "dynamodb://127.0.0.1:1"]);
        assert_eq!(output.status.code(), Some(2), "{}", words(&output));
        assert!(words(&output).contains("nobody answers at 127.0.0.1:1"), "{}", words(&output));
        assert!(words(&output).contains("`cargo xtask emulator dynamodb`"), "{}", words(&output));
    }
}

#[cfg(feature = "cosmos")]
mod cosmos {
    use super::*;

    #[test]
    fn the_books_balance_while_workers_are_killed_and_stopped() {
        let store = store("cosmos", "HAPAX_TEST_COSMOS");
        let faults = ["--workers", "3", "--kill-every", "700ms", "--stall-every", "3s"];
        balanced(&[&["--orders", "40", "--store", &store], &faults[..]].concat());
    }

    #[cfg(feature = "objects")]
    #[test]
    fn the_books_balance_with_the_dedup_entries_in_azure_blob() {
        let [store, dedup] = [store("cosmos", "HAPAX_TEST_COSMOS"), store("azure-blob", "HAPAX_TEST_AZURE_BLOB")];
        balanced(&["--orders", "20", "--workers", "2", "--kill-every", "1s", "--store", &store, "--dedup", &dedup]);
    }
}
