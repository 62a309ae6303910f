//! The services themselves. Where a variable asks for one, it takes its emulator's place in the tests of `hapax-tests`, which
//! find it by that variable too, and the credentials by others; each is said to be skipped where nobody asks.

use super::bears;
use super::machine::Machine;
use crate::lines::Seen;
use crate::report::{Report, Verdict};

/// One of them.
#[derive(Debug)]
pub(super) struct Real {
    /// The backend whose emulator it stands in for: its tests bear that name.
    pub(super) backend: &'static str,
    /// Asks for it.
    pub(super) variable: &'static str,
    /// The program of the tests that count. Others go by the emulator's address alone.
    pub(super) program: &'static str,
    /// What it takes beside that variable.
    takes: &'static str,
    /// What tests bear in their names that stand a proxy before the emulator, where none can stand before this.
    proxied: Option<&'static str>,
}

const AWS: &str = "HAPAX_AWS";
const AZURE: &str = "HAPAX_AZURE";
const AWS_TAKES: &str = "a region, and credentials as AWS's own tools find them";

pub(super) const REAL: [Real; 6] = [
    Real {
        backend: "dynamodb",
        variable: AWS,
        program: "dynamodb_store",
        takes: AWS_TAKES,
        proxied: Some("dynamodb_proxied"),
    },
    Real {
        backend: "cosmos",
        variable: AZURE,
        program: "cosmos_store",
        takes: "HAPAX_AZURE_COSMOS_ENDPOINT and HAPAX_AZURE_COSMOS_KEY",
        proxied: None,
    },
    Real { backend: "sqs", variable: AWS, program: "sqs", takes: AWS_TAKES, proxied: Some("sqs_proxied") },
    Real { backend: "s3", variable: AWS, program: "object_dedup", takes: AWS_TAKES, proxied: None },
    Real {
        backend: "azure-blob",
        variable: AZURE,
        program: "object_dedup",
        takes: "HAPAX_AZURE_BLOB_ACCOUNT and HAPAX_AZURE_BLOB_KEY",
        proxied: None,
    },
    Real {
        backend: "servicebus",
        variable: AZURE,
        program: "servicebus",
        takes: "HAPAX_AZURE_SERVICEBUS (a connection string), HAPAX_AZURE_GROUP, and `az`, logged in",
        proxied: None,
    },
];

impl Real {
    /// As the tests understand it.
    pub(super) fn is_asked(&self, machine: &Machine) -> bool {
        machine.variable(self.variable).is_some_and(|value| value.trim() != "0")
    }

    /// What is left out of a run that asks for it.
    pub(super) const fn left_out(&self) -> Option<&'static str> {
        self.proxied
    }

    /// What is said of the emulator then.
    pub(super) fn instead(&self) -> String {
        let Self { variable, program, .. } = self;
        format!("in {program} the service itself took its place: unset {variable}")
    }

    /// Adds its row, and one for what cannot be tested on it.
    pub(super) fn report(&self, asked: bool, seen: &Seen, complete: bool, names: &[&str], report: &mut Report) {
        let Self { backend, variable, program, takes, proxied } = self;
        let row = format!("backend {backend} (real)");
        if !asked {
            let how =
                format!("untested against the service itself: `{variable}=1 cargo xtask test {backend}`, with {takes}");
            report.note(&row, Verdict::Skipped(how));
            return;
        }
        let counts = |test: &&String| bears(test, backend, names) && test.contains(program);
        let tests = seen.passed.iter().filter(counts).count();
        let verdict = match tests {
            0 if complete => Verdict::Failed(format!("{variable} asks for it, and no test of it passed in {program}")),
            _ => Verdict::Passed(format!("the service itself, as {variable} asks, {tests} tests passed")),
        };
        report.note(&row, verdict);
        if let Some(proxied) = proxied {
            let why = format!("no proxy can stand before it, so tests named {proxied} were left out: unset {variable}");
            report.note(&format!("{row}, faults"), Verdict::Skipped(why));
        }
    }
}
