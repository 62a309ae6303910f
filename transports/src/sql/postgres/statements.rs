//! All SQL of the queue. `hapax.` in a text stands for the schema and the prefix of the tables' names.
//!
//! What waits together is one statement, which the server runs in a transaction of its own: what ends a lease, what is sent,
//! what is given. It is one round trip, one commit and one moment: [`WITH_NOW`] is the time of all its parts, so that no two
//! of them change the same row.
//!
//! What is given drives each access (`= ANY (ARRAY ..)`, `LATERAL .. OFFSET 0`): a plan that was made while the table was
//! empty must not turn that round and go through all messages. Rows are locked in the order of their numbers, so that groups
//! of several processes do not lock each other out as a rule.

mod letters;
mod ordered;
mod queues;
mod survey;

use hapax_stores::sql::postgres::wire::Schema;
pub(super) use letters::{LETTER_ADD, LETTER_DISCARD, LETTER_LIST, letter_purge};
pub(super) use ordered::{WINDOW, order_lock, take_ordered};
pub(super) use queues::{ABANDON, BACKLOG, IS_LEFT, MESSAGES, NEWEST, QUEUE_ADD, QUEUE_ID, SUBSCRIBE, UNSUBSCRIBE};
pub(super) use survey::{queue, queued};

/// The queue's tables.
pub(super) static SCHEMA: Schema = Schema {
    opening: "opening the PostgreSQL queue",
    remedy: "set `migrate(true)`, or apply `PostgresQueue::schema_sql` by hand",
    tables: ["queue_migration", "queue_meta"],
    version: "SELECT coalesce(max(version), 0), (SELECT value FROM hapax.queue_meta WHERE name = 'usable_from') \
              FROM hapax.queue_migration",
    rows: &[],
    framed: None,
    migrations: &[(1, include_str!("migrations/0001_initial.sql"))],
};

const WITH_NOW: &str = "n AS MATERIALIZED (SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now)";
const NOW: &str = "(SELECT now FROM n)";

/// What a group holds. Its arguments come in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Kinds {
    pub(super) ack: bool,
    pub(super) retry: bool,
    pub(super) set_aside: bool,
    pub(super) extend: bool,
    /// Of what is settled, something was given in the order of its key.
    pub(super) ordered: bool,
    pub(super) send: bool,
    pub(super) take: bool,
}

/// What a row of an answer is about, in its first column. The others are `token, id, deliveries, due_at, envelope, key`.
pub(super) mod row {
    /// Settled or extended: token, id.
    pub(in super::super) const ENDED: i32 = 0;
    /// Sent: the queue as the id; once for each queue.
    pub(in super::super) const SENT: i32 = 1;
    /// Given: all columns.
    pub(in super::super) const GIVEN: i32 = 2;
    /// How far a take has looked: the server's time as the token, how many were looked at as the deliveries, of the last of
    /// them the number as the id and `due_at`, and some key if there are others that may be given.
    pub(in super::super) const LOOKED: i32 = 3;
    /// How many milliseconds a take has taken, as the token.
    pub(in super::super) const TOOK: i32 = 4;
}

/// What becomes of a lease, as in the array.
pub(super) mod end {
    pub(in super::super) const ACK: i16 = 0;
    pub(in super::super) const RETRY: i16 = 1;
    pub(in super::super) const SET_ASIDE: i16 = 2;
    pub(in super::super) const EXTEND: i16 = 3;
}

/// `row::GIVEN` of a message `m` that is taken now. `ids` gives those that are locked.
fn taken(ids: &str, token: usize, lease: usize) -> String {
    format!(
        "g AS (UPDATE hapax.queue_message AS m SET leased_until = {NOW} + ${lease}::bigint, token = ${token}::bigint, \
           deliveries = m.deliveries + 1, first_at = coalesce(m.first_at, {NOW}) \
         WHERE m.id = ANY (ARRAY({ids})) RETURNING m.token, m.id, m.deliveries, m.due_at, m.envelope, m.key)"
    )
}

const GIVEN_ROWS: &str = "SELECT 2, token, id, deliveries, due_at, envelope, key FROM g";

fn looked(at: &str, is_more: &str) -> String {
    format!(
        "SELECT 3, {NOW}, (SELECT id FROM {at} ORDER BY due_at DESC, id DESC LIMIT 1), (SELECT count(*) FROM {at}), \
           (SELECT due_at FROM {at} ORDER BY due_at DESC, id DESC LIMIT 1), NULL::bytea, CASE WHEN {is_more} THEN 'more' END \
         UNION ALL SELECT 4, (date_part('epoch', clock_timestamp()) * 1000)::bigint - {NOW}, NULL::bigint, NULL::bigint, \
           NULL::bigint, NULL::bytea, NULL::text"
    )
}

