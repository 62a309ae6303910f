-- hapax queues on MariaDB and MySQL, schema 1. All times are milliseconds since 1970 by the server's clock.
--
-- `hapax.` stands for the database and the prefix of the tables' names; every table's begins with `queue`, so that a store's
-- may be beside them. Names and ids are bytes: they are compared as they are, and what is too long is refused.

CREATE TABLE IF NOT EXISTS hapax.queue_migration (
    version    INT          NOT NULL PRIMARY KEY,
    name       VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL,
    applied_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Numbers by name. `usable_from`: the oldest schema that a program must know to go on with this one.
CREATE TABLE IF NOT EXISTS hapax.queue_meta (
    name  VARBINARY(100) NOT NULL PRIMARY KEY,
    value BIGINT         NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- A queue for each endpoint that has connected or has been sent to, so that messages carry a small number. Rows are never
-- changed or removed. Where order is asked for, takes in one queue wait for each other at its row.
CREATE TABLE IF NOT EXISTS hapax.queue (
    id       BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    endpoint VARBINARY(100) NOT NULL,
    UNIQUE KEY endpoint (endpoint)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Who gets what is published.
CREATE TABLE IF NOT EXISTS hapax.queue_subscription (
    type  VARBINARY(100) NOT NULL,
    queue BIGINT         NOT NULL,
    PRIMARY KEY (type, queue)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- A message is inserted, given and deleted. What changes when it is given is in no index and has the same length before and
-- after, so that its row is changed where it is. Deleted rows stay in the table and in its indexes until the server has
-- purged them.
CREATE TABLE IF NOT EXISTS hapax.queue_message (
    id            BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY, -- of one sender in the order of sending
    queue         BIGINT         NOT NULL,
    due_at        BIGINT         NOT NULL,           -- not given before: when it was sent, was due, or is to be retried
    leased_until  BIGINT         NOT NULL DEFAULT 0, -- not given before, either; 0: no lease
    token         BIGINT         NOT NULL DEFAULT 0, -- of the lease
    deliveries    BIGINT         NOT NULL DEFAULT 0,
    sent_at       BIGINT         NOT NULL,
    first_at      BIGINT         NOT NULL DEFAULT 0, -- when it was first given; 0: not yet
    bytes         INT            NOT NULL,           -- of the envelope, which need not be read to know it
    partition_key VARBINARY(255) NULL,               -- where order is asked for
    message_id    VARBINARY(255) NOT NULL,
    envelope      LONGBLOB       NOT NULL,           -- hapax record
    KEY due (queue, due_at, id),
    KEY keyed (queue, partition_key, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Where order is asked for: messages that have been given and not settled, so that one process at a time has a key.
CREATE TABLE IF NOT EXISTS hapax.queue_given (
    id            BIGINT         NOT NULL PRIMARY KEY, -- the message's
    queue         BIGINT         NOT NULL,
    partition_key VARBINARY(255) NOT NULL,
    KEY keyed (queue, partition_key, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS hapax.queue_dead_letter (
    id          BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    endpoint    VARBINARY(100) NOT NULL,
    message_id  VARBINARY(255) NOT NULL,
    saga        VARBINARY(100) NOT NULL,               -- empty: no saga was found for it
    destination VARBINARY(300) NOT NULL,               -- empty: it could not be handled; else: it could not be sent there
    fingerprint VARBINARY(64)  NULL,                   -- of type and body; null: set aside by the queue, which is once for
                                                       -- each message in it
    attempts    BIGINT         NOT NULL,
    sent_at     BIGINT         NULL,                   -- null: it was not in a queue
    first_at    BIGINT         NULL,                   -- when it was first given
    time        BIGINT         NOT NULL,               -- when it was set aside
    reason      LONGTEXT       CHARACTER SET utf8mb4 NOT NULL,
    envelope    LONGBLOB       NOT NULL,               -- hapax record
    UNIQUE KEY letter (endpoint, message_id, saga, destination, fingerprint),
    KEY listed (endpoint, id),
    KEY purged (time)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO hapax.queue_migration (version, name) VALUES (1, 'initial') ON DUPLICATE KEY UPDATE version = version;
