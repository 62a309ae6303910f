//! All SQL of the queue, and the family of kinds that ride in the store's commits.
//!
//! `{rows}`, `{bytes}` and `{now}` are filled in by the writer, see [`Kind`]. What is given drives each join (`CROSS JOIN`,
//! `INDEXED BY`): a file that was analysed while small must not turn it round and scan the messages.

mod letters;
mod ordered;
mod queues;
mod survey;

use hapax_stores::sql::sqlite::ride::{Kind, Schema};
pub(super) use letters::{LETTER_ADD, LETTER_DISCARD, LETTER_LIST, LETTER_PURGE};
use ordered::TAKE_ORDERED;
pub(super) use queues::{
    ABANDON, ABANDON_STATEMENTS, BACKLOG, CONNECT, CONNECT_STATEMENTS, IS_LEFT, MARK, MARK_STATEMENTS, MESSAGES,
    NEWEST, QUEUE_ID, UNSUBSCRIBE,
};
pub(super) use survey::{QUEUE, QUEUED};

/// The queue's tables.
pub(super) static SCHEMA: Schema = Schema {
    opening: "opening the SQLite queue",
    remedy: "set `migrate(true)`, or apply `SqliteQueue::schema_sql` by hand",
    tables: "SELECT count(*), coalesce(sum(name = 'hapax_queue_migration'), 0) FROM sqlite_schema \
             WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    version: "SELECT coalesce(max(version), 0) FROM hapax_queue_migration",
    numbers: "hapax_queue_meta",
    probe: "UPDATE hapax_queue_migration SET version = version",
    rows: &[],
    framed: None,
    migrations: &[(1, include_str!("migrations/0001_queue.sql")), (2, include_str!("migrations/0002_given.sql"))],
};

/// Places in [`FAMILY`].
pub(super) mod kind {
    pub(in super::super) const ACK: usize = 0;
    pub(in super::super) const RETRY: usize = 1;
    pub(in super::super) const SET_ASIDE: usize = 2;
    pub(in super::super) const EXTEND: usize = 3;
    pub(in super::super) const RELEASE: usize = 4;
    pub(in super::super) const SEND: usize = 5;
    pub(in super::super) const TAKE: usize = 6;
    pub(in super::super) const TAKE_ORDERED: usize = 7;
}

const fn rare(sql: &'static str, statements: usize) -> Kind {
    Kind { sql, statements, usual: false, shared: true, bytes: false }
}

/// In the order in which they run: what ends comes before what begins, so that a receiver may be given what was sent, or
/// what became free, in the same commit.
pub(super) static FAMILY: [Kind; 8] = [
    Kind { usual: true, ..rare(ACK, 1) },
    rare(RETRY, 1),
    rare(SET_ASIDE, 2),
    rare(EXTEND, 1),
    rare(RELEASE, 1),
    Kind { usual: true, bytes: true, ..rare(SEND, 1) },
    Kind { usual: true, shared: false, ..rare(TAKE, 1) },
    Kind { shared: false, ..rare(TAKE_ORDERED, 2) },
];

/// A row is `[id, token]`.
const ACK: &str = "\
    DELETE FROM hapax_queue_message WHERE id IN \
      (SELECT m.id FROM json_each({rows}) AS r CROSS JOIN hapax_queue_message AS m ON m.id = r.value ->> 0 \
       WHERE m.token = r.value ->> 1 AND m.available_at > {now}) \
    RETURNING id, token";

/// A row is `[id, token, new token, delay, 1 if it does not count]`. The new token is the ticket, and ends the lease.
const RETRY: &str = "\
    UPDATE hapax_queue_message AS m SET available_at = {now} + r.delay, token = r.next, place = 3, \
      deliveries = deliveries - r.uncounted \
    FROM (SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS next, value ->> 3 AS delay, \
      value ->> 4 AS uncounted FROM json_each({rows})) AS r \
    WHERE m.id = r.id AND m.token = r.token AND m.available_at > {now} \
    RETURNING id, token";

/// A row is `[id, token, endpoint, reason]`.
const SET_ASIDE: &str = "\
    INSERT INTO hapax_queue_dead_letter \
      (endpoint, message_id, saga, destination, attempts, sent_at, first_at, time, reason, envelope) \
    SELECT r.value ->> 2, m.message_id, '', '', m.deliveries, m.sent_at, m.first_at, {now}, r.value ->> 3, m.envelope \
    FROM json_each({rows}) AS r CROSS JOIN hapax_queue_message AS m ON m.id = r.value ->> 0 \
    WHERE m.token = r.value ->> 1 AND m.available_at > {now} ON CONFLICT DO NOTHING; \
    DELETE FROM hapax_queue_message WHERE id IN \
      (SELECT m.id FROM json_each({rows}) AS r CROSS JOIN hapax_queue_message AS m ON m.id = r.value ->> 0 \
       WHERE m.token = r.value ->> 1 AND m.available_at > {now}) \
    RETURNING id, token";

