-- hapax queues on SQLite, schema 1. Applied when a queue is opened, or by hand; harmless when applied again.
-- Every table begins with `hapax_queue`, so that the file may hold a store's and an application's own tables too.
-- Times are milliseconds since 1970 by the clock of the host, which all processes on the file share.

CREATE TABLE IF NOT EXISTS hapax_queue_migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

-- A queue for each endpoint that has connected or has been sent to, so that messages carry a small number. Rows are never
-- changed or removed.
CREATE TABLE IF NOT EXISTS hapax_queue (
    id       INTEGER PRIMARY KEY,
    endpoint TEXT    NOT NULL UNIQUE
) STRICT;

-- Who gets what is published.
CREATE TABLE IF NOT EXISTS hapax_queue_subscription (
    type  TEXT    NOT NULL,
    queue INTEGER NOT NULL,
    PRIMARY KEY (type, queue)
) STRICT, WITHOUT ROWID;

-- The columns that change take the same room before and after, so that giving a message rewrites nothing but them.
CREATE TABLE IF NOT EXISTS hapax_queue_message (
    id           INTEGER PRIMARY KEY, -- in the order of sending
    queue        INTEGER NOT NULL,
    available_at INTEGER NOT NULL,    -- when it may be given: a lease, a delay or a due time ends here
    token        INTEGER NOT NULL,    -- of the lease; nobody knows it before the message is given
    deliveries   INTEGER NOT NULL,
    place        INTEGER NOT NULL,    -- 0: not given yet; 1: given; 2: waits behind one of its key; 3: to be retried
    sent_at      INTEGER NOT NULL,
    first_at     INTEGER NOT NULL,    -- when it was first given
    key          TEXT,                -- partition key, where order is asked for
    message_id   TEXT    NOT NULL,
    envelope     BLOB    NOT NULL     -- hapax record; last, because it may be long
) STRICT;
-- Answers for what is ready, what is delayed and whose lease has run out alike: all in the order in which they may be
-- given, so that what may not is never looked at.
CREATE INDEX IF NOT EXISTS hapax_queue_message_available ON hapax_queue_message (queue, available_at);
CREATE INDEX IF NOT EXISTS hapax_queue_message_key ON hapax_queue_message (queue, key) WHERE key IS NOT NULL;

CREATE TABLE IF NOT EXISTS hapax_queue_dead_letter (
    id          INTEGER PRIMARY KEY,
    endpoint    TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    saga        TEXT    NOT NULL, -- empty: no saga was found for it
    destination TEXT    NOT NULL, -- empty: it could not be handled; else: it could not be sent there
    attempts    INTEGER NOT NULL,
    sent_at     INTEGER,          -- null: it was not in a queue
    first_at    INTEGER,          -- when it was first given
    time        INTEGER NOT NULL, -- when it was set aside
    reason      TEXT    NOT NULL,
    envelope    BLOB    NOT NULL, -- hapax record
    fingerprint BLOB,             -- of type and body; null: set aside by the queue, which is once for each message in it
    UNIQUE (endpoint, message_id, saga, destination, fingerprint)
) STRICT;
CREATE INDEX IF NOT EXISTS hapax_queue_dead_letter_time ON hapax_queue_dead_letter (time);

INSERT INTO hapax_queue_migration (version, name, applied_at)
    VALUES (1, 'queue', CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT DO NOTHING;
