-- hapax outbox on SQLite, schema 1. All times are milliseconds since 1970 by the host's clock, but for those that the sender has
-- set (occurred_at, due_at, expires_at).

CREATE TABLE IF NOT EXISTS hapax_outbox_migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;

-- Numbers by name. `usable_from`: the oldest schema that a program must know to go on with this one. `ordered`: whether order is
-- kept. `owner`: where order is kept, the relay that sends.
CREATE TABLE IF NOT EXISTS hapax_outbox_meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO hapax_outbox_meta (name, value) VALUES ('owner', 0) ON CONFLICT DO NOTHING;

-- Messages, stored in the transactions of those who send them. A row that waits may be claimed from `ready_at` on; one that is
-- claimed waits as well, until its lease is over. A file has one writer at a time, so that numbers are in the order of commits.
CREATE TABLE IF NOT EXISTS hapax_outbox (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    id             BLOB    NOT NULL UNIQUE, -- message id on the wire
    status         INTEGER NOT NULL, -- 0 waits, 1 sent, 2 failed, 3 expired
    attempts       INTEGER NOT NULL, -- counted with the claim, before anything is sent
    ready_at       INTEGER NOT NULL, -- not claimed before: due time, end of the lease, or of the back-off
    token          INTEGER NOT NULL, -- of the claim; 0: of none
    owner          INTEGER,          -- relay that has the claim
    stored_at      INTEGER NOT NULL,
    ended_at       INTEGER,          -- when its status became another one
    lane           INTEGER,          -- of which the order is kept, until its message is over: a hash of the key
    occurred_at    INTEGER,
    due_at         INTEGER,
    expires_at     INTEGER,
    destination    TEXT    NOT NULL, -- endpoint:NAME or topic:TYPE
    key            TEXT,             -- partition key
    type           TEXT    NOT NULL,
    content_type   TEXT    NOT NULL,
    correlation_id TEXT,
    causation_id   TEXT,
    tenant         TEXT,
    traceparent    TEXT,
    headers        TEXT,             -- JSON object: headers of the application, and of hapax what has no column
    last_error     TEXT,
    body           BLOB    NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS hapax_outbox_ready ON hapax_outbox (ready_at) WHERE status = 0;
CREATE INDEX IF NOT EXISTS hapax_outbox_lane ON hapax_outbox (lane, number) WHERE lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS hapax_outbox_failed ON hapax_outbox (ended_at) WHERE status = 2;
CREATE INDEX IF NOT EXISTS hapax_outbox_over ON hapax_outbox (ended_at) WHERE status IN (1, 3);

-- What was sent and is kept for longer. `status` 1 sent, 3 expired.
CREATE TABLE IF NOT EXISTS hapax_outbox_archive (
    id             BLOB    PRIMARY KEY,
    status         INTEGER NOT NULL,
    attempts       INTEGER NOT NULL,
    stored_at      INTEGER NOT NULL,
    ended_at       INTEGER NOT NULL,
    occurred_at    INTEGER,
    due_at         INTEGER,
    expires_at     INTEGER,
    destination    TEXT    NOT NULL,
    key            TEXT,
    type           TEXT    NOT NULL,
    content_type   TEXT    NOT NULL,
    correlation_id TEXT,
    causation_id   TEXT,
    tenant         TEXT,
    traceparent    TEXT,
    headers        TEXT,
    body           BLOB    NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS hapax_outbox_archive_ended ON hapax_outbox_archive (ended_at);

-- Messages that were handled in a transaction of the file. One key over all that is kept. Purged in small batches.
CREATE TABLE IF NOT EXISTS hapax_inbox (
    key         BLOB    PRIMARY KEY, -- of endpoint, handler and message
    attempt     BLOB    NOT NULL,
    fingerprint BLOB    NOT NULL,    -- of type and body
    reply       BLOB,                -- hapax record
    handled_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hapax_inbox_handled ON hapax_inbox (handled_at);

-- Who relays. For people, and so that nobody waits for one that is gone.
CREATE TABLE IF NOT EXISTS hapax_outbox_relay (
    id         INTEGER PRIMARY KEY,
    service    TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    process    INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT;

INSERT INTO hapax_outbox_migration (version, name) VALUES (1, 'initial') ON CONFLICT DO NOTHING;
