//! All that is known of one message.

use hapax::{
    operator::{Handled, Hints, MessageLife, printable, printable_lines},
    ports::Answer,
};

use super::{deed, ended, is_there, open, selection};
use crate::{
    args::{Common, MessageArgs},
    failure::Failure,
    print::{Out, counted},
    transport::with_transport,
};

pub(super) async fn run(asked: &MessageArgs, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let operator = with_transport(open(common).await?, common).await?;
    let hints = Hints {
        of: selection(&asked.of),
        key: asked.key.clone(),
        idempotency_key: asked.idempotency_key.clone(),
        looks_max: asked.limit,
    };
    let life = operator.message(&asked.id, &hints).await.map_err(|error| Failure::of(&error))?;
    let printed = if common.json { out.json(&life) } else { out.text(&text(&life)) };
    let is_unknown = is_unknown(&life);
    if is_unknown {
        is_there(&operator, asked.of.endpoint.as_ref()).await?;
    }
    ended(printed, is_unknown)
}

/// Nothing at all, and not because what was handled cannot be told: its id was mistyped, or it was evicted.
fn is_unknown(life: &MessageLife) -> bool {
    life.outbox_rows.is_empty()
        && life.sent_by.is_empty()
        && life.dead_letters.is_empty()
        && life.actions.is_empty()
        && life.scheduled.is().is_none_or(Vec::is_empty)
        && life.queued.is().is_none_or(Vec::is_empty)
        && life.handled.is().is_some_and(Vec::is_empty)
}

fn text(life: &MessageLife) -> String {
    let mut lines = vec![format!("message {}", life.message_id)];
    for row in &life.outbox_rows {
        let archived = if row.archived { ", in the archive" } else { "" };
        let ended = row.ended.as_ref().map(|ended| format!(" at {ended}")).unwrap_or_default();
        let error = row.last_error.as_ref().map(|error| format!(": {}", printable(error))).unwrap_or_default();
        let status = row.status.as_str();
        lines.push(format!(
            "  stored in outbox {} at {}; {status}{ended}{archived}, {}{error}",
            row.table,
            row.stored,
            counted(row.attempts, "attempt", "attempts")
        ));
    }
    for sent in &life.sent_by {
        let (state, entry) =
            (if sent.entry.over { "is sent, not cleaned up yet" } else { "waits to be sent" }, &sent.entry);
        lines
            .push(format!("  sent by {}/{}/{}, saved at {}; {state}", sent.endpoint, sent.saga, sent.key, entry.saved));
    }
    let mut untold = section(&mut lines, "schedule", &life.scheduled, |copy| {
        format!("  in the schedule of {}, to {}, due at {}", copy.endpoint, copy.destination, copy.due)
    });
    untold += section(&mut lines, "queues", &life.queued, |copy| {
        let leased = if copy.leased { "under a lease until" } else { "available at" };
        format!(
            "  in the queue of {}, sent at {}, given {} so far; {leased} {}",
            copy.endpoint,
            copy.sent,
            counted(copy.attempts, "time", "times"),
            copy.available
        )
    });
    untold += section(&mut lines, "handled", &life.handled, handled);
    for letter in &life.dead_letters {
        let saga = letter.saga.as_deref().map(|saga| format!(" by {saga}")).unwrap_or_default();
        let reason = letter.reason.lines().next().unwrap_or_default();
        lines.push(format!(
            "  dead letter of {}{saga} since {}, after {}: {}",
            letter.endpoint,
            letter.time,
            counted(letter.attempts, "attempt", "attempts"),
            printable(reason)
        ));
    }
    for action in &life.actions {
        let letters = counted(action.count, "dead letter", "dead letters");
        let (deed, by, time, endpoint) = (deed(action.deed), &action.by, action.time, &action.endpoint);
        lines.push(format!("  {deed} by {} at {time}, with {letters} of {endpoint} in that call", printable(by)));
    }
    if lines.len() == 1 + untold {
        let otherwise = if untold == 0 { "" } else { "otherwise " };
        lines.push(format!(
            "  {otherwise}nothing is known of it here: look at how it is written; what has an idempotency key is remembered by that \
             (--idempotency-key), and what was evicted has left no trace"
        ));
    }
    let asked = counted(life.entities_asked, "entity was", "entities were");
    lines.push(format!("{asked} asked whether it was handled there"));
    printable_lines(&lines.join("\n")) + "\n"
}

/// How many lines say that something is not known: one or none.
fn section<T>(lines: &mut Vec<String>, name: &str, answer: &Answer<Vec<T>>, line: impl Fn(&T) -> String) -> usize {
    match answer {
        Answer::Is(all) => lines.extend(all.iter().map(line)),
        Answer::Unknown { why } => lines.push(format!("  {name}: not known here: {}", printable(why))),
    }
    usize::from(matches!(answer, Answer::Unknown { .. }))
}

fn handled(handled: &Handled) -> String {
    let Handled { endpoint, saga, key, remembered, time, replied, waits, .. } = handled;
    let time = time.as_deref().map(|time| format!(" at {time}")).unwrap_or_default();
    let waits = match waits {
        Some(entry) if !entry.over => {
            format!("; {} to be sent", counted(entry.outgoing.len(), "message of it waits", "messages of it wait"))
        }
        _ if *remembered => "; all it caused is sent".to_owned(),
        _ => String::new(),
    };
    let memory = if *remembered { "remembered" } else { "not remembered yet" };
    let replied = if *replied { ", answered" } else { "" };
    format!("  handled by {endpoint}/{saga}/{key}{time}: {memory}{replied}{waits}")
}
