//! What is stored to be sent: in entities, and in outbox tables.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hapax::{
    ids::MessageId,
    operator::{Operator, ShownRow, WaitingEntity},
    ports::{Answer, Care, OutboxRows, Page, RowStatus, StoreError},
    time::Timestamp,
};
use serde::Serialize;

use super::{cut, is_anywhere, open, selection, warn_of_more};
use crate::{
    args::{Changing, Common, Outbox, RowsArgs},
    ask::Hand,
    failure::Failure,
    ids::millis,
    print::{Out, Table, span, span_or_dash},
};

/// Rows of one batch: see `RelayOptions::care`.
const BATCH: usize = 1_000;
/// Rows of a page: their bodies come with them.
const PAGE: usize = 200;
/// What is written down that was done with rows that are over.
const ARCHIVED: &str = "archived outbox rows";
const PURGED: &str = "purged outbox rows";
const REMOVED: &str = "removed outbox rows from the archive";
/// Where what is left is seen.
const ROWS_LEFT: &str = "`hapax outbox list --status failed`";
/// Rows of one call at most.
const AT_ONCE_MAX: usize = 10_000;

#[derive(Serialize)]
struct Listed {
    #[serde(skip_serializing_if = "Option::is_none")]
    entities: Option<Answer<Vec<WaitingEntity>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<ShownRow>>,
}

#[derive(Serialize)]
struct Changed {
    table: String,
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_from_archive: Option<u64>,
}

pub(super) async fn run(asked: Outbox, common: &Common, out: &mut Out) -> Result<(), Failure> {
    match asked {
        Outbox::List { of, status, entities, tables, older_than, skip, limit } => {
            let operator = open(common).await?.operator;
            let mut listed = Listed { entities: None, rows: None };
            if !tables && status.is_none() {
                let waiting = operator.waiting(&selection(&of), older_than, skip, limit.saturating_add(1)).await;
                let mut waiting = waiting.map_err(|error| Failure::of(&error))?;
                if let Answer::Is(waiting) = &mut waiting {
                    cut(waiting, (skip, limit), "entities with something that waits");
                    if waiting.is_empty() {
                        is_anywhere(&operator, of.endpoint.as_ref(), common).await?;
                    }
                }
                listed.entities = Some(waiting);
            }
            if !entities {
                let rows = operator.rows(status, skip, limit.saturating_add(1)).await;
                let mut rows = rows.map_err(|error| Failure::of(&error))?;
                cut(&mut rows, (skip, limit), "rows");
                listed.rows = Some(rows);
            }
            if common.json { out.json(&listed) } else { out.text(&text(&listed)) }
        }
        Outbox::Retry(asked) => decide(&asked, true, common, out).await,
        Outbox::Discard(asked) => decide(&asked, false, common, out).await,
        Outbox::Purge { older_than, changing } => remove(older_than, None, &changing, common, out).await,
        Outbox::Archive { older_than, keep, changing } => remove(older_than, Some(keep), &changing, common, out).await,
        Outbox::Debezium(_) => Ok(()), // It needs no database, and has its own way.
    }
}

