//! What is remembered of dedup entries that are gone. An entry leaves its generation in the transaction that puts what is
//! remembered of it in place.

/// $1 offsets of the dedup keys in $2. Rows are `offset, null ..` of a key that is in a run, or as those of a load.
pub(in crate::sql::sqlite) const RECALL: &str = "\
    SELECT r.value, NULL, NULL, NULL, NULL, NULL, NULL FROM json_each($1) AS r \
    WHERE (SELECT l.last FROM hapax_long_run AS l WHERE l.first <= substr($2, r.value + 1, 24) ORDER BY l.first DESC LIMIT 1) \
      >= substr($2, r.value + 1, 24) \
    UNION ALL \
    SELECT NULL, 0, k.time, k.key, k.attempt, k.fingerprint, k.reply \
    FROM json_each($1) AS r CROSS JOIN hapax_long_key AS k ON k.key = substr($2, r.value + 1, 24)";

/// $1 whether numbers are folded, $2 for how long idempotency keys are kept, in milliseconds, $3 endpoint, $4 what has been shown,
/// or null, $5 whether it has to show anything, $6 how old a program may be from now on.
pub(in crate::sql::sqlite) const ASK: &str = "\
    BEGIN IMMEDIATE; \
    UPDATE hapax_long_memory SET fold = max(fold, $1), keys_ms = max(keys_ms, $2) WHERE fold < $1 OR keys_ms < $2; \
    INSERT INTO hapax_long_evidence (endpoint, shown_until) SELECT $3, $4 WHERE $5 \
      ON CONFLICT (endpoint) DO UPDATE SET shown_until = excluded.shown_until \
      WHERE excluded.shown_until > coalesce(shown_until, excluded.shown_until - 1); \
    INSERT INTO hapax_meta (name, value) VALUES ('usable_from', $6) \
      ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > value; \
    COMMIT";
pub(in crate::sql::sqlite) const ASK_STATEMENTS: usize = 5;

/// $1 endpoint.
pub(in crate::sql::sqlite) const WITHDRAW: &str = "DELETE FROM hapax_long_evidence WHERE endpoint = $1";

/// $1 now, $2 retention in milliseconds: who folded last, the oldest closed generation whose time is over that has numbers to fold,
/// and the one that has idempotency keys to keep for longer, or null; whether there are some whose time is over as well.
pub(in crate::sql::sqlite) const LOOK: &str = "\
    SELECT m.token, \
      (SELECT g.id FROM hapax_generation AS g WHERE m.fold AND g.closed_at <= $1 - max($2, coalesce(r.value, 0)) \
       AND EXISTS (SELECT 1 FROM hapax_dedup AS d WHERE d.generation = g.id AND d.key >= x'ffffffff') ORDER BY g.id LIMIT 1), \
      (SELECT g.id FROM hapax_generation AS g WHERE g.closed_at > $1 - m.keys_ms AND g.closed_at <= $1 - max($2, coalesce(r.value, 0)) \
       AND EXISTS (SELECT 1 FROM hapax_dedup AS d WHERE d.generation = g.id AND d.key >= x'fffffffe' AND d.key < x'ffffffff') \
       ORDER BY g.id LIMIT 1), \
      EXISTS (SELECT 1 FROM hapax_long_key AS k WHERE k.inserted_at < $1 - m.keys_ms) \
    FROM hapax_long_memory AS m LEFT JOIN hapax_meta AS r ON r.name = 'retention_ms'";

/// $1 a closed generation, $2 limit: keys of its numbers.
pub(in crate::sql::sqlite) const NUMBERS: &str =
    "SELECT key FROM hapax_dedup WHERE generation = $1 AND key >= x'ffffffff' ORDER BY key LIMIT $2";

/// $1 runs `[first, last]` in hex digits: those that are stored and overlap one of them. A last key that is touched counts.
pub(in crate::sql::sqlite) const RUNS_AT: &str = "\
    SELECT DISTINCT r.first, r.last FROM json_each($1) AS n CROSS JOIN hapax_long_run AS r \
      ON r.first <= unhex(n.value ->> 1) AND r.first >= coalesce((SELECT b.first FROM hapax_long_run AS b \
        WHERE b.first <= unhex(n.value ->> 0) ORDER BY b.first DESC LIMIT 1), unhex(n.value ->> 0))";

