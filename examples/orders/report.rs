//! What is printed at the end.

use std::fmt;

use crate::{
    books::{Books, Finding},
    breaks::Story,
    shop::{ISSUER_DELIVERIES, Run},
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
    /// What was measured, if it belongs here.
    pub(crate) metrics: Option<String>,
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

    /// Deliveries whose handler failed, and that were given again.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.run.counted.failed
    }

    /// Calls that the card company has declined at once.
    #[must_use]
    pub const fn declined(&self) -> u64 {
        self.run.card_declined
    }

    /// Passes that were made again in place, since the handler had failed.
    #[must_use]
    pub const fn tried_at_once(&self) -> u64 {
        self.run.counted.at_once
    }

    /// Answers of the card company that could not be read.
    #[must_use]
    pub const fn garbled(&self) -> u64 {
        self.run.card_garbled
    }

    /// Messages that the observer has seen handled.
    #[must_use]
    pub const fn handled(&self) -> u64 {
        self.run.counted.handled
    }

    /// Deliveries that the observer has seen set aside.
    #[must_use]
    pub const fn dead_lettered(&self) -> u64 {
        self.run.counted.dead_lettered
    }

    /// Copies that were recognised.
    #[must_use]
    pub const fn duplicates_dropped(&self) -> u64 {
        self.run.counted.duplicates
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orders, faults, books, run, story, kept, metrics } = self;
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
        row("  written off", books.written_off as u64, "their cards have no number that can be charged")?;
        row("charges", books.charges as u64, &format!("{} given back", books.refunds))?;
        if run.workers == 0 {
            row("  asked for", run.card_calls, "repeats under the same key included")?;
        }
        row("messages handled", books.handled as u64, "by the dedup entries")?;
        if run.workers == 0 {
            let garbled = format!("in place; {} as the card company's answer was garbled", run.card_garbled);
            let declined = format!("later, by rules; {} as the card company was out of order", run.card_declined);
            row("  duplicates dropped", run.counted.duplicates, "")?;
            row("  timeouts cancelled", run.counted.timeouts_cancelled, "arrived and were not handled")?;
            row("  tried again at once", run.counted.at_once, &garbled)?;
            row("  failed and tried again", run.counted.failed, &declined)?;
        }
        let letters = books.mended + books.written_off;
        row("dead letters", letters as u64, "read at the desk")?;
        row("  at once", (letters - books.given_up.min(letters)) as u64, "of malformed card numbers")?;
        let given_up = format!("by a rule, after {ISSUER_DELIVERIES} deliveries: of unknown issuers");
        row("  given up", books.given_up as u64, &given_up)?;
        row("  mended", books.mended as u64, "and retried, under the same id")?;
        row("  discarded", books.written_off as u64, "and written off")?;
        if run.workers == 0 {
            row("passes dropped", run.passes_dropped, "at a random await, as a crash would")?;
        } else {
            row("workers", u64::from(run.workers), &format!("processes on one {}", run.place))?;
            row("  killed", run.kills, "SIGKILL, each replaced at once")?;
            row("  stopped", run.stalls, run.stopped)?;
            if let Some(kills) = run.server_kills {
                row("server killed", kills, "SIGKILL to all of its processes, then started again")?;
            }
            if let Some(kills) = run.broker_kills {
                row("broker killed", kills, "the same")?;
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
        story.as_ref().map_or(Ok(()), |story| story.fmt(f))?;
        metrics.as_ref().map_or(Ok(()), |metrics| write!(f, "\n{metrics}"))
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
