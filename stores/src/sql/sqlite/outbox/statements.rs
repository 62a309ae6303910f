//! All SQL of the outbox.
//!
//! What a relay asks for is one text of several statements in one transaction. The values in it are numbers and bytes in
//! hexadecimal digits, and nothing else.

use hapax_core::ports::RowStatus;

use super::super::{
    super::outbox::{as_i64, hex, lanes},
    ride::Schema,
};

pub(super) static SCHEMA: Schema = Schema {
    opening: "opening the SQLite outbox",
    remedy: "set `migrate(true)`, or apply `SqliteOutbox::schema_sql` by hand",
    tables: "SELECT count(*), count(*) FILTER (WHERE name = 'hapax_outbox_migration') FROM sqlite_schema \
             WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    version: "SELECT coalesce(max(version), 0) FROM hapax_outbox_migration",
    numbers: "hapax_outbox_meta",
    probe: "UPDATE hapax_outbox_meta SET value = value",
    rows: &[("the row `owner` of `hapax_outbox_meta`", "SELECT 1 FROM hapax_outbox_meta WHERE name = 'owner'")],
    framed: None,
    migrations: &[(1, include_str!("migrations/0001_initial.sql"))],
};

/// The columns of a message, in the order in which they are bound and read.
pub(super) const COLUMNS: &str = "id, destination, key, type, content_type, correlation_id, causation_id, tenant, traceparent, \
                       occurred_at, due_at, expires_at, headers, body";
const COLUMN_COUNT: usize = 14;

/// `rows` messages: of each [`COLUMNS`], token, attempts, lane, owner, when it is ready, when it was stored.
pub(super) fn enqueue(rows: usize) -> String {
    let row = format!("({}0, ?, ?, ?, ?, ?, ?)", "?, ".repeat(COLUMN_COUNT));
    format!(
        "INSERT INTO hapax_outbox ({COLUMNS}, status, token, attempts, lane, owner, ready_at, stored_at) VALUES {}",
        vec![row; rows].join(", ")
    )
}

/// What a row of an answer is about, in its first column. Without what is not said of rows the second is a number.
pub(super) mod row {
    /// How many claims have ended.
    pub(in super::super) const ENDED: i64 = 0;
    /// A lease that goes on: its token, its id.
    pub(in super::super) const RENEWED: i64 = 1;
    /// Claimed: its attempts, whether it has expired, the message.
    pub(in super::super) const CLAIMED: i64 = 2;
    /// When the next row may be claimed.
    pub(in super::super) const NEXT: i64 = 5;
    /// Where order is kept: 1 if the relay is there.
    pub(in super::super) const ALIVE: i64 = 6;
    /// Where order is kept: the last lane that was looked at, if there may be others behind it.
    pub(in super::super) const LANE: i64 = 7;
}

/// Whether order is kept, which is decided when the table is first opened: `?` 1 or 0.
pub(super) const KEEP_ORDER: &str =
    "INSERT INTO hapax_outbox_meta (name, value) VALUES ('ordered', ?) ON CONFLICT DO NOTHING";
/// What was decided.
pub(super) const ORDER: &str = "SELECT value FROM hapax_outbox_meta WHERE name = 'ordered'";

/// The number of the lane `name`. Two names with one number share a lane, which only makes their order stricter.
pub(super) fn lane(name: &str) -> i64 {
    (lanes::number(name) >> 1).cast_signed()
}

/// Statements of one transaction, but for its beginning.
#[derive(Debug, Default)]
pub(super) struct Script {
    text: String,
    statements: usize,
}

impl Script {
    pub(super) fn push(&mut self, statement: &str) {
        self.text.push_str(statement);
        self.text.push_str("; ");
        self.statements += 1;
    }

    /// The text, and how many statements it has.
    pub(super) fn end(mut self) -> (String, usize) {
        self.text.push_str("COMMIT");
        (self.text, self.statements + 1)
    }
}

/// The relay is gone.
pub(super) fn leave(id: i64) -> Script {
    let mut script = Script::default();
    script.push(&format!("UPDATE hapax_outbox_meta SET value = 0 WHERE name = 'owner' AND value = {id}"));
    script.push(&format!("DELETE FROM hapax_outbox_relay WHERE id = {id}"));
    script
}

/// Moves up to `rows` rows that were over at `before` to the archive, or away; then those of the archive.
pub(super) fn remove(before: i64, archived_before: i64, rows: usize, archives: bool) -> Script {
    let rows = as_i64(rows);
    let over = format!(
        "number IN (SELECT number FROM hapax_outbox INDEXED BY hapax_outbox_over WHERE status IN (1, 3) \
         AND ended_at <= {before} ORDER BY ended_at, number LIMIT {rows})"
    );
    let mut script = Script::default();
    if archives {
        let columns = format!("{COLUMNS}, status, attempts, stored_at, ended_at");
        script.push(&format!(
            "INSERT INTO hapax_outbox_archive ({columns}) SELECT {columns} FROM hapax_outbox WHERE {over} \
             ON CONFLICT DO NOTHING"
        ));
    }
    script.push(&format!("DELETE FROM hapax_outbox WHERE {over}"));
    script.push("SELECT 0, changes()");
    script.push(&format!(
        "DELETE FROM hapax_outbox_archive WHERE id IN (SELECT id FROM hapax_outbox_archive \
         WHERE ended_at <= {archived_before} ORDER BY ended_at LIMIT {rows})"
    ));
    script.push("SELECT 1, changes()");
    script
}

