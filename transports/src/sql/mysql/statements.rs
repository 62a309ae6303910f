//! All SQL of the queue. `hapax.` in a text stands for the database and the prefix of the tables' names.
//!
//! What waits together is one text of several statements, which is one round trip, one transaction and one commit: what ends
//! a lease, what is sent, what is given. `@now` is the time of all its parts. The values in such a text are numbers and bytes
//! in hexadecimal digits, and nothing else; what is rare is prepared and has arguments (`?`).
//!
//! Each access names its index: statistics of a table that was empty must not make the server go through all messages, and
//! lock each of them. Rows are locked in the order of their numbers, so that groups of several processes do not lock each
//! other out as a rule.

use std::{collections::BTreeMap, sync::Arc};

use hapax_stores::sql::mysql::wire::{Schema, Server, Text};

use super::{
    super::served::{
        asks::{Lease, Message, Wanted, What},
        signals::Position,
    },
    arguments::{as_i64, bytes, list},
};

/// The queue's tables.
pub(super) static SCHEMA: Schema = Schema {
    opening: "opening the MariaDB queue",
    remedy: "set `migrate(true)`, or apply `MySqlQueue::schema_sql` by hand",
    tables: ["queue_migration", "queue_meta"],
    version: "SELECT coalesce(max(version), 0), (SELECT value FROM hapax.queue_meta WHERE name = 'usable_from') \
              FROM hapax.queue_migration",
    rows: &[],
    framed: None,
    migrations: &[(1, include_str!("migrations/0001_initial.sql"))],
};

/// By the server's clock, whatever the session's time zone: some have an hour that comes twice.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000";
/// The time of all statements of a text.
pub(super) const SET_NOW: &str = "SET @now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000";

/// Values of one list: from a thousand on MariaDB makes a table of it and joins that, in any order.
pub(super) const LIST_MAX: usize = 900;

/// What a row of an answer is about, in its first column.
pub(super) mod row {
    /// Settled or extended: token, id.
    pub(in super::super) const ENDED: i64 = 0;
    /// Something was published: a queue that it went to, once for each.
    pub(in super::super) const SENT: i64 = 1;
    /// Given: `token, id, deliveries, due_at, envelope, partition_key`.
    pub(in super::super) const GIVEN: i64 = 2;
    /// A take: the server's time, how many it has looked at, how many milliseconds it has taken.
    pub(in super::super) const LOOKED: i64 = 3;
    /// May be given: `id, due_at, bytes, partition_key`.
    pub(in super::super) const CANDIDATE: i64 = 4;
    /// The same, of a key of which something was settled.
    pub(in super::super) const FREED: i64 = 5;
    /// A key: itself, 1 if one of its messages is under a lease, the first that holds up those behind it.
    pub(in super::super) const KEY: i64 = 6;
}

/// What is asked of one group, in the order in which it is done: what ends comes before what begins, so that a receiver may
/// be given what was sent, or what became free, in the same commit.
pub(super) struct Group<'s> {
    server: &'s Server,
    text: Text,
}

impl<'s> Group<'s> {
    pub(super) fn new(server: &'s Server, bytes: usize) -> Self {
        let mut text = Text::with_capacity(bytes);
        text.sql(SET_NOW);
        Self { server, text }
    }

    pub(super) fn text(self) -> Text {
        self.text
    }

    /// Another statement.
    fn push(&mut self, statement: &str) {
        self.text.end().sql(&self.server.text(statement));
    }