/// One group.
///
/// Of what ends or extends leases: arrays of message numbers, tokens, [`end`]s, delays and 1 for what does not count; the
/// different ones of the tokens; and if there is something to set aside, arrays of endpoints and reasons, in the order of the
/// others; if there is something to extend, the lease. Of what is sent: arrays of queues or nulls, topics or nulls, due times
/// or 0, keys, message ids, envelopes. Of a take: queue, `due_at` and number to begin after, how many, how many bytes, token,
/// lease.
///
/// That a row still is what the snapshot said is looked at again when it is changed (its token, its lease): who has waited
/// for its lock sees the row as it is by then.
pub(super) fn group(kinds: Kinds) -> String {
    let (mut parts, mut rows) = (vec![WITH_NOW.to_owned()], Vec::new());
    let mut next = 1;
    let mut arguments = |count: usize| {
        let first = next;
        next += count;
        first
    };
    if kinds.ack || kinds.retry || kinds.set_aside || kinds.extend {
        ends(kinds, &mut arguments, &mut parts, &mut rows);
    }
    if kinds.send {
        let [queues, topics, dues, keys, ids, envelopes] = std::array::from_fn(|at| at).map(|_: usize| arguments(1));
        parts.push(format!(
            "s AS (INSERT INTO hapax.queue_message \
               (queue, due_at, leased_until, token, deliveries, sent_at, key, message_id, envelope) \
             SELECT coalesce(r.queue, s.queue), greatest({NOW}, r.due), 0, 0, 0, {NOW}, r.key, r.message_id, r.envelope \
             FROM unnest(${queues}::bigint[], ${topics}::text[], ${dues}::bigint[], ${keys}::text[], ${ids}::text[], \
               ${envelopes}::bytea[]) WITH ORDINALITY AS r (queue, topic, due, key, message_id, envelope, i) \
             LEFT JOIN hapax.queue_subscription AS s ON s.type = r.topic \
             WHERE coalesce(r.queue, s.queue) IS NOT NULL ORDER BY r.i RETURNING queue)"
        ));
        rows.push(
            "SELECT DISTINCT 1, NULL::bigint, queue, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text FROM s"
                .to_owned(),
        );
    }
    if kinds.take {
        let [queue, due, id, max, bytes, token, lease] = std::array::from_fn(|at| at).map(|_: usize| arguments(1));
        parts.push(format!(
            "t AS MATERIALIZED (SELECT m.id, m.due_at, octet_length(m.envelope) AS bytes FROM hapax.queue_message AS m \
             WHERE m.queue = ${queue}::bigint AND (m.due_at, m.id) > (${due}::bigint, ${id}::bigint) \
               AND m.due_at <= {NOW} AND m.leased_until <= {NOW} \
             ORDER BY m.due_at, m.id LIMIT ${max}::bigint FOR UPDATE SKIP LOCKED), \
             p AS MATERIALIZED (SELECT id, due_at FROM (SELECT id, due_at, sum(bytes) OVER \
               (ORDER BY due_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM t) AS t \
               WHERE coalesce(before, 0) < ${bytes}::bigint)"
        ));
        parts.push(taken("SELECT id FROM p", token, lease));
        rows.push(GIVEN_ROWS.to_owned());
        let all = "(SELECT count(*) FROM t)";
        rows.push(looked("p", &format!("{all} >= ${max}::bigint OR {all} > (SELECT count(*) FROM p)")));
    }
    format!("WITH {} {}", parts.join(", "), rows.join(" UNION ALL "))
}

