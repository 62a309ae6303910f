-- hapax on PostgreSQL, schema 1. All times are milliseconds since 1970 by the server's clock, unless said otherwise.
--
-- `hapax.` stands for the schema and the prefix of the tables' names.

CREATE TABLE IF NOT EXISTS hapax.migration (
    version    int         PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Numbers by name. `retention_ms`: the longest retention of dedup entries that any endpoint ever asked for, which goes for
-- all. To lower it, once no endpoint asks for the longer one any more:
-- UPDATE hapax.meta SET value = 604800000 WHERE name = 'retention_ms'; -- seven days
CREATE TABLE IF NOT EXISTS hapax.meta (
    name  text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);

-- Entities that are new begin above this version, which no purged one has passed: no version comes twice. A table of its
-- own, because a purge takes it for itself alone while it works.
CREATE TABLE IF NOT EXISTS hapax.floor (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint  NOT NULL
);
INSERT INTO hapax.floor (version) VALUES (0) ON CONFLICT DO NOTHING;

-- Endpoint and saga, so that entities carry a small number. Rows are never changed or removed.
CREATE TABLE IF NOT EXISTS hapax.scope (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint text COLLATE "C" NOT NULL,
    saga     text COLLATE "C" NOT NULL,
    UNIQUE (endpoint, saga)
);

-- Two writes a message, and none of them touches an indexed column as a rule, so that a new row version stays on its page
-- (heap-only): therefore `watched` is set with the first outbox entry and taken back only when the sweeper passes by, and
-- room is left on each page.
CREATE TABLE IF NOT EXISTS hapax.entity (
    scope         bigint  NOT NULL,
    key           text COLLATE "C" NOT NULL,
    version       bigint  NOT NULL,
    token         bigint  NOT NULL, -- of the write that made this version
    changed_at    bigint  NOT NULL,
    completed_at  bigint,           -- null: the saga goes on
    pending_since bigint,           -- no outbox entry is older; null: the outbox is empty
    watched       boolean NOT NULL, -- the sweeper looks here
    pending       bytea,            -- of each outbox entry: dedup key (24 bytes), attempt (16), saved at (8)
    outbox        bytea   NOT NULL, -- hapax record
    state         bytea   NOT NULL, -- framed state
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX IF NOT EXISTS hapax_entity_watched ON hapax.entity (scope, key) WHERE watched;
CREATE INDEX IF NOT EXISTS hapax_entity_completed ON hapax.entity (scope, completed_at) WHERE completed_at IS NOT NULL;

-- Dedup entries are kept in generations by the time of their insertion, each in a table of its own: the newest takes all,
-- and the oldest is emptied whole. A table without a row here holds nothing that counts.
CREATE TABLE IF NOT EXISTS hapax.generation (
    id        bigint   PRIMARY KEY,
    slot      smallint NOT NULL UNIQUE, -- the number in the table's name
    opened_at bigint   NOT NULL,
    closed_at bigint                    -- null: the newest
);

CREATE TABLE IF NOT EXISTS hapax.dedup_0 (
    key         bytea  PRIMARY KEY,
    attempt     bytea  NOT NULL,
    fingerprint bytea  NOT NULL,
    time        bigint NOT NULL, -- by the saver's clock
    reply       bytea            -- hapax record
);
CREATE TABLE IF NOT EXISTS hapax.dedup_1 (LIKE hapax.dedup_0 INCLUDING ALL);
CREATE TABLE IF NOT EXISTS hapax.dedup_2 (LIKE hapax.dedup_0 INCLUDING ALL);
CREATE TABLE IF NOT EXISTS hapax.dedup_3 (LIKE hapax.dedup_0 INCLUDING ALL);
INSERT INTO hapax.generation (id, slot, opened_at)
    SELECT 1, 0, (date_part('epoch', clock_timestamp()) * 1000)::bigint
    WHERE NOT EXISTS (SELECT 1 FROM hapax.generation);

CREATE TABLE IF NOT EXISTS hapax.dead_letter (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint    text COLLATE "C" NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    saga        text COLLATE "C" NOT NULL, -- empty: no saga was found for it
    destination text COLLATE "C" NOT NULL, -- empty: it could not be handled; else: it could not be sent there
    fingerprint bytea  NOT NULL,           -- of the message's type and body: another body under one id is another letter
    attempts    bigint NOT NULL,
    time        bigint NOT NULL,           -- by the endpoint's clock
    reason      text   NOT NULL,
    envelope    bytea  NOT NULL,           -- hapax record
    UNIQUE (endpoint, message_id, saga, destination, fingerprint)
);

INSERT INTO hapax.migration (version, name) VALUES (1, 'initial') ON CONFLICT DO NOTHING;
