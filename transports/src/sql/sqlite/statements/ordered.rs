//! A take where order is asked for.

/// As [`TAKE`](super::TAKE), in the order of keys. "First" of a key is the one sent first, those aside that were sent with a due time and
/// are not due.
///
/// 1. What is ready but comes after one of its key that is not, or that became ready later, goes behind that one, so that
///    it does not stand in the way of other keys. It saves looking; the order does not rest on it.
/// 2. Of the first that are ready, those are given before which none of their key is left over, and of whose key none is
///    under a lease: who has that one may be at work, though it was sent later than one that has become due since.
pub(super) const TAKE_ORDERED: &str = "\
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