/// `h` is what ends or goes on, as the snapshot shows it; each kind takes its part of it.
fn ends(kinds: Kinds, arguments: &mut dyn FnMut(usize) -> usize, parts: &mut Vec<String>, rows: &mut Vec<String>) {
    let [ids, tokens, whats, delays, uncounted, distinct] = std::array::from_fn(|at| at).map(|_: usize| arguments(1));
    parts.push(format!(
        "h AS MATERIALIZED (SELECT r.id, r.what, r.delay, r.uncounted, r.i FROM unnest(${ids}::bigint[], \
           ${tokens}::bigint[], ${whats}::smallint[], ${delays}::bigint[], ${uncounted}::bigint[]) WITH ORDINALITY \
           AS r (id, token, what, delay, uncounted, i) CROSS JOIN LATERAL (SELECT FROM hapax.queue_message AS m \
           WHERE m.id = r.id AND m.token = r.token OFFSET 0) AS m)"
    ));
    let held = |what: i16| {
        format!(
            "m.id = ANY (ARRAY(SELECT id FROM h WHERE what = {what})) AND m.token = ANY (${distinct}::bigint[]) \
             AND m.leased_until > {NOW} RETURNING m.id, m.token"
        )
    };
    let mut ended = Vec::new();
    if kinds.ack {
        parts.push(format!("a AS (DELETE FROM hapax.queue_message AS m WHERE {})", held(end::ACK)));
        ended.push("a");
    }
    if kinds.retry {
        parts.push(format!(
            "r AS (UPDATE hapax.queue_message AS m SET leased_until = 0, \
               due_at = {NOW} + (SELECT h.delay FROM h WHERE h.id = m.id), \
               deliveries = m.deliveries - (SELECT h.uncounted FROM h WHERE h.id = m.id) WHERE {})",
            held(end::RETRY)
        ));
        ended.push("r");
    }
    if kinds.set_aside {
        let (endpoints, reasons) = (arguments(1), arguments(1));
        parts.push(format!(
            "x AS (DELETE FROM hapax.queue_message AS m WHERE {}, m.message_id, m.deliveries, m.sent_at, m.first_at, \
               m.envelope), \
             y AS (INSERT INTO hapax.queue_dead_letter \
               (endpoint, message_id, saga, destination, attempts, sent_at, first_at, time, reason, envelope) \
             SELECT (${endpoints}::text[])[h.i], x.message_id, '', '', x.deliveries, x.sent_at, x.first_at, {NOW}, \
               (${reasons}::text[])[h.i], x.envelope FROM x JOIN h ON h.id = x.id ORDER BY h.i)",
            held(end::SET_ASIDE)
        ));
        ended.push("x");
    }
    if kinds.ordered && !ended.is_empty() {
        let all: Vec<String> = ended.iter().map(|of| format!("SELECT id FROM {of}")).collect();
        parts.push(format!(
            "o AS (DELETE FROM hapax.queue_given AS f WHERE f.id = ANY (ARRAY({})))",
            all.join(" UNION ALL ")
        ));
    }
    if kinds.extend {
        let lease = arguments(1);
        parts.push(format!(
            "e AS (UPDATE hapax.queue_message AS m SET leased_until = {NOW} + ${lease}::bigint WHERE {})",
            held(end::EXTEND)
        ));
        ended.push("e");
    }
    rows.extend(
        ended
            .iter()
            .map(|of| format!("SELECT 0, token, id, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text FROM {of}")),
    );
}

/// `$1` queues, `$2` `due_at`s and `$3` numbers to begin after: whether something may be given, and how many milliseconds it
/// is until the next one is due.
pub(super) fn look() -> String {
    format!(
        "WITH {WITH_NOW} SELECT q.queue, EXISTS (SELECT FROM hapax.queue_message AS m WHERE m.queue = q.queue \
             AND (m.due_at, m.id) > (q.due, q.id) AND m.due_at <= {NOW} AND m.leased_until <= {NOW}), \
           (SELECT m.due_at FROM hapax.queue_message AS m WHERE m.queue = q.queue AND m.due_at > {NOW} \
             ORDER BY m.due_at LIMIT 1) - {NOW}, {NOW} \
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS q (queue, due, id)"
    )
}

/// `$1` channel, `$2` payload. It need not be on the disk: with the server, all who listen are gone. So it holds the lock
/// that the server puts around all commits that notify for microseconds, and never for as long as a disk takes.
pub(super) const TELL: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)";

/// What the role that runs the program needs, but for the schema's own name.
pub(super) const GRANTS: &str = "\
    GRANT USAGE ON SCHEMA {schema} TO {role};\n\
    GRANT SELECT ON hapax.queue_migration, hapax.queue_meta TO {role};\n\
    GRANT SELECT, INSERT ON hapax.queue TO {role};\n\
    GRANT SELECT, INSERT, DELETE ON hapax.queue_subscription, hapax.queue_given, hapax.queue_dead_letter TO {role};\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_message TO {role};\n";

/// Every text, for the test that prepares them.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    let mut all: Vec<String> = groups().into_iter().map(group).collect();
    all.extend([take_ordered(), look(), letter_purge(), order_lock(1), SCHEMA.version.to_owned()]);
    let others = [
        TELL,
        QUEUE_ID,
        QUEUE_ADD,
        SUBSCRIBE,
        UNSUBSCRIBE,
        ABANDON,
        BACKLOG,
        MESSAGES,
        NEWEST,
        IS_LEFT,
        LETTER_ADD,
        LETTER_LIST,
        LETTER_DISCARD,
    ];
    all.extend(others.map(str::to_owned));
    all
}

/// Everything that a group may hold.
#[cfg(test)]
pub(super) fn groups() -> Vec<Kinds> {
    let bit = |bits: u8, at: u8| bits & (1 << at) != 0;
    let kinds = |bits: u8| Kinds {
        ack: bit(bits, 0),
        retry: bit(bits, 1),
        set_aside: bit(bits, 2),
        extend: bit(bits, 3),
        ordered: bit(bits, 4),
        send: bit(bits, 5),
        take: bit(bits, 6),
    };
    let holds = |kinds: &Kinds| {
        let ends = kinds.ack || kinds.retry || kinds.set_aside;
        (ends || kinds.extend || kinds.send || kinds.take) && (ends || !kinds.ordered)
    };
    (0..128).map(kinds).filter(holds).collect()
}