/// $1 who folded last, as it was before anything was read, $2 who folds now, $3 runs that are in others now, $4 runs
/// `[first, last]`, $5 the closed generation, $6 the last key that was read in it. Nothing happens where somebody else has folded
/// since. The last but one statement tells how many entries are gone.
pub(in crate::sql::sqlite) const FOLD: &str = "\
    BEGIN IMMEDIATE; \
    UPDATE hapax_long_memory SET token = $2 WHERE token = $1; \
    DELETE FROM hapax_long_run WHERE first IN (SELECT unhex(value) FROM json_each($3)) \
      AND (SELECT token FROM hapax_long_memory) = $2; \
    INSERT INTO hapax_long_run (first, last) SELECT unhex(r.value ->> 0), unhex(r.value ->> 1) FROM json_each($4) AS r \
      WHERE (SELECT token FROM hapax_long_memory) = $2 \
      ON CONFLICT (first) DO UPDATE SET last = excluded.last; \
    DELETE FROM hapax_dedup WHERE generation = $5 AND key >= x'ffffffff' AND key <= $6 \
      AND (SELECT token FROM hapax_long_memory) = $2; \
    COMMIT";
pub(in crate::sql::sqlite) const FOLD_STATEMENTS: usize = 6;

/// $1 a closed generation, $2 limit: so many of its idempotency keys are put by. The last but one statement tells how many. Of two
/// entries of a key the older one stays, for as long as the later one has to.
pub(in crate::sql::sqlite) const KEEP_KEYS: &str = "\
    BEGIN IMMEDIATE; \
    INSERT INTO hapax_long_key (key, attempt, fingerprint, time, reply, inserted_at) \
      SELECT d.key, d.attempt, d.fingerprint, d.time, d.reply, g.closed_at \
      FROM hapax_generation AS g CROSS JOIN hapax_dedup AS d ON d.generation = g.id \
      WHERE g.id = $1 AND g.closed_at IS NOT NULL AND d.key >= x'fffffffe' AND d.key < x'ffffffff' ORDER BY d.key LIMIT $2 \
      ON CONFLICT (key) DO UPDATE SET inserted_at = max(inserted_at, excluded.inserted_at); \
    DELETE FROM hapax_dedup WHERE (generation, key) IN (SELECT d.generation, d.key \
      FROM hapax_generation AS g CROSS JOIN hapax_dedup AS d ON d.generation = g.id \
      WHERE g.id = $1 AND g.closed_at IS NOT NULL AND d.key >= x'fffffffe' AND d.key < x'ffffffff' ORDER BY d.key LIMIT $2); \
    COMMIT";
pub(in crate::sql::sqlite) const KEEP_KEYS_STATEMENTS: usize = 4;

/// $1 now, $2 limit: so many of the idempotency keys go whose time is over.
pub(in crate::sql::sqlite) const FORGET_KEYS: &str = "\
    DELETE FROM hapax_long_key WHERE key IN (SELECT key FROM hapax_long_key \
      WHERE inserted_at < $1 - (SELECT keys_ms FROM hapax_long_memory) ORDER BY inserted_at LIMIT $2)";

/// Of a closed generation whose time is over, `hapax_generation`, at the time $1: nothing in it has to be remembered, and all have
/// shown that what is left may go.
pub(super) const NOTHING_STAYS: &str = "\
    NOT ((SELECT fold FROM hapax_long_memory) AND EXISTS (SELECT 1 FROM hapax_dedup AS d \
      WHERE d.generation = hapax_generation.id AND d.key >= x'ffffffff')) \
    AND NOT (closed_at > $1 - (SELECT keys_ms FROM hapax_long_memory) AND EXISTS (SELECT 1 FROM hapax_dedup AS d \
      WHERE d.generation = hapax_generation.id AND d.key >= x'fffffffe' AND d.key < x'ffffffff')) \
    AND (NOT EXISTS (SELECT 1 FROM hapax_long_evidence AS w WHERE w.shown_until IS NULL OR w.shown_until < closed_at) \
      OR NOT EXISTS (SELECT 1 FROM hapax_dedup AS d WHERE d.generation = hapax_generation.id))";

/// For the test that prepares them.
#[cfg(test)]
pub(super) const ALL: [&str; 9] = [RECALL, ASK, WITHDRAW, LOOK, NUMBERS, RUNS_AT, FOLD, KEEP_KEYS, FORGET_KEYS];
