//! What is printed at the end.

use std::fmt;

use crate::{
    books::{Books, Finding},
    breaks::Story,
    shop::Run,
};

/// Most findings that are printed; the rest is counted.
const FINDINGS_SHOWN: usize = 20;
/// Where a story follows, these are not the point.
const FINDINGS_BEFORE_STORY: usize = 5;

/// The books of a run, and what the run counted.
#[derive(Debug)]
pub struct Report {
    pub(crate) orders: usize,
    pub(crate) faults: String,
    pub(crate) books: Books,
    pub(crate) run: Run,
    /// What came of a broken rule.
    pub(crate) story: Option<Story>,
    /// Where the database is, if it is kept.
    pub(crate) kept: Option<String>,
}

impl Report {
    /// Whether every order was charged exactly once, or not at all as its story demands, and all else adds up.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.books.findings.is_empty()
    }

    /// What the database says.
    #[must_use]
    pub const fn books(&self) -> &Books {
        &self.books
    }

    /// Passes that were dropped.
    #[must_use]
    pub const fn passes_dropped(&self) -> u64 {
        self.run.passes_dropped
    }

    /// Copies that were recognised.
    #[must_use]
    pub const fn duplicates_dropped(&self) -> u64 {
        self.run.duplicates_dropped
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orders, faults, books, run, story, kept } = self;
        let mut row = |name: &str, number: u64, note: &str| {
            let line = format!("{name:<24}{number:>10}  {note}");
            writeln!(f, "{}", line.trim_end())
        };
        let seconds = run.time.as_secs_f64();
        let per_second = books.handled as f64 / seconds.max(f64::MIN_POSITIVE);
        row("orders", *orders as u64, faults)?;
        row("  confirmed", books.confirmed as u64, "")?;
        row("  out of stock", books.out_of_stock as u64, "cancelled, goods returned")?;
        row("  card refused", books.card_refused as u64, "cancelled, goods returned")?;
        row("  payment overdue", books.overdue as u64, "cancelled, goods and money returned")?;
        row("charges", books.charges as u64, &format!("{} given back", books.refunds))?;
        if run.workers == 0 {
            row("  asked for", run.card_calls, "repeats under the same key included")?;
        }
        row("messages handled", books.handled as u64, "by the dedup entries")?;
        if run.workers == 0 {
            row("  duplicates dropped", run.duplicates_dropped, "")?;
            row("  timeouts cancelled", run.timeouts_cancelled, "arrived and were not handled")?;
            row("passes dropped", run.passes_dropped, "at a random await, as a crash would")?;
        } else {
            row("workers", u64::from(run.workers), &format!("processes on one {}", run.place))?;
            row("  killed", run.kills, "SIGKILL, each replaced at once")?;
            row("  stopped", run.stalls, "beyond their leases, then let go on")?;
            if let Some(kills) = run.server_kills {
                row("server killed", kills, "SIGKILL to all of its processes, then started again")?;
            }
        }
        writeln!(f, "{:<24}{seconds:>8.1} s  {per_second:.0} messages a second", "time")?;
        if let Some(kept) = kept {
            writeln!(f, "{:<24}{kept}", "database")?;
        }
        if books.findings.is_empty() {
            writeln!(f, "every order charged exactly once")?;
        } else {
            writeln!(f, "THE BOOKS DO NOT BALANCE: {} findings", books.findings.len())?;
            show(&books.findings, if story.is_some() { FINDINGS_BEFORE_STORY } else { FINDINGS_SHOWN }, f)?;
        }
        story.as_ref().map_or(Ok(()), |story| story.fmt(f))
    }
}

fn show(findings: &[Finding], most: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for finding in findings.iter().take(most) {
        writeln!(f, "  {finding}")?;
    }
    match findings.len().checked_sub(most) {
        Some(more) if more > 0 => writeln!(f, "  and {more} more"),
        _ => Ok(()),
    }
}
