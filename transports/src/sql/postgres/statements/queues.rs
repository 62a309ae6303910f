//! Queues: their numbers, who subscribes, what is in them.

/// `$1` endpoint.
pub(in super::super) const QUEUE_ID: &str = "SELECT id FROM hapax.queue WHERE endpoint = $1";

/// `$1` endpoint, `$2` most queues.
pub(in super::super) const QUEUE_ADD: &str = "\
    INSERT INTO hapax.queue (endpoint) SELECT $1::text WHERE (SELECT count(*) FROM hapax.queue) < $2::bigint \
    ON CONFLICT DO NOTHING";

/// `$1` queue, `$2` types.
pub(in super::super) const SUBSCRIBE: &str = "\
    INSERT INTO hapax.queue_subscription (type, queue) SELECT t.type, $1::bigint FROM unnest($2::text[]) AS t (type) \
    ORDER BY t.type ON CONFLICT DO NOTHING";

/// `$1` endpoint, `$2` types.
pub(in super::super) const UNSUBSCRIBE: &str = "\
    DELETE FROM hapax.queue_subscription WHERE type = ANY ($2::text[]) \
      AND queue = (SELECT id FROM hapax.queue WHERE endpoint = $1)";

/// `$1` endpoint, `$2` limit. One row: how many.
pub(in super::super) const ABANDON: &str = "\
    WITH q AS MATERIALIZED (SELECT id FROM hapax.queue WHERE endpoint = $1), \
      s AS (DELETE FROM hapax.queue_subscription WHERE queue = (SELECT id FROM q)), \
      m AS (DELETE FROM hapax.queue_message AS m WHERE m.id = ANY (ARRAY(SELECT m.id FROM hapax.queue_message AS m \
        WHERE m.queue = (SELECT id FROM q) ORDER BY m.due_at, m.id LIMIT $2::bigint)) RETURNING m.id), \
      g AS (DELETE FROM hapax.queue_given AS g WHERE g.id = ANY (ARRAY(SELECT id FROM m))) \
    SELECT count(*) FROM m";

/// `$1` endpoint.
pub(in super::super) const BACKLOG: &str = "\
    SELECT count(*) FROM hapax.queue_message WHERE queue = (SELECT id FROM hapax.queue WHERE endpoint = $1)";

/// Messages in all queues; `$1` how many to count at most.
pub(in super::super) const MESSAGES: &str = "\
    SELECT count(*) FROM (SELECT FROM hapax.queue_message ORDER BY id LIMIT $1::bigint) AS m";

/// The highest number of any queue: that of one queue would have to be looked for. Not as `max(id)`, which was planned over an empty
/// table to go through all of it.
pub(in super::super) const NEWEST: &str = "\
    SELECT coalesce((SELECT m.id FROM hapax.queue_message AS m WHERE m.id > 0 ORDER BY m.id DESC LIMIT 1), 0)";

/// `$1` queue, `$2` number: whether there is a message with this number or a lower one, due or not, leased or not. It is looked for
/// in the index alone, from what is due first, which as a rule is what was sent first; where there is none, the whole queue has been
/// gone through. An index by number would make that short, and each message dearer. The order is for the sake of the plan: with the
/// primary key it would go through the messages of all other queues, and with `EXISTS` there is none.
pub(in super::super) const IS_LEFT: &str = "\
    SELECT coalesce((SELECT true FROM hapax.queue_message AS m WHERE m.queue = $1::bigint AND m.id <= $2::bigint \
      ORDER BY m.due_at, m.id LIMIT 1), false)";
