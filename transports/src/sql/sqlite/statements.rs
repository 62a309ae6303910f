//! All SQL of the queue, and the family of kinds that ride in the store's commits.
//!
//! `{rows}`, `{bytes}` and `{now}` are filled in by the writer, see [`Kind`]. What is given drives each join (`CROSS JOIN`,
//! `INDEXED BY`): a file that was analysed while small must not turn it round and scan the messages.

use hapax_stores::sql::sqlite::ride::{Kind, Schema};

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

/// The same in the order of keys. "First" of a key is the one sent first, those aside that were sent with a due time and
/// are not due.
///
/// 1. What is ready but comes after one of its key that is not, or that became ready later, goes behind that one, so that
///    it does not stand in the way of other keys. It saves looking; the order does not rest on it.
/// 2. Of the first that are ready, those are given before which none of their key is left over, and of whose key none is
///    under a lease: who has that one may be at work, though it was sent later than one that has become due since.
const TAKE_ORDERED: &str = "\
    UPDATE hapax_queue_message AS m SET available_at = b.until, place = 2 \
    FROM (SELECT c.id AS id, c.available_at AS available_at, \
        coalesce((SELECT max(g.available_at) FROM hapax_queue_message AS g INDEXED BY hapax_queue_message_given \
           WHERE g.queue = c.queue AND g.key = c.key AND g.place = 1 AND g.available_at > {now}), \
         (SELECT h.available_at FROM hapax_queue_message AS h INDEXED BY hapax_queue_message_key \
          WHERE h.queue = c.queue AND h.key = c.key AND NOT (h.place = 0 AND h.available_at > {now}) \
          ORDER BY h.id LIMIT 1)) AS until \
      FROM (SELECT id, queue, key, available_at FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
        WHERE queue = {rows} ->> '$[0][0]' AND available_at <= {now} \
        ORDER BY available_at, id LIMIT iif({rows} IS NULL, 0, 1000)) AS c WHERE c.key IS NOT NULL) AS b \
    WHERE m.id = b.id AND b.until > b.available_at; \
    WITH ready AS MATERIALIZED (SELECT id, available_at, key, length(envelope) AS length FROM hapax_queue_message \
        INDEXED BY hapax_queue_message_available \
        WHERE queue = {rows} ->> '$[0][0]' AND available_at <= {now} \
        ORDER BY available_at, id LIMIT coalesce({rows} ->> '$[0][1]', 0)), \
      chosen AS MATERIALIZED (SELECT id, key FROM (SELECT id, key, sum(length) OVER \
          (ORDER BY available_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes FROM ready) \
        WHERE coalesce(bytes, 0) < {rows} ->> '$[0][4]'), \
      left_over AS MATERIALIZED (SELECT k.key AS key, \
          iif(EXISTS (SELECT 1 FROM hapax_queue_message AS g INDEXED BY hapax_queue_message_given \
             WHERE g.queue = {rows} ->> '$[0][0]' AND g.key = k.key AND g.place = 1 AND g.available_at > {now}), 0, \
           (SELECT e.id FROM hapax_queue_message AS e INDEXED BY hapax_queue_message_key \
            WHERE e.queue = {rows} ->> '$[0][0]' AND e.key = k.key AND NOT (e.place = 0 AND e.available_at > {now}) \
              AND e.id NOT IN (SELECT id FROM chosen) ORDER BY e.id LIMIT 1)) AS first \
        FROM (SELECT DISTINCT key FROM chosen WHERE key IS NOT NULL) AS k) \
    UPDATE hapax_queue_message SET available_at = {now} + ({rows} ->> '$[0][3]'), token = {rows} ->> '$[0][2]', \
      deliveries = deliveries + 1, place = 1, first_at = iif(deliveries = 0, {now}, first_at) \
    WHERE id IN (SELECT c.id FROM chosen AS c LEFT JOIN left_over AS l ON l.key = c.key \
      WHERE l.first IS NULL OR c.id < l.first) \
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

/// When the newest message was sent.
pub(super) const NEWEST: &str = "\
    SELECT sent_at FROM hapax_queue_message WHERE id = (SELECT max(id) FROM hapax_queue_message)";

/// $1 endpoint.
pub(super) const QUEUE_ID: &str = "SELECT id FROM hapax_queue WHERE endpoint = $1";

/// $1 endpoint, $2 most queues, $3 types to subscribe to.
pub(super) const CONNECT: &str = "\
    BEGIN IMMEDIATE; \
    INSERT INTO hapax_queue (endpoint) SELECT $1 WHERE (SELECT count(*) FROM hapax_queue) < $2 ON CONFLICT DO NOTHING; \
    INSERT INTO hapax_queue_subscription (type, queue) SELECT t.value, q.id \
      FROM json_each($3) AS t CROSS JOIN hapax_queue AS q ON q.endpoint = $1 WHERE true ON CONFLICT DO NOTHING; \
    SELECT id FROM hapax_queue WHERE endpoint = $1; \
    COMMIT";
pub(super) const CONNECT_STATEMENTS: usize = 5;

/// $1 endpoint, $2 types.
pub(super) const UNSUBSCRIBE: &str = "\
    DELETE FROM hapax_queue_subscription WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1) \
      AND type IN (SELECT value FROM json_each($2))";

/// $1 endpoint, $2 limit. The last but one statement tells how many.
pub(super) const ABANDON: &str = "\
    BEGIN IMMEDIATE; \
    DELETE FROM hapax_queue_subscription WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1); \
    DELETE FROM hapax_queue_message WHERE id IN (SELECT m.id FROM hapax_queue_message AS m \
      INDEXED BY hapax_queue_message_available WHERE m.queue = (SELECT id FROM hapax_queue WHERE endpoint = $1) \
      ORDER BY m.available_at LIMIT $2); \
    COMMIT";
pub(super) const ABANDON_STATEMENTS: usize = 4;

/// $1 endpoint.
pub(super) const BACKLOG: &str = "\
    SELECT count(*) FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
    WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1)";

