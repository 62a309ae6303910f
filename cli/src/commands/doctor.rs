//! Start-up checks of each backend, and what a person should look at, each with its remedy.

use hapax::{
    operator::{EndpointStatus, Operator, OutboxStatus, with_causes},
    ports::Answer,
};
use serde::Serialize;

use super::{ended, is_there, selection};
use crate::{
    args::{Common, Doctor},
    failure::{Failure, in_our_words},
    ids::millis,
    place::Place,
    print::{Out, counted, span},
    transport::with_transport,
    warnings::Warnings,
};

/// Counted no further than this.
const LIMIT: u64 = 10_000;
/// What waits for so long is not about to be sent: an endpoint's sweeper begins after a minute.
const WAITS_TOO_LONG_MS: u64 = 10 * 60 * 1000;
/// What is overdue for so long is not sent: a schedule is looked at every few seconds.
const OVERDUE_TOO_LONG_MS: u64 = 5 * 60 * 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Ok,
    Warning,
    Error,
}

#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Findings {
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
    /// What was asked that makes no sense, such as an address that is none: it ends the program as it does any other command.
    #[serde(skip)]
    misuse: Option<String>,
}

/// Whether it can be asked what is in queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queues {
    Reached,
    /// Which is an error that has been said.
    Failed,
    Unnamed,
}

impl Findings {
    fn add(&mut self, level: Level, what: impl Into<String>, remedy: Option<&str>) {
        self.errors += usize::from(level == Level::Error);
        self.warnings += usize::from(level == Level::Warning);
        self.findings.push(Finding { level, what: in_our_words(&what.into()), remedy: remedy.map(str::to_owned) });
    }

    fn heard(&mut self, warnings: &Warnings) {
        for warning in warnings.take() {
            self.add(Level::Warning, warning, None);
        }
    }

    fn failed(&mut self, what: &str, failure: &Failure) {
        if let Failure::Usage(why) | Failure::Failed(why) = failure {
            self.add(Level::Error, format!("{what}: {why}"), None);
        }
        if let Failure::Usage(why) = failure {
            self.misuse.get_or_insert_with(|| why.clone());
        }
    }
}

pub(super) async fn run(asked: &Doctor, common: &Common, warnings: &Warnings, out: &mut Out) -> Result<(), Failure> {
    let (place, mut found) = (Place::of(common)?, Findings::default());
    let opened = place.open(common).await;
    found.heard(warnings);
    match opened {
        Err(failure) => found.failed("store", &failure),
        Ok(opened) => {
            found.add(
                Level::Ok,
                if opened.has_store { "the store opens, and keeps what it confirms" } else { "the outbox opens" },
                None,
            );
            for left_out in &opened.left_out {
                found.add(Level::Warning, left_out.clone(), None);
            }
            let is_debeziums = opened.is_debeziums;
            let named = common.transport().is_some() || opened.has_queues;
            let without = opened.operator.clone();
            let (operator, queues) = match with_transport(opened, common).await {
                Ok(operator) if named => {
                    found.add(Level::Ok, "the transport opens", None);
                    (operator, Queues::Reached)
                }
                Ok(operator) => (operator, Queues::Unnamed),
                // All else can be looked at without it.
                Err(failure) => {
                    found.failed("transport", &failure);
                    (without, Queues::Failed)
                }
            };
            look(&operator, asked, (queues, is_debeziums), &mut found).await;
            found.heard(warnings);
        }
    }
    let printed = if common.json { out.json(&found) } else { out.text(&text(&found)) };
    match found.misuse {
        Some(why) => printed.and_then(|()| Err(Failure::usage(why))),
        None => ended(printed, found.errors > 0),
    }
}

async fn look(operator: &Operator, asked: &Doctor, (queues, is_debeziums): (Queues, bool), found: &mut Findings) {
    let said = |time| span(millis(time));
    match (operator.retention().await, asked.redelivery) {
        (Err(error), _) => found.add(Level::Error, with_causes(&error), None),
        (Ok(retention), Some(redelivery)) if retention <= redelivery => found.add(
            Level::Error,
            format!("dedup entries are kept for {}, and a copy may come after {}: it would be handled again",
                said(retention),
                said(redelivery)),
            Some("raise Settings::retention of every endpoint on this store above it, or Eviction::Evidence where the transport shows marks"),
        ),
        (Ok(retention), _) => found.add(Level::Ok, format!("dedup entries are kept for {}", said(retention)), None),
    }
    let status = match operator.status(&selection(&asked.of), LIMIT).await {
        Ok(status) => status,
        Err(error) => return found.add(Level::Error, with_causes(&error), None),
    };
    // An endpoint that is yet to run has nothing either.
    if let Err(Failure::Failed(why)) = is_there(operator, asked.of.endpoint.as_ref()).await {
        found.add(Level::Warning, why, Some("look at how it is written, unless it has yet to run"));
    }
    match &status.endpoints {
        Answer::Is(endpoints) => endpoints.iter().for_each(|endpoint| look_at_endpoint(endpoint, queues, found)),
        Answer::Unknown { why } => {
            found.add(Level::Warning, format!("endpoints are not looked at: {why}"), Some("--endpoint and --saga"))
        }
    }
    status.outboxes.iter().for_each(|outbox| look_at_outbox(outbox, is_debeziums, found));
}

