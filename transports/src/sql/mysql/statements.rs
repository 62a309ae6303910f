//! All SQL of the queue. `hapax.` in a text stands for the database and the prefix of the tables' names.
//!
//! What waits together is one text of several statements, which is one round trip, one transaction and one commit: what ends
//! a lease, what is sent, what is given. `@now` is the time of all its parts. The values in such a text are numbers and bytes
//! in hexadecimal digits, and nothing else; what is rare is prepared and has arguments (`?`).
//!
//! Each access names its index: statistics of a table that was empty must not make the server go through all messages, and
//! lock each of them. Rows are locked in the order of their numbers, so that groups of several processes do not lock each
//! other out as a rule.

mod letters;
mod ordered;
mod queues;
mod survey;

use std::collections::BTreeMap;

use hapax_stores::sql::mysql::wire::{Schema, Server, Text};
pub(super) use letters::{LETTER_ADD, LETTER_DISCARD, LETTER_LIST, LETTER_PURGE};
#[cfg(test)]
pub(super) use ordered::order_lock;
pub(super) use ordered::{WINDOW, ordered_candidates, ordered_give, ordered_keys, ordered_lock};
pub(super) use queues::{BACKLOG, IS_LEFT, MESSAGES, NEWEST, QUEUE_ADD, QUEUE_ID, abandon, subscribe, unsubscribe};
pub(super) use survey::{queue, queued};

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

/// A change that leaves nothing behind, and meets no other one: `nonce` is nobody else's.
pub(super) fn change(nonce: i64) -> [String; 2] {
    let id = nonce.saturating_neg().min(-1); // No message has such a number.
    [
        format!("INSERT INTO hapax.queue_given (id, queue, partition_key) VALUES ({id}, 0, '')"),
        format!("DELETE FROM hapax.queue_given WHERE id = {id}"),
    ]
}

/// What the role that runs the program needs.
pub(super) const GRANTS: &str = "\
    GRANT SELECT ON hapax.queue_migration TO ACCOUNT;\n\
    GRANT SELECT ON hapax.queue_meta TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE ON hapax.queue TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_subscription TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_given TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_dead_letter TO ACCOUNT;\n\
    GRANT SELECT, INSERT, UPDATE, DELETE ON hapax.queue_message TO ACCOUNT;\n";