fn text(listed: &Listed) -> String {
    let mut text = String::new();
    match &listed.entities {
        None => {}
        Some(Answer::Unknown { why }) => text += &format!("entities: not known here: {why}\n"),
        Some(Answer::Is(entities)) if entities.is_empty() => text += "no such entities, with something that waits\n",
        Some(Answer::Is(entities)) => {
            let mut table = Table::new(&["endpoint", "saga", "key", "waits for", "to", "type", "message"]);
            for entity in entities {
                for entry in &entity.entries {
                    let head = |cells: [String; 3]| {
                        let names = [entity.endpoint.clone(), entity.saga.clone(), entity.key.clone()];
                        names.into_iter().chain([span_or_dash(entry.age_ms)]).chain(cells)
                    };
                    if entry.over || entry.outgoing.is_empty() {
                        table.row(head(["-".to_owned(), "-".to_owned(), "all sent, not cleaned up yet".to_owned()]));
                    }
                    for outgoing in entry.outgoing.iter().filter(|_| !entry.over) {
                        let message = &outgoing.envelope;
                        let cells =
                            [outgoing.destination.clone(), message.message_type.clone(), message.message_id.clone()];
                        table.row(head(cells));
                    }
                }
            }
            text += &table.text();
        }
    }
    let Some(rows) = &listed.rows else { return text };
    if rows.is_empty() {
        return text + "no such rows in outbox tables\n";
    }
    let mut table = Table::new(&["table", "status", "attempts", "stored", "message", "type", "to", "last error"]);
    for row in rows {
        let (message_type, to) = match &row.message {
            Some(message) => (message.envelope.message_type.clone(), message.destination.clone()),
            None => ("unreadable".to_owned(), row.unreadable.clone().unwrap_or_default()),
        };
        let error = row.last_error.as_deref().unwrap_or("-").lines().next().unwrap_or_default().to_owned();
        let (attempts, status) = (row.attempts.to_string(), row.status.as_str().to_owned());
        let (stored, id) = (row.stored.clone(), row.message_id.clone());
        table.row([row.table.clone(), status, attempts, stored, id, message_type, to, error]);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text + &table.text()
}

/// Tables that there are.
fn tables(operator: &Operator) -> Result<&[Arc<dyn OutboxRows>], Failure> {
    match operator.outboxes() {
        [] => Err(Failure::new(
            "there is no outbox table in this database: name the one that has it, or `hapax migrate --outbox` makes one",
        )),
        tables => Ok(tables),
    }
}

/// Rows of `table` that have failed, of those that were asked for.
async fn failed(table: &dyn OutboxRows, asked: &RowsArgs) -> Result<Vec<MessageId>, Failure> {
    let listed = async |page| table.rows(Some(RowStatus::Failed), &page).await.map_err(|error| Failure::of(&error));
    let mut ids: Vec<MessageId> = Vec::new();
    while asked.all && ids.len() < AT_ONCE_MAX {
        let rows = listed(Page { skip: ids.len(), limit: PAGE, message_id: None }).await?;
        let is_last = rows.len() < PAGE;
        ids.extend(rows.into_iter().map(|row| row.message_id));
        if is_last {
            break;
        }
    }
    if asked.all {
        warn_of_more(ids.len(), AT_ONCE_MAX);
    }
    for id in &asked.ids {
        // One that is named twice is counted once.
        if !ids.contains(id) {
            let rows = listed(Page { message_id: Some(id.clone()), ..Page::first(1) }).await?;
            ids.extend(rows.into_iter().map(|row| row.message_id));
        }
    }
    Ok(ids)
}

/// Has failed rows tried again, or gives them up.
async fn decide(asked: &RowsArgs, again: bool, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let operator = open(common).await?.operator;
    let mut chosen = Vec::new();
    for table in tables(&operator)? {
        chosen.push((table, failed(&**table, asked).await?));
    }
    let missing = asked.ids.iter().find(|id| !chosen.iter().any(|(_, ids)| ids.contains(id)));
    if let Some(id) = missing {
        return Err(Failure::new(format!(
            "message {id} is no row that has failed, and nothing was done: `hapax outbox list` shows those that have"
        )));
    }
    let hand = Hand::new(&asked.changing, common);
    let count: usize = chosen.iter().map(|(_, ids)| ids.len()).sum();
    let what = if again {
        format!("have the relay try {count} failed messages again")
    } else {
        format!("give up {count} failed messages, which are never sent then")
    };
    if count > 0 && !hand.asks(&what, out)? {
        return Ok(());
    }
    hand.opens_log()?;
    let mut changed = Vec::new();
    for (table, ids) in chosen {
        let rows = if again { table.retry(&ids).await } else { table.discard(&ids).await };
        let deed = if again { "retried outbox rows" } else { "discarded outbox rows" };
        let rows = rows.map_err(|error| hand.broke_off(deed, table.name(), None, &error, ROWS_LEFT))?;
        if !ids.is_empty() {
            hand.writes_down(deed, table.name(), rows)?;
        }
        changed.push(Changed { table: table.name().to_owned(), rows, removed_from_archive: None });
    }
    tell(&changed, if again { "to be tried again" } else { "given up" }, common, out)
}

/// Removes what is over, or moves it to the archive.
async fn remove(
    older_than: Duration,
    archive: Option<Duration>,
    changing: &Changing,
    common: &Common,
    out: &mut Out,
) -> Result<(), Failure> {
    let operator = open(common).await?.operator;
    let (hand, age) = (Hand::new(changing, common), span(millis(older_than)));
    let tables = tables(&operator)?;
    let names: Vec<&str> = tables.iter().map(|table| table.name()).collect();
    let which = format!("rows of {} that were sent or have expired, more than {age} ago", names.join(", "));
    let what = match archive {
        None => format!("remove for good {which}, from their archive too"),
        Some(keep) => {
            // The archive does not know when a row came into it.
            let gone = span(millis(older_than.saturating_add(keep)));
            format!("move to the archive {which}, and remove from there for good what ended more than {gone} ago")
        }
    };
    let what = match hand.dry_run {
        true => format!("{what}: {} rows, those in the archive not counted", count_over(tables, older_than).await?),
        false => what,
    };
    if !hand.asks(&what, out)? {
        return Ok(());
    }
    hand.opens_log()?;
    // Through the archive, so that what is in it already goes by its age as well.
    let care = Care { keep: older_than, archive: Some(archive.unwrap_or(Duration::ZERO)), rows: BATCH };
    let mut changed = Vec::new();
    for table in tables {
        let (mut rows, mut archived) = (0, 0);
        let taken = take_out(&**table, &care, (&mut rows, &mut archived)).await;
        let (deed, count) = if archive.is_some() { (ARCHIVED, rows) } else { (PURGED, archived) };
        // What is gone for good is never written down as archived.
        let is_more = archive.is_some() && archived > 0;
        let removed = if is_more { hand.writes_down(REMOVED, table.name(), archived) } else { Ok(()) };
        // What went before it failed is gone all the same, and written down.
        taken.map_err(|error| {
            hand.broke_off(deed, table.name(), Some(count), &error, "`hapax outbox list --status sent`")
        })?;
        hand.writes_down(deed, table.name(), count).and(removed)?;
        changed.push(Changed { table: table.name().to_owned(), rows, removed_from_archive: Some(archived) });
    }
    tell(&changed, if archive.is_some() { "archived" } else { "taken out of the table" }, common, out)
}

/// Batch after batch, until nothing is left that was old enough when it began: a relay may end rows faster than they are removed. Counts
/// them.
async fn take_out(
    table: &dyn OutboxRows,
    care: &Care,
    (rows, archived): (&mut u64, &mut u64),
) -> Result<(), StoreError> {
    let begun = Instant::now();
    loop {
        let care = Care { keep: care.keep.saturating_add(begun.elapsed()), ..*care };
        let cared = table.care(&care).await?;
        *rows += cared.ended as u64;
        *archived += cared.archived as u64;
        if cared.ended == 0 && cared.archived == 0 {
            return Ok(());
        }
    }
}

/// How many rows are over for so long, up to a limit.
async fn count_over(tables: &[Arc<dyn OutboxRows>], older_than: Duration) -> Result<String, Failure> {
    let before = Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(millis(older_than)));
    let mut count = 0;
    for table in tables {
        for status in [RowStatus::Sent, RowStatus::Expired] {
            let mut skip = 0;
            loop {
                let page = Page { skip, limit: PAGE, message_id: None };
                let rows = table.rows(Some(status), &page).await.map_err(|error| Failure::of(&error))?;
                let over = rows.iter().filter(|row| row.ended.is_some_and(|ended| ended <= before)).count();
                (count, skip) = (count + over, skip + rows.len());
                if count >= AT_ONCE_MAX {
                    return Ok(format!("at least {count}"));
                }
                if over < rows.len() || rows.len() < PAGE {
                    break;
                }
            }
        }
    }
    Ok(count.to_string())
}

fn tell(changed: &[Changed], what: &str, common: &Common, out: &mut Out) -> Result<(), Failure> {
    if common.json {
        return out.json(&changed);
    }
    for Changed { table, rows, removed_from_archive } in changed {
        let removed = removed_from_archive.map(|removed| format!(", {removed} removed for good")).unwrap_or_default();
        out.line(&format!("{table}: {rows} {what}{removed}"))?;
    }
    Ok(())
}
