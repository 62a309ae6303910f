-- hapax on SQLite, schema 1. Applied by `Sqlite::migrate`, or by hand; harmless when applied again.
-- Every table begins with `hapax_`, so that the file may hold an application's own tables too.

CREATE TABLE IF NOT EXISTS hapax_migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL -- milliseconds since 1970
) STRICT;

-- Numbers that belong to the whole file. version_floor: no entity is created with a version at or below it.
-- retention_ms: the longest retention that any endpoint has asked for; dedup entries of all endpoints are kept as long.
-- It is only ever raised. To lower it, once no endpoint on this file asks for the longer one any more:
-- UPDATE hapax_meta SET value = 604800000 WHERE name = 'retention_ms'; -- seven days
CREATE TABLE IF NOT EXISTS hapax_meta (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO hapax_meta (name, value) VALUES ('version_floor', 0) ON CONFLICT DO NOTHING;

-- Endpoint and saga, so that entities carry a small number. Rows are never changed or removed.
CREATE TABLE IF NOT EXISTS hapax_scope (
    id       INTEGER PRIMARY KEY,
    endpoint TEXT    NOT NULL,
    saga     TEXT    NOT NULL,
    UNIQUE (endpoint, saga)
) STRICT;

CREATE TABLE IF NOT EXISTS hapax_entity (
    id            INTEGER PRIMARY KEY,
    scope         INTEGER NOT NULL REFERENCES hapax_scope (id),
    key           TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    token         INTEGER NOT NULL, -- of the write that made this version
    completed     INTEGER NOT NULL,
    changed_at    INTEGER NOT NULL, -- milliseconds since 1970
    pending_since INTEGER,          -- no outbox entry is older; null: the outbox is empty
    pending       TEXT,             -- the outbox entries: {attempt: [dedup key, saved at]}, ids in hex
    outbox        BLOB    NOT NULL, -- hapax record
    state         BLOB    NOT NULL  -- framed state; last, because it may be long
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS hapax_entity_key ON hapax_entity (scope, key);
-- What the sweeper looks for, in the order in which it pages.
CREATE INDEX IF NOT EXISTS hapax_entity_pending ON hapax_entity (scope, key, pending_since)
    WHERE pending_since IS NOT NULL;
-- Tombstones that may be purged one day.
CREATE INDEX IF NOT EXISTS hapax_entity_completed ON hapax_entity (scope, changed_at)
    WHERE completed = 1 AND pending_since IS NULL;

-- Dedup entries are kept in generations by the time of their insertion: the newest takes all, and the oldest is dropped
-- whole. A generation without a row here does not exist, whatever hapax_dedup still holds of it.
CREATE TABLE IF NOT EXISTS hapax_generation (
    id        INTEGER PRIMARY KEY,
    opened_at INTEGER NOT NULL, -- milliseconds since 1970
    closed_at INTEGER           -- null: the newest
) STRICT;
INSERT INTO hapax_generation (id, opened_at)
    SELECT 1, CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE NOT EXISTS (SELECT 1 FROM hapax_generation);

CREATE TABLE IF NOT EXISTS hapax_dedup (
    generation  INTEGER NOT NULL,
    key         BLOB    NOT NULL,
    attempt     BLOB    NOT NULL,
    fingerprint BLOB    NOT NULL,
    time        INTEGER NOT NULL, -- by the saver's clock, milliseconds since 1970
    reply       BLOB,             -- hapax record
    PRIMARY KEY (generation, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS hapax_dead_letter (
    id          INTEGER PRIMARY KEY,
    endpoint    TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    saga        TEXT    NOT NULL, -- empty: no saga was found for it
    destination TEXT    NOT NULL, -- empty: it could not be handled; else: it could not be sent there
    fingerprint BLOB    NOT NULL, -- of the message's type and body: another body under one id is another letter
    attempts    INTEGER NOT NULL,
    time        INTEGER NOT NULL, -- milliseconds since 1970
    reason      TEXT    NOT NULL,
    envelope    BLOB    NOT NULL, -- hapax record
    UNIQUE (endpoint, message_id, saga, destination, fingerprint)
) STRICT;

INSERT INTO hapax_migration (version, name, applied_at)
    VALUES (1, 'initial', CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT DO NOTHING;
