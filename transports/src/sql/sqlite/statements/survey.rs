//! What a person is shown. Each looks at no more rows than asked for.

/// $1 endpoint, $2 limit, $3 now: how many messages; of these, how many under a lease.
pub(in super::super) const QUEUE: &str = "\
    WITH counted AS MATERIALIZED (SELECT place, available_at FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
      WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1) ORDER BY available_at LIMIT $2) \
    SELECT count(*), count(*) FILTER (WHERE place = 1 AND available_at > $3) FROM counted";

/// $1 endpoint, $2 limit, $3 message id: of each copy among so many messages, its deliveries, place, when it is available and was sent.
pub(in super::super) const QUEUED: &str = "\
    SELECT deliveries, place, available_at, sent_at FROM \
      (SELECT deliveries, place, available_at, sent_at, message_id FROM hapax_queue_message INDEXED BY hapax_queue_message_available \
       WHERE queue = (SELECT id FROM hapax_queue WHERE endpoint = $1) ORDER BY available_at LIMIT $2) \
    WHERE message_id = $3";