fn look_at_endpoint(endpoint: &EndpointStatus, queues: Queues, found: &mut Findings) {
    let name = &endpoint.endpoint;
    if let Answer::Is(count) = &endpoint.dead_letters
        && count.number > 0
    {
        let remedy =
            "`hapax dead-letters list` shows why; mend the cause, then `hapax dead-letters retry` or `discard`";
        found.add(
            Level::Warning,
            format!("{name} has set {} aside", counted(count, "message", "messages")),
            Some(remedy),
        );
    }
    if let Answer::Is(sagas) = &endpoint.sagas {
        for saga in sagas {
            let Some(oldest) = saga.oldest_ms.filter(|oldest| *oldest > WAITS_TOO_LONG_MS) else { continue };
            let what = format!(
                "{name}/{}: messages of {} wait to be sent, for up to {}",
                saga.saga,
                counted(saga.waiting, "entity", "entities"),
                span(oldest)
            );
            let remedy = "run the endpoint, whose sweeper sends them, and look into its log for why it cannot; `hapax sweep` does it by hand";
            found.add(Level::Warning, what, Some(remedy));
        }
    }
    if let Answer::Is(schedule) = &endpoint.schedule
        && let Some(since) = schedule.overdue_for_ms.filter(|since| *since > OVERDUE_TOO_LONG_MS)
    {
        let what =
            format!("{name}: {} messages of its schedule are overdue, for up to {}", schedule.overdue, span(since));
        found.add(
            Level::Warning,
            what,
            Some("run the endpoint, which sends them, and look into its log for why it cannot"),
        );
    }
    if let Answer::Unknown { why } = &endpoint.queue {
        // Where a transport is known, it has not answered.
        let (level, remedy) = match queues {
            Queues::Failed => return,
            Queues::Unnamed => (Level::Ok, None),
            Queues::Reached => {
                (Level::Warning, Some("see whether it is this endpoint's transport, and whether its program has run"))
            }
        };
        found.add(level, format!("{name}: its queue is not looked at: {why}"), remedy);
    }
}

fn look_at_outbox(outbox: &OutboxStatus, is_debeziums: bool, found: &mut Findings) {
    let table = &outbox.table;
    if is_debeziums {
        let what = format!("{table}: Debezium sends what is stored; what it has sent, its connector knows");
        return found.add(Level::Ok, what, None);
    }
    if outbox.failed > 0 {
        let remedy =
            "`hapax outbox list --status failed` shows why; mend the cause, then `hapax outbox retry` or `discard`";
        found.add(Level::Warning, format!("{table}: {} messages have failed", outbox.failed), Some(remedy));
    }
    if outbox.waiting > 0 && outbox.relays == 0 {
        let what = format!("{table}: {} messages wait, and no relay is there", outbox.waiting);
        found.add(Level::Error, what, Some("start a process with a Relay for this table: see docs/relay.md"));
    } else if let Some(lag) = outbox.lag_ms.filter(|lag| *lag > OVERDUE_TOO_LONG_MS) {
        let remedy = "look into the relay's log, and whether its broker is away: see docs/relay.md, what to watch";
        found.add(Level::Warning, format!("{table}: a message could have been sent {} ago", span(lag)), Some(remedy));
    }
}

fn text(found: &Findings) -> String {
    let mut text = String::new();
    for Finding { level, what, remedy } in &found.findings {
        let level = match level {
            Level::Ok => "ok      ",
            Level::Warning => "warning ",
            Level::Error => "ERROR   ",
        };
        text += &format!("{level} {what}\n");
        if let Some(remedy) = remedy {
            text += &format!("         -> {remedy}\n");
        }
    }
    let (errors, warnings) = (counted(found.errors, "error", "errors"), counted(found.warnings, "warning", "warnings"));
    text + &format!("{errors}, {warnings}\n")
}