/// A row is `[id, token, lease]`.
const EXTEND: &str = "\
    UPDATE hapax_queue_message AS m SET available_at = {now} + r.lease \
    FROM (SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS lease FROM json_each({rows})) AS r \
    WHERE m.id = r.id AND m.token = r.token AND m.available_at > {now}";

/// A row is `[queue, key]`: one of this key was settled. If the next ones wait behind it, some of them become available.
const RELEASE: &str = "\
    UPDATE hapax_queue_message SET available_at = {now}, place = 1 WHERE id IN \
      (SELECT e.id FROM json_each({rows}) AS r CROSS JOIN hapax_queue_message AS e ON e.id IN \
         (SELECT n.id FROM hapax_queue_message AS n INDEXED BY hapax_queue_message_key \
          WHERE n.queue = r.value ->> 0 AND n.key = r.value ->> 1 ORDER BY n.id LIMIT 256) \
       WHERE e.place = 2 AND e.available_at > {now} AND 2 = \
         (SELECT h.place FROM hapax_queue_message AS h INDEXED BY hapax_queue_message_key \
          WHERE h.queue = r.value ->> 0 AND h.key = r.value ->> 1 AND NOT (h.place = 0 AND h.available_at > {now}) \
          ORDER BY h.id LIMIT 1))";

/// A row is `[offset, length, queue or null, topic or null, due or 0, key or null, message id]`, its bytes the envelope.
/// Who subscribes to a topic is read in the same snapshot.
const SEND: &str = "\
    INSERT INTO hapax_queue_message \
      (queue, available_at, token, deliveries, place, sent_at, first_at, key, message_id, envelope) \
    SELECT coalesce(r.value ->> 2, s.queue), max({now}, r.value ->> 4), random(), 0, 0, {now}, {now}, r.value ->> 5, \
      r.value ->> 6, substr({bytes}, (r.value ->> 0) + 1, r.value ->> 1) \
    FROM json_each({rows}) AS r LEFT JOIN hapax_queue_subscription AS s ON s.type = r.value ->> 3 \
    WHERE coalesce(r.value ->> 2, s.queue) IS NOT NULL";

/// The one row is `[queue, how many, token, lease, bytes]`. What is given has no more bytes than that, the last one aside.
const TAKE: &str = "\
    UPDATE hapax_queue_message SET available_at = {now} + ({rows} ->> '$[0][3]'), token = {rows} ->> '$[0][2]', \
      deliveries = deliveries + 1, place = 1, first_at = iif(deliveries = 0, {now}, first_at) \
    WHERE id IN (SELECT id FROM (SELECT id, sum(length(envelope)) OVER \
        (ORDER BY available_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes FROM \
        (SELECT id, available_at, envelope FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
         WHERE queue = {rows} ->> '$[0][0]' AND available_at <= {now} \
         ORDER BY available_at, id LIMIT coalesce({rows} ->> '$[0][1]', 0))) \
      WHERE coalesce(bytes, 0) < {rows} ->> '$[0][4]') \
    RETURNING 0, token, id, deliveries, key, envelope";

/// $1 queues: when the first message of each may be given.
pub(super) const LOOK: &str = "\
    SELECT q.value, (SELECT min(m.available_at) FROM hapax_queue_message AS m \
      INDEXED BY hapax_queue_message_available WHERE m.queue = q.value) FROM json_each($1) AS q";

/// $1 queue, $2 now, $3 the latest that a lease of now can end: no lease lasts longer, and what could be given when it was
/// sent can be given now. What was put off for longer, or is due later, stays as it is.
pub(super) const SHORTEN: &str = "\
    UPDATE hapax_queue_message SET available_at = iif(place = 0, $2, $3) WHERE id IN \
      (SELECT id FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
       WHERE queue = $1 AND available_at > $2 \
         AND (place IN (1, 2) AND available_at > $3 OR place = 0 AND available_at = sent_at))";

/// Every text, for the test that prepares them.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    let fill = |sql: &str| sql.replace("{now}", "$1").replace("{rows}", "$2").replace("{bytes}", "$3");
    let kinds = FAMILY.iter().map(|kind| fill(kind.sql));
    let others = [
        LOOK,
        SHORTEN,
        NEWEST,
        QUEUE_ID,
        CONNECT,
        UNSUBSCRIBE,
        ABANDON,
        BACKLOG,
        QUEUE,
        QUEUED,
        MESSAGES,
        MARK,
        IS_LEFT,
        LETTER_ADD,
        LETTER_LIST,
        LETTER_DISCARD,
        LETTER_PURGE,
        SCHEMA.tables,
        SCHEMA.version,
        SCHEMA.probe,
    ];
    kinds.chain(others.map(str::to_owned)).collect()
}
