-- hapax on SQLite, schema 4: what is remembered of dedup entries that are gone.

-- Numbers of senders that are over: the dedup keys of the first and of the last of those that follow one another. No two runs
-- touch.
CREATE TABLE IF NOT EXISTS hapax_long_run (
    first BLOB NOT NULL PRIMARY KEY,
    last  BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Entries of idempotency keys, once their generation has gone.
CREATE TABLE IF NOT EXISTS hapax_long_key (
    key         BLOB    NOT NULL PRIMARY KEY,
    attempt     BLOB    NOT NULL,
    fingerprint BLOB    NOT NULL,
    time        INTEGER NOT NULL, -- by the saver's clock, milliseconds since 1970
    reply       BLOB,             -- hapax record
    inserted_at INTEGER NOT NULL  -- at the latest: when its generation was closed
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hapax_long_key_inserted ON hapax_long_key (inserted_at);

-- Each endpoint that has to show that no copy is left in its queue, of what was inserted up to then; null: of nothing yet. An
-- endpoint that is no more keeps all others' entries: DELETE FROM hapax_long_evidence WHERE endpoint = '..'
CREATE TABLE IF NOT EXISTS hapax_long_evidence (
    endpoint    TEXT    NOT NULL PRIMARY KEY,
    shown_until INTEGER
) STRICT;

-- What anybody ever asked for, which goes for all.
CREATE TABLE IF NOT EXISTS hapax_long_memory (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    fold    INTEGER NOT NULL, -- numbers are folded into runs
    keys_ms INTEGER NOT NULL, -- for how long idempotency keys are kept
    token   INTEGER NOT NULL  -- of the last one who folded: what another one has read before is out of date
) STRICT;
INSERT INTO hapax_long_memory (one, fold, keys_ms, token) VALUES (1, 0, 0, 0) ON CONFLICT DO NOTHING;

-- Programs that know schema 1 to 3 and no more may go on until somebody asks for more than they know: they would drop what has
-- to be remembered. That is written then.
INSERT INTO hapax_meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING;

INSERT INTO hapax_migration (version, name, applied_at)
    VALUES (4, 'long memory', CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT DO NOTHING;
