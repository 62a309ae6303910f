//! All SQL of the outbox. `hapax.` in a text stands for the prefix of the tables' names.
//!
//! What a relay asks for is one text of several statements, which is one round trip, one transaction and one commit; `@now` is
//! the time of all its parts. The values in such a text are numbers and bytes in hexadecimal digits, and nothing else. Each
//! access to the outbox names its index: statistics of a table that was empty must not make the server go through all of it, and
//! lock it.

use hapax_core::ports::RowStatus;

use super::super::wire::Schema;

pub(super) static SCHEMA: Schema = Schema {
    opening: "opening the MariaDB outbox",
    remedy: "set `migrate(true)`, or apply `MySqlOutbox::schema_sql` by hand",
    tables: ["outbox_migration", "outbox_meta"],
    version: "SELECT coalesce(max(version), 0), (SELECT value FROM hapax.outbox_meta WHERE name = 'usable_from') \
              FROM hapax.outbox_migration",
    rows: &[
        ("the row `settled` of `outbox_meta`", "SELECT 1 FROM hapax.outbox_meta WHERE name = 'settled'"),
        ("rows of `outbox_partition`", "SELECT 1 FROM hapax.outbox_partition WHERE `partition` = 9999"),
        ("rows of `outbox_lock`", "SELECT 1 FROM hapax.outbox_lock WHERE `partition` = 9999"),
    ],
    framed: None,
    migrations: &[(1, include_str!("migrations/0001_initial.sql"))],
};

/// By the server's clock, whatever the session's time zone: some have an hour that comes twice.
pub(super) const NOW: &str = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)";

/// The columns of a message, in the order in which they are bound and read.
pub(super) const COLUMNS: &str = "id, destination, `key`, type, content_type, correlation_id, causation_id, tenant, traceparent, \
                       occurred_at, due_at, expires_at, headers, body";

pub(super) fn columns_of(row: &str) -> String {
    COLUMNS.split(", ").map(|column| format!("{row}.{column}")).collect::<Vec<String>>().join(", ")
}

/// Before the rows: each is [`COLUMNS`], token, attempts, lane, bytes, owner, when it is ready and when it was stored.
pub(super) fn enqueue() -> String {
    format!(
        "INSERT INTO hapax.outbox ({COLUMNS}, token, attempts, lane, bytes, owner, status, ready_at, stored_at) VALUES "
    )
}

/// One message: [`COLUMNS`], token, attempts, lane, bytes, owner, lease, due time or 0.
pub(super) fn enqueue_one() -> String {
    let columns = "?, ".repeat(COLUMNS.split(", ").count());
    format!("{}({columns}?, ?, ?, ?, ?, 0, GREATEST({NOW} + ?, ?), {NOW})", enqueue())
}

pub(super) const BY_ID: &str = "hapax.outbox AS m FORCE INDEX (id)";
pub(super) const BY_NUMBER: &str = "hapax.outbox AS m FORCE INDEX (PRIMARY)";
pub(super) const READY: &str = "hapax.outbox AS m FORCE INDEX (ready)";
pub(super) const OF_LANE: &str = "hapax.outbox AS m FORCE INDEX (lane)";

/// The rows whose numbers are in `@numbers`, in their order.
pub(super) fn numbered() -> String {
    format!(
        "JSON_TABLE(@numbers, '$[*]' COLUMNS (number BIGINT PATH '$')) AS j STRAIGHT_JOIN {BY_NUMBER} ON m.number = j.number"
    )
}

/// What a row of an answer is about, in its first column. Without what is not said of rows the second is a number.
pub(super) mod row {
    /// A claim that has ended.
    pub(in super::super) const ENDED: i64 = 0;
    /// A lease that goes on: its token, its id.
    pub(in super::super) const RENEWED: i64 = 1;
    /// Claimed: its attempts, whether it has expired, the message.
    pub(in super::super) const CLAIMED: i64 = 2;
    /// Whether there is more to claim: 1.
    pub(in super::super) const MORE: i64 = 3;
    /// The server's time.
    pub(in super::super) const NOW: i64 = 4;
    /// When the next row may be claimed.
    pub(in super::super) const NEXT: i64 = 5;
    /// Where order is kept: 1 if the relay is there.
    pub(in super::super) const ALIVE: i64 = 6;
    /// Where order is kept: the last lane that was looked at, if there may be others behind it.
    pub(in super::super) const LANE: i64 = 7;
    /// Where order is kept: how many lanes were looked at.
    pub(in super::super) const LANES: i64 = 11;
    /// How many relays there are, and how many partitions are this one's.
    pub(in super::super) const SHARES: i64 = 8;
    /// A relay that has partitions and is gone.
    pub(in super::super) const GONE: i64 = 9;
    /// A partition of this relay's in which it has claims.
    pub(in super::super) const BUSY: i64 = 10;
}

/// Whether order is kept, which is decided when the table is first opened: `?` 1 or 0.
pub(super) const KEEP_ORDER: &str =
    "INSERT INTO hapax.outbox_meta (name, value) VALUES ('ordered', ?) ON DUPLICATE KEY UPDATE name = name";

