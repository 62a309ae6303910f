//! The backends that tests run against, how each is provided, and whether it really was tested.
//!
//! A green run may have tested nothing: so a backend counts as tested only when a test that bears its name has passed.
//! `HAPAX_REQUIRE`, a list with commas, names the backends that must not be missing; the shared checks set it.

use std::collections::BTreeSet;

use crate::lines::Seen;
use crate::report::{Report, Verdict};
use crate::workspace::Workspace;

/// Names of backends, with commas between them, whose absence is a failure.
const REQUIRE: &str = "HAPAX_REQUIRE";

/// A store or a transport that tests run against.
trait Backend {
    /// Its name in `HAPAX_REQUIRE` and in the table: the feature of `hapax` that compiles it in.
    fn name(&self) -> &'static str;

    /// Makes it ready for tests and says how.
    ///
    /// # Errors
    /// Why it cannot be had, and the command that would provide it.
    fn provide(&self, workspace: &Workspace) -> Result<String, String>;
}

/// Lives in the test process: it is there as soon as it is compiled in.
struct Embedded {
    name: &'static str,
    package: &'static str,
    feature: &'static str,
}

impl Backend for Embedded {
    fn name(&self) -> &'static str {
        self.name
    }

    fn provide(&self, workspace: &Workspace) -> Result<String, String> {
        let Self { package, feature, .. } = self;
        let compiled = workspace.own().any(|own| own.name == *package && own.features.iter().any(|f| f == feature));
        if compiled {
            Ok(format!("embedded in {package}"))
        } else {
            Err(format!("{package} has no feature `{feature}`: add it, or take the backend out of xtask's list"))
        }
    }
}

fn all() -> Vec<Box<dyn Backend>> {
    let embedded = [
        ("memory", "hapax-stores", "memory"),
        ("sqlite", "hapax-stores", "sqlite"),
        ("in-process", "hapax-transports", "in-process"),
        ("sqlite-queue", "hapax-transports", "sqlite"),
    ];
    let embedded = embedded.map(|(name, package, feature)| Embedded { name, package, feature });
    embedded.into_iter().map(|backend| Box::new(backend) as Box<dyn Backend>).collect()
}

/// The backends of one run.
pub(crate) struct Backends {
    rows: Vec<(&'static str, Result<String, String>)>,
    required: BTreeSet<String>,
}

impl Backends {
    /// Provides all that can be had.
    ///
    /// # Errors
    /// `HAPAX_REQUIRE` names a backend that does not exist.
    pub(crate) fn provide(workspace: &Workspace) -> Result<Self, String> {
        let backends = all();
        let required = required(&std::env::var(REQUIRE).unwrap_or_default(), &backends)?;
        let rows = backends.iter().map(|backend| (backend.name(), backend.provide(workspace))).collect();
        Ok(Self { rows, required })
    }

    /// Adds one row for each backend. `complete` is false where only some tests were asked for, so that a backend
    /// without a test is no surprise.
    pub(crate) fn report(self, seen: &Seen, complete: bool, report: &mut Report) {
        for (name, provided) in self.rows {
            let tests = seen.passed.iter().filter(|test| bears(test, name)).count();
            let verdict = match provided {
                Ok(how) if tests > 0 || !complete => Verdict::Passed(format!("{how}, {tests} tests passed")),
                Ok(how) => missing(format!("{how}, but no test that bears its name passed"), name, &self.required),
                Err(why) => missing(why, name, &self.required),
            };
            report.note(&format!("backend {name}"), verdict);
        }
    }
}

/// What is missing is a failure only if it was required.
fn missing(why: String, name: &str, required: &BTreeSet<String>) -> Verdict {
    if required.contains(name) {
        Verdict::Failed(format!("required by {REQUIRE}: {why}"))
    } else {
        Verdict::Skipped(why)
    }
}

/// Whether a test, given by program and path, is one of the backend's.
fn bears(test: &str, name: &str) -> bool {
    test.contains(name) || test.contains(&name.replace('-', "_"))
}

fn required(list: &str, backends: &[Box<dyn Backend>]) -> Result<BTreeSet<String>, String> {
    let known: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| match known.contains(&name) {
            true => Ok(name.to_owned()),
            false => Err(format!("{REQUIRE} names `{name}`, which is no backend: known are {}", known.join(", "))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lines::Runner;

    fn run(required: &[&str], provided: Result<String, String>, output: &str, complete: bool) -> Report {
        let mut seen = Seen::default();
        output.lines().for_each(|line| seen.line(Runner::Nextest, line));
        let required = required.iter().map(|name| (*name).to_owned()).collect();
        let mut report = Report::default();
        Backends { rows: vec![("in-process", provided)], required }.report(&seen, complete, &mut report);
        report
    }

    #[test]
    fn a_backend_was_tested_when_a_test_of_its_name_passed() {
        let output = "PASS [ 0.1s] (1/1) hapax-transports in_process::tests::a_copy_comes_twice";
        let report = run(&["in-process"], Ok("embedded".into()), output, true);
        assert!(!report.has_failed());
        assert!(report.to_string().contains("1 tests passed"));
    }

    #[test]
    fn a_required_backend_that_nothing_tested_is_a_failure() {
        assert!(run(&["in-process"], Ok("embedded".into()), "", true).has_failed());
        assert!(run(&["in-process"], Err("not there".into()), "", true).has_failed());
        assert!(!run(&["in-process"], Ok("embedded".into()), "", false).has_failed(), "only some tests were asked for");
    }

    #[test]
    fn a_backend_that_nobody_requires_is_skipped_aloud() {
        let report = run(&[], Err("not there: start it".into()), "", true);
        assert!(!report.has_failed());
        assert!(report.to_string().contains("SKIPPED  not there: start it"));
    }

    #[test]
    fn a_required_backend_must_be_one_that_exists() {
        assert_eq!(required(" memory, in-process,", &all()).unwrap().len(), 2);
        assert!(required("", &all()).unwrap().is_empty());
        assert!(required("sqllite", &all()).unwrap_err().contains("`sqllite`"));
    }
}
