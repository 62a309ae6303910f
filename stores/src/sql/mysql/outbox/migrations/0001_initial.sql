-- hapax outbox on MariaDB and MySQL, schema 1. All times are milliseconds since 1970 by the server's clock, but for those that
-- the sender has set (occurred_at, due_at, expires_at).
--
-- `hapax.` stands for the prefix of the tables' names; every table's but the inbox's begins with `outbox`. Texts are bytes: no
-- collation makes two of them one, and no setting of a session cuts or converts them.

CREATE TABLE IF NOT EXISTS hapax.outbox_migration (
    version    BIGINT       NOT NULL PRIMARY KEY,
    name       VARCHAR(100) NOT NULL,
    applied_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Numbers by name. `usable_from`: the oldest schema that a program must know to go on with this one. `ordered`: whether order is
-- kept. `settled`: the server shows what others have committed before it is on the disk; who must rely on what was shown
-- writes here and commits.
CREATE TABLE IF NOT EXISTS hapax.outbox_meta (
    name  VARBINARY(64) NOT NULL PRIMARY KEY,
    value BIGINT        NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;
INSERT INTO hapax.outbox_meta (name, value) VALUES ('settled', 0) ON DUPLICATE KEY UPDATE name = name;

-- Messages, stored in the transactions of those who send them. A row that waits may be claimed from `ready_at` on; one that is
-- claimed waits as well, until its lease is over. One index serves what waits, what has failed and what is over.
CREATE TABLE IF NOT EXISTS hapax.outbox (
    number         BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY, -- of a lane's, in the order of commits
    id             BINARY(16)      NOT NULL, -- message id on the wire
    status         TINYINT         NOT NULL, -- 0 waits, 1 sent, 2 failed, 3 expired
    attempts       INT             NOT NULL, -- counted with the claim, before anything is sent
    ready_at       BIGINT          NOT NULL, -- not claimed before: due time, end of the lease, or of the back-off; then `ended_at`
    token          BIGINT          NOT NULL, -- of the claim; 0: of none
    owner          BIGINT          NULL,     -- relay that has the claim
    stored_at      BIGINT          NOT NULL,
    ended_at       BIGINT          NULL,     -- when its status became another one
    lane           BIGINT          NULL,     -- of which the order is kept, until its message is over: partition, and 49 bits of the key
    bytes          INT             NOT NULL, -- of the body
    occurred_at    BIGINT          NULL,
    due_at         BIGINT          NULL,
    expires_at     BIGINT          NULL,
    destination    VARBINARY(255)  NOT NULL, -- endpoint:NAME or topic:TYPE
    `key`          VARBINARY(255)  NULL,     -- partition key
    type           VARBINARY(255)  NOT NULL,
    content_type   VARBINARY(255)  NOT NULL,
    correlation_id VARBINARY(255)  NULL,
    causation_id   VARBINARY(255)  NULL,
    tenant         VARBINARY(255)  NULL,
    traceparent    VARBINARY(255)  NULL,
    headers        MEDIUMBLOB      NULL,     -- JSON object: headers of the application, and of hapax what has no column
    last_error     MEDIUMBLOB      NULL,
    body           LONGBLOB        NOT NULL,
    UNIQUE KEY id (id),
    KEY ready (status, ready_at),
    KEY lane (lane, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What was sent and is kept for longer. `status` 1 sent, 3 expired.
CREATE TABLE IF NOT EXISTS hapax.outbox_archive (
    id             BINARY(16)      NOT NULL PRIMARY KEY,
    status         TINYINT         NOT NULL,
    attempts       INT             NOT NULL,
    stored_at      BIGINT          NOT NULL,
    ended_at       BIGINT          NOT NULL,
    occurred_at    BIGINT          NULL,
    due_at         BIGINT          NULL,
    expires_at     BIGINT          NULL,
    destination    VARBINARY(255)  NOT NULL,
    `key`          VARBINARY(255)  NULL,
    type           VARBINARY(255)  NOT NULL,
    content_type   VARBINARY(255)  NOT NULL,
    correlation_id VARBINARY(255)  NULL,
    causation_id   VARBINARY(255)  NULL,
    tenant         VARBINARY(255)  NULL,
    traceparent    VARBINARY(255)  NULL,
    headers        MEDIUMBLOB      NULL,
    body           LONGBLOB        NOT NULL,
    KEY ended (ended_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Messages that were handled in a transaction of the database. One key over all that is kept: never split by time, since there is
-- no version of an entity behind it that would catch a second winner. Purged in small batches.
CREATE TABLE IF NOT EXISTS hapax.inbox (
    `key`       BINARY(24) NOT NULL PRIMARY KEY, -- of endpoint, handler and message
    attempt     BINARY(16) NOT NULL,
    fingerprint BINARY(16) NOT NULL,             -- of type and body
    reply       LONGBLOB   NULL,                 -- hapax record
    handled_at  BIGINT     NOT NULL,
    KEY handled (handled_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Who relays. For people, and so that nobody waits for one that is gone.
CREATE TABLE IF NOT EXISTS hapax.outbox_relay (
    id         BIGINT         NOT NULL PRIMARY KEY,
    service    VARBINARY(255) NOT NULL,
    host       VARBINARY(255) NOT NULL,
    process    BIGINT         NOT NULL,
    started_at BIGINT         NOT NULL,
    seen_at    BIGINT         NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Where order is kept: which relay has which lanes. `epoch` counts their owners, for people: a relay that lost its lanes is fenced by
-- the tokens of its claims, and by its row in outbox_relay, without which it says and claims nothing.
CREATE TABLE IF NOT EXISTS hapax.outbox_partition (
    `partition` INT    NOT NULL PRIMARY KEY,
    owner       BIGINT NULL,
    epoch       BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;
INSERT INTO hapax.outbox_partition (`partition`, epoch)
    WITH d AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
               UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
    SELECT a.n * 1000 + b.n * 100 + c.n * 10 + d.n, 0 FROM d AS a CROSS JOIN d AS b CROSS JOIN d AS c CROSS JOIN d AS d
    WHERE TRUE ON DUPLICATE KEY UPDATE epoch = hapax.outbox_partition.epoch;

-- Where order is kept: who stores messages of a lane locks the row of its partition until the commit, before a number is drawn.
-- Nobody changes these rows.
CREATE TABLE IF NOT EXISTS hapax.outbox_lock (
    `partition` INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;
INSERT INTO hapax.outbox_lock (`partition`) SELECT p.`partition` FROM hapax.outbox_partition AS p
    WHERE TRUE ON DUPLICATE KEY UPDATE `partition` = hapax.outbox_lock.`partition`;

INSERT INTO hapax.outbox_migration (version, name) VALUES (1, 'initial') ON DUPLICATE KEY UPDATE version = version;