/// Changes those of `ids` that have failed.
pub(super) fn change(ids: &[uuid::Uuid], set: &str) -> Script {
    let ids: Vec<String> = ids.iter().map(|id| hex(id.as_bytes())).collect();
    let mut script = Script::default();
    script.push(&format!("UPDATE hapax_outbox SET {set} WHERE id IN ({}) AND status = 2", ids.join(",")));
    script.push("SELECT 0, changes()");
    script
}

/// They begin with their first attempt again.
pub(super) fn retry(now: i64) -> String {
    format!("status = 0, attempts = 0, ready_at = {now}, token = 0, owner = NULL, ended_at = NULL")
}

/// They count as over.
pub(super) fn discard(now: i64) -> String {
    format!("status = 3, ended_at = {now}, lane = NULL")
}

/// `?1` message id or null, `?2` limit, `?3` skip.
pub(super) fn failed() -> String {
    format!(
        "SELECT {COLUMNS}, attempts, ended_at, last_error FROM hapax_outbox INDEXED BY hapax_outbox_failed \
         WHERE status = 2 AND (?1 IS NULL OR id = ?1) ORDER BY ended_at, number LIMIT ?2 OFFSET ?3"
    )
}

/// `?1` limit, `?2` skip, `?3` message id, if one is asked for: then that row alone, in the archive too. The index of each status asks for its
/// condition in these very words.
pub(super) fn listed(status: Option<RowStatus>, by_id: bool) -> String {
    let columns = format!("{COLUMNS}, status, attempts, stored_at, ended_at");
    let of_status = status.map_or_else(|| "true".to_owned(), |status| format!("status = {}", status.number()));
    if by_id {
        return format!(
            "SELECT {columns}, ready_at, last_error, 0 FROM hapax_outbox WHERE id = ?3 AND {of_status} \
             UNION ALL SELECT {columns}, NULL, NULL, 1 FROM hapax_outbox_archive WHERE id = ?3 AND {of_status} LIMIT ?1 OFFSET ?2"
        );
    }
    let (of_status, order) = match status {
        None => (of_status, "number"),
        Some(RowStatus::Waits) => (of_status, "ready_at, number"),
        Some(RowStatus::Failed) => (of_status, "ended_at, number"),
        Some(RowStatus::Sent | RowStatus::Expired) => (format!("status IN (1, 3) AND {of_status}"), "ended_at, number"),
    };
    format!(
        "SELECT {columns}, ready_at, last_error, 0 FROM hapax_outbox WHERE {of_status} AND ?3 IS NULL ORDER BY {order} LIMIT ?1 OFFSET ?2"
    )
}

/// `?1` now. How many rows wait, and how many of these are claimed; how old the oldest of them is, and for how long one could
/// have been sent, claimed or not, in milliseconds; how many have failed; how many relays there are.
pub(super) const STATE: &str = "\
    SELECT count(*), count(*) FILTER (WHERE token <> 0 AND ready_at > ?1), ?1 - min(stored_at), \
      ?1 - min(max(stored_at, coalesce(due_at, 0))) FILTER (WHERE coalesce(due_at, 0) <= ?1), \
      (SELECT count(*) FROM hapax_outbox WHERE status = 2), (SELECT count(*) FROM hapax_outbox_relay) \
    FROM hapax_outbox WHERE status = 0";

/// `?1` key, `?2` attempt, `?3` fingerprint, `?4` now. A row if it is new.
pub(super) const ENTER: &str = "INSERT INTO hapax_inbox (key, attempt, fingerprint, handled_at) VALUES (?1, ?2, ?3, ?4) \
                                ON CONFLICT DO NOTHING RETURNING 1";
/// `?1` key.
pub(super) const SEEN: &str = "SELECT attempt, fingerprint, reply, handled_at FROM hapax_inbox WHERE key = ?1";
/// `?1` key, `?2` reply, `?3` attempt. Tells whether the row is there: that of another attempt is another transaction's.
pub(super) const REPLY: &str = "UPDATE hapax_inbox SET reply = ?2 WHERE key = ?1 AND attempt = ?3";
/// Up to `limit` rows that were handled at `before` or earlier.
pub(super) fn evict(before: i64, limit: i64) -> Script {
    let mut script = Script::default();
    script.push(&format!(
        "DELETE FROM hapax_inbox WHERE key IN (SELECT key FROM hapax_inbox WHERE handled_at <= {before} \
         ORDER BY handled_at LIMIT {limit})"
    ));
    script.push("SELECT 0, changes()");
    script
}
