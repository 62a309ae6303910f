-- hapax on MariaDB and MySQL, schema 3: what is remembered of dedup entries that are gone, and tables for generations that have to
-- wait. All of it may be repeated.

-- Numbers of senders that are over: the dedup keys of the first and of the last of those that follow one another. No two runs
-- touch.
CREATE TABLE IF NOT EXISTS hapax.long_run (
    `first` BINARY(24) NOT NULL PRIMARY KEY,
    `last`  BINARY(24) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Entries of idempotency keys, once their generation has gone.
CREATE TABLE IF NOT EXISTS hapax.long_key (
    `key`       BINARY(24) NOT NULL PRIMARY KEY,
    attempt     BINARY(16) NOT NULL,
    fingerprint BINARY(16) NOT NULL,
    time        BIGINT     NOT NULL, -- by the saver's clock
    reply       LONGBLOB   NULL,     -- hapax record
    inserted_at BIGINT     NOT NULL, -- at the latest: when its generation was closed
    KEY inserted_at (inserted_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Each endpoint that has to show that no copy is left in its queue, of what was inserted up to then; null: of nothing yet. An
-- endpoint that is no more keeps all others' entries: DELETE FROM hapax.long_evidence WHERE endpoint = '..'
CREATE TABLE IF NOT EXISTS hapax.long_evidence (
    endpoint    VARBINARY(255) NOT NULL PRIMARY KEY,
    shown_until BIGINT         NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What anybody ever asked for, which goes for all. Whoever folds, drops or asks takes this row first.
CREATE TABLE IF NOT EXISTS hapax.long_memory (
    one     TINYINT NOT NULL PRIMARY KEY,
    fold    TINYINT NOT NULL, -- numbers are folded into runs
    keys_ms BIGINT  NOT NULL  -- for how long idempotency keys are kept
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;
INSERT INTO hapax.long_memory (one, fold, keys_ms) VALUES (1, 0, 0) ON DUPLICATE KEY UPDATE one = one;

CREATE TABLE IF NOT EXISTS hapax.dedup_4 LIKE hapax.dedup_0;
CREATE TABLE IF NOT EXISTS hapax.dedup_5 LIKE hapax.dedup_0;

-- Programs of older schemas may go on until somebody asks for more than they know: they would drop what has to be
-- remembered. That is written then.
INSERT INTO hapax.meta (name, value) VALUES ('usable_from', 1) ON DUPLICATE KEY UPDATE value = value;

INSERT INTO hapax.migration (version, name) VALUES (3, 'long memory') ON DUPLICATE KEY UPDATE version = version;
