//! Whether the promise holds of what the store has.

use hapax::{endpoint::AuditReport, metrics::Invariant, operator::masked};
use serde::Serialize;

use super::{answered, ended, is_anywhere, open_store, selection};
use crate::{
    args::{AuditArgs, Common},
    failure::Failure,
    print::{Out, Table},
    warnings::Warnings,
};

#[derive(Serialize)]
struct Audited {
    looks: u64,
    overtaken: u64,
    violations: u64,
    waiting_entries: usize,
    left_over: usize,
    invariants: Vec<OfInvariant>,
    found: Vec<String>,
}

#[derive(Serialize)]
struct OfInvariant {
    invariant: &'static str,
    looked_at: u64,
    violations: u64,
}

pub(super) async fn run(asked: &AuditArgs, common: &Common, warnings: &Warnings, out: &mut Out) -> Result<(), Failure> {
    let operator = open_store(common).await?.operator;
    super::warn(&warnings.take()); // Of the opening: what comes now is found.
    is_anywhere(&operator, asked.of.endpoint.as_ref(), common).await?;
    let audit = operator.audit(&selection(&asked.of), asked.entities).await.map_err(|error| Failure::of(&error))?;
    let audit = answered(audit)?;
    let mut report = AuditReport::default();
    for look in 0..asked.looks {
        if look > 0 {
            tokio::time::sleep(asked.every).await;
        }
        report = audit.look().await.map_err(|error| Failure::of(&error))?;
    }
    let invariants = report.by_invariant().map(|(invariant, count)| OfInvariant {
        invariant: Invariant::as_str(invariant),
        looked_at: count.looked_at,
        violations: count.violations,
    });
    let audited = Audited {
        looks: report.looks,
        overtaken: report.overtaken,
        violations: report.violations(),
        waiting_entries: report.waiting.entries,
        left_over: report.left_over,
        invariants: invariants.collect(),
        found: warnings.take().iter().map(|warning| masked(warning)).collect(),
    };
    let printed = if common.json { out.json(&audited) } else { out.text(&text(&audited)) };
    ended(printed, audited.violations > 0)
}

fn text(audited: &Audited) -> String {
    let Audited { looks, overtaken, violations, waiting_entries, left_over, invariants, found } = audited;
    let mut table = Table::new(&["invariant", "looked at", "violations"]);
    for OfInvariant { invariant, looked_at, violations } in invariants {
        table.row([(*invariant).to_owned(), looked_at.to_string(), violations.to_string()]);
    }
    let found: String = found.iter().map(|line| format!("{line}\n")).collect();
    format!(
        "{}{found}{looks} looks, {overtaken} overtaken by a save; {waiting_entries} outbox entries wait, {left_over} are over and not cleaned up \
         yet\n{}\n",
        table.text(),
        match (violations, looks) {
            (0, 0) => "nothing was there to look at, which says nothing".to_owned(),
            (0, _) => "the promise holds of all that was looked at".to_owned(),
            (violations, _) => format!("THE PROMISE IS BROKEN: {violations} violations; see docs/audit.md"),
        }
    )
}