    /// What ends leases, or begins them anew, sorted by their numbers and each once.
    ///
    /// The first statement locks the rows of those that are still held, and tells which they are. What is not held then,
    /// never will be again: so the others change the same ones.
    pub(super) fn ends(&mut self, leases: &[&Lease]) {
        for leases in leases.chunks(LIST_MAX) {
            self.push(&format!(
                "SELECT {}, m.token, m.id FROM {} WHERE {} ORDER BY m.id FOR UPDATE",
                row::ENDED,
                MESSAGE_BY_ID,
                held(leases)
            ));
            let is_over = |lease: &&&Lease| !matches!(lease.what, What::Extend { .. });
            let ordered: Vec<&Lease> = leases.iter().filter(|l| l.ordered).filter(is_over).copied().collect();
            if !ordered.is_empty() {
                self.push(&format!(
                    "DELETE f FROM {MESSAGE_BY_ID} STRAIGHT_JOIN {GIVEN_OF_IT} WHERE {}",
                    held(&ordered)
                ));
            }
            for lease in leases {
                if let What::SetAside { endpoint, reason } = &lease.what {
                    self.set_aside(lease, endpoint, reason);
                }
            }
            let gone = |lease: &&&Lease| matches!(lease.what, What::Ack | What::SetAside { .. });
            let gone: Vec<&Lease> = leases.iter().filter(gone).copied().collect();
            if !gone.is_empty() {
                self.push(&format!("DELETE m FROM {MESSAGE_BY_ID} WHERE {}", held(&gone)));
            }
            self.change(leases);
        }
    }

    fn set_aside(&mut self, lease: &Lease, endpoint: &str, reason: &str) {
        self.push(&format!(
            "INSERT INTO hapax.queue_dead_letter \
               (endpoint, message_id, saga, destination, attempts, sent_at, first_at, time, reason, envelope) \
             SELECT {}, m.message_id, '', '', m.deliveries, m.sent_at, NULLIF(m.first_at, 0), @now, {}, m.envelope \
             FROM {MESSAGE_BY_ID} WHERE {}",
            bytes(endpoint),
            bytes(reason),
            held(&[lease])
        ));
    }

    /// Retries and extensions: one statement for all of which the same becomes.
    fn change(&mut self, leases: &[&Lease]) {
        let mut changes: BTreeMap<String, Vec<&Lease>> = BTreeMap::new();
        for lease in leases {
            let set = match lease.what {
                What::Retry { delay, uncounted } => {
                    format!("m.due_at = @now + {delay}, m.leased_until = 0, m.deliveries = m.deliveries - {uncounted}")
                }
                What::Extend { lease } => format!("m.leased_until = @now + {lease}"),
                What::Ack | What::SetAside { .. } => continue,
            };
            changes.entry(set).or_default().push(lease);
        }
        for (set, leases) in changes {
            self.push(&format!("UPDATE {MESSAGE_BY_ID} SET {set} WHERE {}", held(&leases)));
        }
    }

    /// Messages, in their order. Who subscribes to a topic is read by the statement that writes the message.
    pub(super) fn send(&mut self, messages: &[&Message]) {
        const INTO: &str = "INSERT INTO hapax.queue_message \
                            (queue, due_at, sent_at, bytes, partition_key, message_id, envelope) ";
        const OF_TOPIC: &str = " FROM hapax.queue_subscription AS s WHERE s.type = ";
        let mut is_open = false;
        for message in messages {
            match (&message.topic, message.queue) {
                (Some(topic), _) => {
                    self.push(INTO);
                    push_message(self.text.sql("SELECT s.queue"), message);
                    self.text.sql(&self.server.text(OF_TOPIC)).bytes(topic.as_bytes());
                    is_open = false;
                }
                (None, Some(queue)) => {
                    if std::mem::replace(&mut is_open, true) {
                        self.text.sql(", (");
                    } else {
                        self.push(INTO);
                        self.text.sql("VALUES (");
                    }
                    push_message(self.text.number(queue), message);
                    self.text.sql(")");
                }
                (None, None) => {}
            }
        }
        let mut topics: Vec<&str> = messages.iter().filter_map(|message| message.topic.as_deref()).collect();
        topics.sort_unstable();
        topics.dedup();
        for topics in topics.chunks(LIST_MAX) {
            self.push(&format!(
                "SELECT DISTINCT {}, s.queue FROM hapax.queue_subscription AS s WHERE s.type IN ({})",
                row::SENT,
                list(topics.iter().map(bytes))
            ));
        }
    }

