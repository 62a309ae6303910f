//! Of messages that are not due yet. Each is its own transaction.

/// $1 endpoint, $2 rows `[message id, destination, due at, offset, length]`, $3 the envelopes.
pub(in crate::sql::sqlite) const PUT: &str = "\
    INSERT INTO hapax_schedule (endpoint, message_id, destination, due_at, envelope) \
    SELECT $1, r.value ->> 0, r.value ->> 1, r.value ->> 2, substr($3, (r.value ->> 3) + 1, r.value ->> 4) \
    FROM json_each($2) AS r WHERE true ON CONFLICT DO NOTHING";

/// $1 endpoint, $2 message ids.
pub(in crate::sql::sqlite) const CANCEL: &str = "\
    DELETE FROM hapax_schedule WHERE endpoint = $1 AND message_id IN (SELECT value FROM json_each($2))";

/// $1 endpoint, $2 due at or before, $3 now, $4 the end of the leases, $5 limit, $6 bytes together. What others have been given is
/// passed over: it is as much as the processes of the endpoint send at a time. A lease that ends in more than an hour was begun when
/// the clock was ahead: none is longer.
pub(in crate::sql::sqlite) const TAKE: &str = "\
    UPDATE hapax_schedule SET leased_until = $4, taken = taken + 1 WHERE id IN \
      (SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY due_at, id) AS upto FROM \
        (SELECT id, due_at, length(envelope) AS bytes FROM hapax_schedule INDEXED BY hapax_schedule_due \
         WHERE endpoint = $1 AND due_at <= $2 AND (leased_until <= $3 OR leased_until > $3 + 3600000) ORDER BY due_at, id LIMIT $5)) \
       WHERE upto <= $6 OR upto = bytes) \
    RETURNING id, taken, due_at, destination, envelope";

/// $1 endpoint, $2 receipts `[id, taken]`.
pub(in crate::sql::sqlite) const DONE: &str = "\
    DELETE FROM hapax_schedule WHERE id IN \
      (SELECT s.id FROM json_each($2) AS r CROSS JOIN hapax_schedule AS s ON s.id = r.value ->> 0 \
       WHERE s.taken = r.value ->> 1 AND s.endpoint = $1)";

/// $1 endpoint.
pub(in crate::sql::sqlite) const NEXT: &str = "\
    SELECT due_at FROM hapax_schedule INDEXED BY hapax_schedule_due WHERE endpoint = $1 ORDER BY due_at LIMIT 1";

#[cfg(test)]
pub(super) const ALL: [&str; 5] = [PUT, CANCEL, TAKE, DONE, NEXT];
