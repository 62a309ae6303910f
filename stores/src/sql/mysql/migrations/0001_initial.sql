-- hapax on MariaDB and MySQL, schema 1. All times are milliseconds since 1970 by the server's clock, unless said otherwise.
--
-- `hapax.` stands for the prefix of the tables' names. Keys are bytes: no collation makes two of them one.

CREATE TABLE IF NOT EXISTS hapax.migration (
    version    BIGINT       NOT NULL PRIMARY KEY,
    name       VARCHAR(100) NOT NULL,
    applied_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Numbers by name. `retention_ms`: the longest retention of dedup entries that any endpoint ever asked for, which goes for
-- all. To lower it, once no endpoint asks for the longer one any more:
-- UPDATE hapax.meta SET value = 604800000 WHERE name = 'retention_ms'; -- seven days
CREATE TABLE IF NOT EXISTS hapax.meta (
    name  VARBINARY(64) NOT NULL PRIMARY KEY,
    value BIGINT        NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Entities that are new begin above this version, which no purged one has passed: no version comes twice. A purge locks it
-- for itself alone while it works.
CREATE TABLE IF NOT EXISTS hapax.floor (
    one     TINYINT NOT NULL PRIMARY KEY, -- 1
    version BIGINT  NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;
INSERT INTO hapax.floor (one, version) VALUES (1, 0) ON DUPLICATE KEY UPDATE one = one;

-- The server shows what others have committed before it is on the disk. Who must rely on what was shown writes here and
-- commits: that is on the disk after all that came before it.
CREATE TABLE IF NOT EXISTS hapax.settled (
    one   TINYINT NOT NULL PRIMARY KEY, -- 1
    times BIGINT  NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;
INSERT INTO hapax.settled (one, times) VALUES (1, 0) ON DUPLICATE KEY UPDATE one = one;

-- Endpoint and saga, so that entities carry a small number. Rows are never changed or removed.
CREATE TABLE IF NOT EXISTS hapax.scope (
    id       BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    endpoint VARBINARY(255) NOT NULL,
    saga     VARBINARY(255) NOT NULL,
    UNIQUE KEY endpoint_saga (endpoint, saga)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Two writes a message, and none of them touches a second index as a rule: therefore `watched` is set with the first outbox
-- entry and taken back only when the sweeper passes by.
CREATE TABLE IF NOT EXISTS hapax.entity (
    scope         BIGINT         NOT NULL,
    `key`         VARBINARY(255) NOT NULL,
    version       BIGINT         NOT NULL,
    changed_at    BIGINT         NOT NULL,
    completed_at  BIGINT         NULL,     -- null: the saga goes on
    pending_since BIGINT         NULL,     -- no outbox entry is older; null: the outbox is empty
    watched       TINYINT        NOT NULL, -- 1: the sweeper looks here
    pending       LONGBLOB       NULL,     -- of each outbox entry: dedup key (24 bytes), attempt (16), saved at (8)
    outbox        LONGBLOB       NOT NULL, -- hapax record
    state         LONGBLOB       NOT NULL, -- framed state
    PRIMARY KEY (scope, `key`),
    KEY watched (scope, watched, `key`),
    KEY completed (scope, completed_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Dedup entries are kept in generations by the time of their insertion, each in a table of its own: the newest takes all,
-- and the oldest is emptied whole. A table without a row here holds nothing that counts. What is being dropped does not count
-- any more, and its table is not free yet.
CREATE TABLE IF NOT EXISTS hapax.generation (
    id        BIGINT   NOT NULL PRIMARY KEY,
    slot      SMALLINT NOT NULL, -- the number in the table's name
    opened_at BIGINT   NOT NULL,
    closed_at BIGINT   NULL,     -- null: the newest
    dropping  TINYINT  NOT NULL DEFAULT 0,
    UNIQUE KEY slot (slot)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

CREATE TABLE IF NOT EXISTS hapax.dedup_0 (
    `key`       BINARY(24) NOT NULL PRIMARY KEY,
    attempt     BINARY(16) NOT NULL,
    fingerprint BINARY(16) NOT NULL,
    time        BIGINT     NOT NULL, -- by the saver's clock
    reply       LONGBLOB   NULL      -- hapax record
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE IF NOT EXISTS hapax.dedup_1 LIKE hapax.dedup_0;
CREATE TABLE IF NOT EXISTS hapax.dedup_2 LIKE hapax.dedup_0;
CREATE TABLE IF NOT EXISTS hapax.dedup_3 LIKE hapax.dedup_0;
INSERT INTO hapax.generation (id, slot, opened_at)
    SELECT 1, 0, CAST(FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000) AS SIGNED) FROM DUAL
    WHERE NOT EXISTS (SELECT 1 FROM hapax.generation)
    ON DUPLICATE KEY UPDATE slot = hapax.generation.slot;

CREATE TABLE IF NOT EXISTS hapax.dead_letter (
    id          BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    endpoint    VARBINARY(255) NOT NULL,
    message_id  VARBINARY(255) NOT NULL,
    saga        VARBINARY(255) NOT NULL, -- empty: no saga was found for it
    destination VARBINARY(512) NOT NULL, -- empty: it could not be handled; else: it could not be sent there
    fingerprint BINARY(16)     NOT NULL, -- of the message's type and body: another body under one id is another letter
    attempts    BIGINT         NOT NULL,
    time        BIGINT         NOT NULL, -- by the endpoint's clock
    reason      LONGTEXT       NOT NULL,
    envelope    LONGBLOB       NOT NULL, -- hapax record
    UNIQUE KEY message (endpoint, message_id, saga, destination, fingerprint)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT INTO hapax.migration (version, name) VALUES (1, 'initial') ON DUPLICATE KEY UPDATE version = version;
