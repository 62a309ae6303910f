//! Queues: their numbers, who subscribes, what is in them.

/// When the newest message was sent.
pub(in super::super) const NEWEST: &str = "\
    SELECT sent_at FROM hapax_queue_message WHERE id = (SELECT max(id) FROM hapax_queue_message)";

/// $1 endpoint.
pub(in super::super) const QUEUE_ID: &str = "SELECT id FROM hapax_queue WHERE endpoint = $1";

/// $1 endpoint, $2 most queues, $3 types to subscribe to.
pub(in super::super) const CONNECT: &str = "\
    BEGIN IMMEDIATE; \
    INSERT INTO hapax_queue (endpoint) SELECT $1 WHERE (SELECT count(*) FROM hapax_queue) < $2 ON CONFLICT DO NOTHING; \
    INSERT INTO hapax_queue_subscription (type, queue) SELECT t.value, q.id \
      FROM json_each($3) AS t CROSS JOIN hapax_queue AS q ON q.endpoint = $1 WHERE true ON CONFLICT DO NOTHING; \
    SELECT id FROM hapax_queue WHERE endpoint = $1; \
    COMMIT";
pub(in super::super) const CONNECT_STATEMENTS: usize = 5;

/// $1 endpoint, $2 types.
pub(in super::super) const UNSUBSCRIBE: &str = "\
    DELETE FROM hapax_queue_subscription WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1) \
      AND type IN (SELECT value FROM json_each($2))";

/// $1 endpoint, $2 limit. The last but one statement tells how many.
pub(in super::super) const ABANDON: &str = "\
    BEGIN IMMEDIATE; \
    DELETE FROM hapax_queue_subscription WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1); \
    DELETE FROM hapax_queue_message WHERE id IN (SELECT m.id FROM hapax_queue_message AS m \
      INDEXED BY hapax_queue_message_available WHERE m.queue = (SELECT id FROM hapax_queue WHERE endpoint = $1) \
      ORDER BY m.available_at LIMIT $2); \
    COMMIT";
pub(in super::super) const ABANDON_STATEMENTS: usize = 4;

/// $1 endpoint.
pub(in super::super) const BACKLOG: &str = "\
    SELECT count(*) FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
    WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1)";

/// Messages in all queues.
pub(in super::super) const MESSAGES: &str = "\
    SELECT count(*) FROM hapax_queue_message INDEXED BY hapax_queue_message_available WHERE queue > 0";

/// $1 now. The number of a row behind all others, which is no message: queues begin with 1. It stays until the next one is
/// there, so that no number up to it is given again. Where the last row is such a one already, nothing is written.
pub(in super::super) const MARK: &str = "\
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
pub(in super::super) const MARK_STATEMENTS: usize = 5;

/// $1 queue, $2 number: whether there is a message with this number or a lower one, due or not, leased or not. It is looked for in
/// the index alone, from what may be given first, which as a rule is what was sent first; where there is none, the whole queue has
/// been gone through. An index by number would make that short, and each message dearer.
pub(in super::super) const IS_LEFT: &str = "\
    SELECT EXISTS (SELECT 1 FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
      WHERE queue = $1 AND id <= $2)";