    /// Messages that lie behind the place where the take begins. Rows that others have locked are passed over.
    pub(super) fn take(&mut self, Wanted { queue, from, max, bytes_max, token, lease }: Wanted) {
        let candidates = candidates(queue, from, "@now");
        self.push(&format!(
            "SELECT COUNT(*), JSON_ARRAYAGG(IF(COALESCE(p.ahead, 0) < {bytes_max}, p.id, NULL)) INTO @all, @ids FROM \
               (SELECT t.id, SUM(t.bytes) OVER (ORDER BY t.due_at, t.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) \
                 AS ahead FROM (SELECT m.id, m.due_at, m.bytes FROM {candidates} \
                 ORDER BY m.due_at, m.id LIMIT {max} FOR UPDATE SKIP LOCKED) AS t) AS p"
        ));
        let join = format!(
            "JSON_TABLE(@ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS j STRAIGHT_JOIN {MESSAGE_BY_ID} ON m.id = j.id"
        );
        // Nothing is given that was not just locked, whatever the list holds.
        let free = format!("m.queue = {queue} AND m.due_at <= @now AND m.leased_until <= @now");
        self.push(&format!("UPDATE {join} SET {} WHERE {free}", given(token, lease)));
        self.push(&format!(
            "SELECT {}, m.token, m.id, m.deliveries, m.due_at, m.envelope, m.partition_key FROM {join} \
             WHERE m.token = {token}",
            row::GIVEN
        ));
        self.push(&format!("SELECT {}, @now, @all, {NOW} - @now", row::LOOKED));
    }
}

/// By their numbers alone, which the condition gives.
const MESSAGE_BY_ID: &str = "hapax.queue_message AS m FORCE INDEX (PRIMARY)";
const MESSAGE_DUE: &str = "hapax.queue_message AS m FORCE INDEX (due)";

const GIVEN_OF_IT: &str = "hapax.queue_given AS f FORCE INDEX (PRIMARY) ON f.id = m.id";

/// An ack that is a group by itself, in one statement and without a transaction around it. `?` number, token. Whether
/// anything is gone tells whether the lease was held.
pub(super) fn ack_alone(ordered: bool) -> String {
    let (rows, join) = if ordered { ("m, f", format!(" LEFT JOIN {GIVEN_OF_IT}")) } else { ("m", String::new()) };
    format!("DELETE {rows} FROM {MESSAGE_BY_ID}{join} WHERE m.id = ? AND m.token = ? AND m.leased_until > {NOW}")
}

/// A message to an endpoint that is a group by itself. `?` queue, due time or 0, bytes, key or null, message id, envelope.
pub(super) fn send_alone() -> String {
    format!(
        "INSERT INTO hapax.queue_message (queue, due_at, sent_at, bytes, partition_key, message_id, envelope) \
         VALUES (?, GREATEST({NOW}, ?), {NOW}, ?, ?, ?, ?)"
    )
}

/// Those of `leases` that are held. A number and its token are looked for as one text: a list of pairs would be gone through
/// from its beginning for each row.
fn held(leases: &[&Lease]) -> String {
    let ids = list(leases.iter().map(|lease| lease.id));
    let pairs = list(leases.iter().map(|lease| format!("'{}:{}'", lease.id, lease.token)));
    format!("m.id IN ({ids}) AND CONCAT(m.id, ':', m.token) IN ({pairs}) AND m.leased_until > @now")
}

/// Due, under no lease, behind `from` in the order of the index. As ranges of the index and not as a comparison of pairs,
/// which would have it gone through from its beginning.
fn candidates(queue: i64, Position { due, id }: Position, now: &str) -> String {
    format!(
        "{MESSAGE_DUE} WHERE m.queue = {queue} AND (m.due_at = {due} AND m.id > {id} OR m.due_at > {due}) \
         AND m.due_at <= {now} AND m.leased_until <= {now}"
    )
}

fn given(token: i64, lease: i64) -> String {
    format!(
        "m.leased_until = @now + {lease}, m.token = {token}, m.deliveries = m.deliveries + 1, \
         m.first_at = IF(m.first_at = 0, @now, m.first_at)"
    )
}