/// What was decided.
pub(super) const ORDER: &str = "SELECT value FROM hapax.outbox_meta WHERE name = 'ordered'";

/// On the disk with all that was committed before.
pub(super) const SETTLE: &str = "UPDATE hapax.outbox_meta SET value = value + 1 WHERE name = 'settled'";

/// `?` message id or null, the same again, limit, skip.
pub(super) fn failed() -> String {
    format!(
        "SELECT {COLUMNS}, attempts, ended_at, last_error FROM hapax.outbox FORCE INDEX (ready) \
         WHERE status = 2 AND (? IS NULL OR id = ?) ORDER BY ready_at, number LIMIT ? OFFSET ?"
    )
}

/// With a message id: `?` that, the same again, limit, skip; that row alone, in the archive too. Else `?` limit, skip.
pub(super) fn listed(status: Option<RowStatus>, by_id: bool) -> String {
    let columns = format!("{COLUMNS}, CAST(status AS SIGNED), CAST(attempts AS SIGNED), stored_at, ended_at");
    let of_status = status.map_or_else(|| "TRUE".to_owned(), |status| format!("status = {}", status.number()));
    if by_id {
        return format!(
            "SELECT {columns}, ready_at, last_error, CAST(0 AS SIGNED) FROM hapax.outbox FORCE INDEX (id) WHERE id = ? AND {of_status} \
             UNION ALL SELECT {columns}, NULL, NULL, CAST(1 AS SIGNED) FROM hapax.outbox_archive WHERE id = ? AND {of_status} \
             LIMIT ? OFFSET ?"
        );
    }
    let (index, order) = if status.is_some() { ("ready", "ready_at, number") } else { ("PRIMARY", "number") };
    format!(
        "SELECT {columns}, ready_at, last_error, CAST(0 AS SIGNED) FROM hapax.outbox FORCE INDEX ({index}) WHERE {of_status} \
         ORDER BY {order} LIMIT ? OFFSET ?"
    )
}

/// How many rows wait, and how many of these are claimed; how old the oldest of them is, and for how long one could have been
/// sent, claimed or not, in milliseconds; how many have failed; how many relays there are.
pub(super) fn state() -> String {
    format!(
        "SELECT COUNT(*), CAST(COALESCE(SUM(m.token <> 0 AND m.ready_at > n.now), 0) AS SIGNED), MAX(n.now) - MIN(m.stored_at), \
           MAX(n.now) - MIN(IF(COALESCE(m.due_at, 0) <= n.now, GREATEST(m.stored_at, COALESCE(m.due_at, 0)), NULL)), \
           (SELECT COUNT(*) FROM hapax.outbox AS f FORCE INDEX (ready) WHERE f.status = 2), \
           (SELECT COUNT(*) FROM hapax.outbox_relay) \
         FROM (SELECT {NOW} AS now) AS n STRAIGHT_JOIN {READY} WHERE m.status = 0"
    )
}

/// `?` key, attempt, fingerprint. A key that is there already is an error; who comes while another one has it under way waits.
pub(super) fn enter() -> String {
    format!("INSERT INTO hapax.inbox (`key`, attempt, fingerprint, handled_at) VALUES (?, ?, ?, {NOW})")
}

/// `?` key.
pub(super) const SEEN: &str = "SELECT attempt, fingerprint, reply, handled_at FROM hapax.inbox WHERE `key` = ?";

/// `?` reply or null, key, attempt. Tells whether the row is there: that of another attempt is another transaction's.
pub(super) const REPLY: &str = "UPDATE hapax.inbox SET reply = ? WHERE `key` = ? AND attempt = ?";

/// `?` age in milliseconds, limit.
pub(super) fn evict() -> String {
    format!("DELETE FROM hapax.inbox WHERE handled_at <= {NOW} - ? ORDER BY handled_at LIMIT ?")
}

/// `?` age in milliseconds, limit.
pub(super) fn remove_archived() -> String {
    format!("DELETE FROM hapax.outbox_archive WHERE ended_at <= {NOW} - ? ORDER BY ended_at LIMIT ?")
}

/// What the account that runs the program needs.
pub(super) const GRANTS: &str = "\
    GRANT SELECT ON hapax.outbox_migration TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE ON hapax.outbox_meta TO ACCOUNT;\n\
    GRANT SELECT, UPDATE ON hapax.outbox_partition TO ACCOUNT;\n\
    GRANT SELECT, UPDATE ON hapax.outbox_lock TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.outbox TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.outbox_relay TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.outbox_archive TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.inbox TO ACCOUNT;\n";

/// Every text that is prepared, for the test that prepares them.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    let mut all =
        vec![enqueue_one(), failed(), state(), enter(), evict(), remove_archived(), SCHEMA.version.to_owned()];
    all.extend([KEEP_ORDER, ORDER, SETTLE, SEEN, REPLY].map(str::to_owned));
    all
}