/// $1 endpoint, $2 limit, $3 now: how many messages; of these, how many under a lease.
pub(super) const QUEUE: &str = "\
    WITH counted AS MATERIALIZED (SELECT place, available_at FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
      WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1) ORDER BY available_at LIMIT $2) \
    SELECT count(*), count(*) FILTER (WHERE place = 1 AND available_at > $3) FROM counted";

/// $1 endpoint, $2 limit, $3 message id: of each copy among so many messages, its deliveries, place, when it is available and was sent.
pub(super) const QUEUED: &str = "\
    SELECT deliveries, place, available_at, sent_at FROM \
      (SELECT deliveries, place, available_at, sent_at, message_id FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
       WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1) ORDER BY available_at LIMIT $2) \
    WHERE message_id = $3";

/// Messages in all queues.
pub(super) const MESSAGES: &str = "\
    SELECT count(*) FROM hapax_queue_message INDEXED BY hapax_queue_message_available WHERE queue > 0";

/// $1 now. The number of a row behind all others, which is no message: queues begin with 1. It stays until the next one is
/// there, so that no number up to it is given again. Where the last row is such a one already, nothing is written.
pub(super) const MARK: &str = "\
    BEGIN IMMEDIATE; \
    INSERT INTO hapax_queue_message \
      (queue, available_at, token, deliveries, place, sent_at, first_at, message_id, envelope) \
      SELECT 0, $1, 0, 0, 0, $1, $1, '', x'' WHERE NOT EXISTS (SELECT 1 FROM hapax_queue_message \
        WHERE id = (SELECT max(id) FROM hapax_queue_message) AND queue = 0); \
    DELETE FROM hapax_queue_message WHERE id IN (SELECT m.id FROM hapax_queue_message AS m \
      INDEXED BY hapax_queue_message_available \
      WHERE m.queue = 0 AND m.id < (SELECT max(id) FROM hapax_queue_message)); \
    SELECT max(id) FROM hapax_queue_message; \
    COMMIT";
pub(super) const MARK_STATEMENTS: usize = 5;

/// $1 queue, $2 number: whether there is a message with this number or a lower one, due or not, leased or not. It is looked for in
/// the index alone, from what may be given first, which as a rule is what was sent first; where there is none, the whole queue has
/// been gone through. An index by number would make that short, and each message dearer.
pub(super) const IS_LEFT: &str = "\
    SELECT EXISTS (SELECT 1 FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
      WHERE queue = $1 AND id <= $2)";

/// $1 endpoint, $2 message id, $3 saga or empty, $4 destination or empty, $5 fingerprint, $6 attempts, $7 time, $8 reason,
/// $9 envelope.
pub(super) const LETTER_ADD: &str = "\
    INSERT INTO hapax_queue_dead_letter \
      (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";

/// $1 endpoint, $2 message id, $3 saga or empty, $4 destination or empty, $5 fingerprint.
pub(super) const LETTER_DISCARD: &str = "DELETE FROM hapax_queue_dead_letter \
    WHERE endpoint = $1 AND message_id = $2 AND saga = $3 AND destination = $4 AND fingerprint = $5";

/// $1 endpoint, $2 message id or null, $3 limit, $4 skip.
pub(super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope, sent_at, first_at FROM hapax_queue_dead_letter \
    WHERE endpoint = $1 AND ($2 IS NULL OR message_id = $2) ORDER BY id LIMIT $3 OFFSET $4";

/// $1 set aside at or before, $2 limit.
pub(super) const LETTER_PURGE: &str = "\
    DELETE FROM hapax_queue_dead_letter WHERE id IN (SELECT id FROM hapax_queue_dead_letter \
      INDEXED BY hapax_queue_dead_letter_time WHERE time <= $1 ORDER BY time LIMIT $2)";

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