/// What comes after the queue.
fn push_message(text: &mut Text, message: &Message) {
    match message.due {
        0 => text.sql(", @now, @now, "),
        due => text.sql(", GREATEST(@now, ").number(due).sql("), @now, "),
    };
    text.number(as_i64(message.envelope.len())).sql(", ");
    text.bytes_or_null(message.key.as_ref().map(String::as_bytes)).sql(", ");
    text.bytes(message.id.as_bytes()).sql(", ").bytes(&message.envelope);
}

/// Messages that one look of an ordered take goes through at most: a long line behind one key is passed in a few steps, and
/// none of them holds up other processes for long.
pub(super) const WINDOW: usize = 1000;

/// Messages of keys of which something was settled here that one take looks at, if each key has so many: they are listed in a
/// text, which must not outgrow what the smallest server takes.
const FREED_ROWS: usize = 2048;

/// The first texts of a take in the order of keys. Takes in one queue are made one after the other: each sees what those before
/// have given. Then come the candidates: the first behind the place where the take begins and, of each key of which something
/// was settled here, as many as are wanted, or its share.
pub(super) fn ordered_candidates(wanted: Wanted, freed: &[Arc<str>]) -> Vec<String> {
    const COLUMNS: &str = "m.id, m.due_at, m.bytes, m.partition_key";
    let Wanted { queue, from, max, .. } = wanted;
    let share = max.min(FREED_ROWS / freed.len().max(1)).max(1);
    let window = format!(
        "SELECT {}, {COLUMNS} FROM {} ORDER BY m.due_at, m.id LIMIT {WINDOW}",
        row::CANDIDATE,
        candidates(queue, from, "@now")
    );
    let of_key = |key: &Arc<str>| {
        format!(
            "SELECT {}, {COLUMNS} FROM {MESSAGE_KEYED} WHERE m.queue = {queue} AND m.partition_key = {} \
             AND m.due_at <= @now AND m.leased_until <= @now ORDER BY m.id LIMIT {share}",
            row::FREED,
            bytes(&**key)
        )
    };
    let mut texts = vec![order_lock(queue), SET_NOW.to_owned(), window];
    texts.extend(freed.iter().map(of_key));
    texts.push(format!("SELECT {}, @now, 0, {NOW} - @now", row::LOOKED));
    texts
}

/// Held until the commit, and taken in a statement of its own, since one sees what was committed before it began.
pub(super) fn order_lock(queue: i64) -> String {
    format!("SELECT q.id INTO @queue FROM hapax.queue AS q WHERE q.id = {queue} FOR UPDATE")
}

const MESSAGE_KEYED: &str = "hapax.queue_message AS m FORCE INDEX (keyed)";

/// Of the keys of the messages `heads`: whether one is under a lease (who has that one may be at work, though it was sent
/// later than one that has become due since), and the first that holds up those behind it: open and none of `candidates`.
/// What was never given and is not due yet holds up nobody.
pub(super) fn ordered_keys(queue: i64, heads: &[i64], candidates: &[i64]) -> Vec<String> {
    let others: String = candidates.chunks(LIST_MAX).map(|ids| format!(" AND m.id NOT IN ({})", list(ids))).collect();
    let of = |heads: &[i64]| {
        format!(
            "SELECT {}, k.partition_key, EXISTS (SELECT 1 FROM hapax.queue_given AS f FORCE INDEX (keyed) \
               STRAIGHT_JOIN hapax.queue_message AS g FORCE INDEX (PRIMARY) ON g.id = f.id WHERE f.queue = {queue} \
               AND f.partition_key = k.partition_key AND g.leased_until > @now), \
             (SELECT m.id FROM {MESSAGE_KEYED} WHERE m.queue = {queue} AND m.partition_key = k.partition_key \
               AND NOT (m.first_at = 0 AND m.due_at > @now){others} ORDER BY m.id LIMIT 1) \
             FROM hapax.queue_message AS k FORCE INDEX (PRIMARY) WHERE k.id IN ({})",
            row::KEY,
            list(heads)
        )
    };
    heads.chunks(LIST_MAX).map(of).collect()
}

