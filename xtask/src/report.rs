//! What ran, how long it took and how it ended: one row for each step.

use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

/// How one step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds; the text says what was seen, where that is worth a word.
    Passed(String),
    /// It could not be looked at. The text says why and which command would change that.
    Skipped(String),
    /// It does not hold. The text is the remedy or names the place.
    Failed(String),
}

impl From<Result<String, String>> for Verdict {
    fn from(result: Result<String, String>) -> Self {
        match result {
            Ok(seen) => Self::Passed(seen),
            Err(why) => Self::Failed(why),
        }
    }
}

#[derive(Debug)]
struct Row {
    step: String,
    took: Duration,
    verdict: Verdict,
}

/// The steps so far. Shown as a table at the end of a command.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Runs one step under a heading and keeps its verdict. A failed step does not keep the next from running.
    pub(crate) fn step<V: Into<Verdict>>(&mut self, step: &str, run: impl FnOnce() -> V) {
        println!("\n== {step}");
        let start = Instant::now();
        let verdict = run().into();
        match &verdict {
            Verdict::Passed(_) => {}
            Verdict::Skipped(why) => println!("skipped: {why}"),
            Verdict::Failed(why) => println!("failed: {why}"),
        }
        self.rows.push(Row { step: step.to_owned(), took: start.elapsed(), verdict });
    }

    /// Adds a finding that took no time of its own.
    pub(crate) fn note(&mut self, step: &str, verdict: Verdict) {
        self.rows.push(Row { step: step.to_owned(), took: Duration::ZERO, verdict });
    }

    /// Whether any step failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.verdict, Verdict::Failed(_)))
    }

    /// Appends the rows of a command that ran inside this one.
    pub(crate) fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.step.chars().count()).max().unwrap_or(0);
        for Row { step, took, verdict } in &self.rows {
            let mut time = String::new();
            if !took.is_zero() {
                write!(time, "{:.1} s", took.as_secs_f64())?;
            }
            let (word, text) = match verdict {
                Verdict::Passed(seen) => ("ok", seen),
                Verdict::Skipped(why) => ("SKIPPED", why),
                Verdict::Failed(why) => ("FAILED", why),
            };
            // The row keeps to one line; the whole text stood under the step's heading.
            let text = text.lines().next().unwrap_or_default();
            writeln!(f, "{}", format!("{step:width$}  {time:>8}  {word:7}  {text}").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_remembered_and_the_next_one_still_runs() {
        let mut report = Report::default();
        report.step("first", || Err("mend it".to_owned()));
        report.step("second", || Ok("3 files".to_owned()));
        assert!(report.has_failed());
        let table = report.to_string();
        assert!(table.contains("FAILED   mend it") && table.contains("ok       3 files"), "{table}");
    }

    #[test]
    fn a_skipped_step_is_loud_but_no_failure() {
        let mut report = Report::default();
        report.note("nats", Verdict::Skipped("no server: start one".to_owned()));
        assert!(!report.has_failed());
        assert!(report.to_string().contains("SKIPPED  no server: start one"));
    }
}
