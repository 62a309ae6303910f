-- hapax on PostgreSQL, schema 3: what is remembered of dedup entries that are gone, and tables for generations that have to wait.

-- Numbers of senders that are over: the dedup keys of the first and of the last of those that follow one another. No two runs
-- touch.
CREATE TABLE IF NOT EXISTS hapax.long_run (
    first bytea PRIMARY KEY,
    last  bytea NOT NULL
);

-- Entries of idempotency keys, once their generation has gone.
CREATE TABLE IF NOT EXISTS hapax.long_key (
    key         bytea  PRIMARY KEY,
    attempt     bytea  NOT NULL,
    fingerprint bytea  NOT NULL,
    time        bigint NOT NULL, -- by the saver's clock
    reply       bytea,           -- hapax record
    inserted_at bigint NOT NULL  -- at the latest: when its generation was closed
);
CREATE INDEX IF NOT EXISTS hapax_long_key_inserted ON hapax.long_key (inserted_at);

-- Each endpoint that has to show that no copy is left in its queue, of what was inserted up to then; null: of nothing yet. An
-- endpoint that is no more keeps all others' entries: DELETE FROM hapax.long_evidence WHERE endpoint = '..'
CREATE TABLE IF NOT EXISTS hapax.long_evidence (
    endpoint    text COLLATE "C" PRIMARY KEY,
    shown_until bigint
);

-- What anybody ever asked for, which goes for all. Whoever folds, drops or asks takes this row first.
CREATE TABLE IF NOT EXISTS hapax.long_memory (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    fold    boolean NOT NULL, -- numbers are folded into runs
    keys_ms bigint  NOT NULL  -- for how long idempotency keys are kept
);
INSERT INTO hapax.long_memory (fold, keys_ms) VALUES (false, 0) ON CONFLICT DO NOTHING;

-- How far a generation whose time is over has been taken apart: the last key of its numbers that were folded, of its idempotency keys
-- that were put by, and of what was put into an earlier one. Who goes on from there need not pass by what is gone, of which the
-- server keeps traces until it vacuums.
ALTER TABLE hapax.generation ADD COLUMN IF NOT EXISTS folded_to bytea;
ALTER TABLE hapax.generation ADD COLUMN IF NOT EXISTS kept_to   bytea;
ALTER TABLE hapax.generation ADD COLUMN IF NOT EXISTS merged_to bytea;

CREATE TABLE IF NOT EXISTS hapax.dedup_4 (LIKE hapax.dedup_0 INCLUDING ALL);
CREATE TABLE IF NOT EXISTS hapax.dedup_5 (LIKE hapax.dedup_0 INCLUDING ALL);

-- Programs of older schemas may go on until somebody asks for more than they know: they would drop what has to be
-- remembered. That is written then.
INSERT INTO hapax.meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING;

INSERT INTO hapax.migration (version, name) VALUES (3, 'long memory') ON CONFLICT DO NOTHING;