/// Locks those of `ids`, in any order, that still may be given and that nobody else has locked.
pub(super) fn ordered_lock(ids: &[i64], token: i64) -> Vec<String> {
    let of = |ids: &[i64]| {
        format!(
            "SELECT {}, {token}, m.id, m.deliveries + 1, m.due_at, m.envelope, m.partition_key FROM {MESSAGE_BY_ID} \
             WHERE m.id IN ({}) AND m.due_at <= @now AND m.leased_until <= @now FOR UPDATE SKIP LOCKED",
            row::GIVEN,
            list(ids)
        )
    };
    ids.chunks(LIST_MAX).map(of).collect()
}

/// The last: gives those of `ids`, which are locked, and writes down which of them have keys.
pub(super) fn ordered_give(wanted: Wanted, ids: &[i64], keyed: &[(i64, &[u8])]) -> Vec<String> {
    let Wanted { queue, token, lease, .. } = wanted;
    let of = |ids: &[i64]| format!("UPDATE {MESSAGE_BY_ID} SET {} WHERE m.id IN ({})", given(token, lease), list(ids));
    let mut texts: Vec<String> = ids.chunks(LIST_MAX).map(of).collect();
    if !keyed.is_empty() {
        let rows = keyed.iter().map(|(id, key)| format!("({id}, {queue}, {})", bytes(key)));
        texts.push(format!(
            "INSERT INTO hapax.queue_given (id, queue, partition_key) VALUES {} ON DUPLICATE KEY UPDATE id = id",
            list(rows)
        ));
    }
    texts
}

/// Of each queue, behind a place: whether something may be given, how many milliseconds it is until the next one is due, and
/// the server's time.
pub(super) fn look(queues: &[(i64, Position)]) -> String {
    let of = |(queue, from): &(i64, Position)| {
        format!(
            "SELECT {queue}, EXISTS (SELECT 1 FROM {}), (SELECT m.due_at FROM {MESSAGE_DUE} \
             WHERE m.queue = {queue} AND m.due_at > {NOW} ORDER BY m.due_at LIMIT 1) - ({NOW}), {NOW}",
            candidates(*queue, *from, NOW)
        )
    };
    queues.iter().map(of).collect::<Vec<String>>().join(" UNION ALL ")
}

/// `?` endpoint.
pub(super) const QUEUE_ID: &str = "SELECT id FROM hapax.queue WHERE endpoint = ?";

/// `?` endpoint, most queues.
pub(super) const QUEUE_ADD: &str = "\
    INSERT INTO hapax.queue (endpoint) SELECT ? FROM DUAL WHERE (SELECT COUNT(*) FROM hapax.queue AS q) < ? \
    ON DUPLICATE KEY UPDATE id = id";

pub(super) fn subscribe(queue: i64, types: &[&str]) -> String {
    let rows = types.iter().map(|of| format!("({}, {queue})", bytes(of)));
    format!(
        "INSERT INTO hapax.queue_subscription (type, queue) VALUES {} ON DUPLICATE KEY UPDATE queue = queue",
        list(rows)
    )
}

pub(super) fn unsubscribe(endpoint: &str, types: &[&str]) -> String {
    format!(
        "DELETE s FROM hapax.queue_subscription AS s WHERE s.type IN ({}) \
         AND s.queue = (SELECT q.id FROM hapax.queue AS q WHERE q.endpoint = {})",
        list(types.iter().map(bytes)),
        bytes(endpoint)
    )
}

/// A change that leaves nothing behind, and meets no other one: `nonce` is nobody else's.
pub(super) fn change(nonce: i64) -> [String; 2] {
    let id = nonce.saturating_neg().min(-1); // No message has such a number.
    [
        format!("INSERT INTO hapax.queue_given (id, queue, partition_key) VALUES ({id}, 0, '')"),
        format!("DELETE FROM hapax.queue_given WHERE id = {id}"),
    ]
}

/// The third tells how many messages.
pub(super) fn abandon(endpoint: &str, limit: usize) -> Vec<String> {
    let queue = format!("(SELECT q.id FROM hapax.queue AS q WHERE q.endpoint = {})", bytes(endpoint));
    vec![
        format!("DELETE s FROM hapax.queue_subscription AS s WHERE s.queue = {queue}"),
        format!("SET @queue = {queue}"),
        format!("DELETE FROM hapax.queue_message WHERE queue = @queue ORDER BY due_at, id LIMIT {limit}"),
        format!(
            "DELETE f FROM hapax.queue_given AS f FORCE INDEX (keyed) LEFT JOIN {MESSAGE_BY_ID} ON m.id = f.id \
             WHERE f.queue = @queue AND m.id IS NULL"
        ),
    ]
}

/// `?` endpoint.
pub(super) const BACKLOG: &str = "\
    SELECT COUNT(*) FROM hapax.queue_message WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = ?)";

/// `?` endpoint, limit: how many messages; of these, how many under a lease.
pub(super) fn queue() -> String {
    format!(
        "SELECT COUNT(*), CAST(COALESCE(SUM(leased_until > {NOW}), 0) AS SIGNED) FROM \
           (SELECT leased_until FROM hapax.queue_message FORCE INDEX (due) \
            WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = ?) ORDER BY due_at, id LIMIT ?) AS m"
    )
}

/// `?` endpoint, limit, message id: of each copy among so many messages, its deliveries, when it is due, when its lease ends, when it was sent;
/// and the server's time.
pub(super) fn queued() -> String {
    format!(
        "SELECT deliveries, due_at, leased_until, sent_at, CAST({NOW} AS SIGNED) FROM \
           (SELECT deliveries, due_at, leased_until, sent_at, message_id FROM hapax.queue_message FORCE INDEX (due) \
            WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = ?) ORDER BY due_at, id LIMIT ?) AS m \
         WHERE message_id = ?"
    )
}

/// Messages in all queues.
pub(super) const MESSAGES: &str = "SELECT COUNT(*) FROM hapax.queue_message";

/// The highest number of any queue: that of one queue would have to be looked for.
pub(super) const NEWEST: &str = "SELECT CAST(coalesce(MAX(id), 0) AS SIGNED) FROM hapax.queue_message";

/// `?` queue, number: whether there is a message with this number or a lower one, due or not, leased or not. It is looked for in the
/// index alone, from what is due first, which as a rule is what was sent first; where there is none, the whole queue has been gone
/// through. An index by number would make that short, and each message dearer.
pub(super) const IS_LEFT: &str = "\
    SELECT EXISTS (SELECT 1 FROM hapax.queue_message AS m FORCE INDEX (due) WHERE m.queue = ? AND m.id <= ?)";

/// `?` endpoint, message id, saga or empty, destination or empty, fingerprint, attempts, time, reason, envelope.
pub(super) const LETTER_ADD: &str = "\
    INSERT INTO hapax.queue_dead_letter \
      (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE id = id";

/// `?` endpoint, message id, saga or empty, destination or empty, fingerprint.
pub(super) const LETTER_DISCARD: &str = "DELETE FROM hapax.queue_dead_letter \
     WHERE endpoint = ? AND message_id = ? AND saga = ? AND destination = ? AND fingerprint = ?";

/// `?` endpoint, message id or null, the same again, limit, skip.
pub(super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope, sent_at, first_at \
    FROM hapax.queue_dead_letter FORCE INDEX (listed) \
    WHERE endpoint = ? AND (? IS NULL OR message_id = ?) ORDER BY id LIMIT ? OFFSET ?";

/// `?` age in milliseconds, limit.
pub(super) const LETTER_PURGE: &str = "\
    DELETE FROM hapax.queue_dead_letter \
    WHERE time <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 - ? ORDER BY time LIMIT ?";

/// What the role that runs the program needs.
pub(super) const GRANTS: &str = "\
    GRANT SELECT ON hapax.queue_migration TO ACCOUNT;\n\
    GRANT SELECT ON hapax.queue_meta TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE ON hapax.queue TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_subscription TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_given TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_dead_letter TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_message TO ACCOUNT;\n";
