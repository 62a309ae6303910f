-- hapax outbox on PostgreSQL, schema 1. All times are milliseconds since 1970 by the server's clock, but for those that the
-- sender has set (occurred_at, due_at, expires_at).
--
-- `hapax.` stands for the schema and the prefix of the tables' names; every table's but the inbox's begins with `outbox`.

CREATE TABLE IF NOT EXISTS hapax.outbox_migration (
    version    int         PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Numbers by name. `usable_from`: the oldest schema that a program must know to go on with this one.
CREATE TABLE IF NOT EXISTS hapax.outbox_meta (
    name  text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);

-- Messages, stored in the transactions of those who send them. A row that waits may be claimed from `ready_at` on; one that is
-- claimed waits as well, until its lease is over.
CREATE TABLE IF NOT EXISTS hapax.outbox (
    id              uuid     PRIMARY KEY,      -- message id on the wire
    status          smallint NOT NULL,         -- 0 waits, 1 sent, 2 failed, 3 expired
    attempts        int      NOT NULL,         -- counted with the claim, before anything is sent
    ready_at        bigint   NOT NULL,         -- not claimed before: due time, end of the lease, or of the back-off
    token           bigint   NOT NULL,         -- of the claim; 0: of none
    owner           bigint,                    -- relay that has the claim
    stored_at       bigint   NOT NULL,
    ended_at        bigint,                    -- when its status became another one
    occurred_at     bigint,
    due_at          bigint,
    expires_at      bigint,
    destination     text COLLATE "C" NOT NULL, -- endpoint:NAME or topic:TYPE
    key             text COLLATE "C",          -- partition key
    type            text COLLATE "C" NOT NULL,
    content_type    text COLLATE "C" NOT NULL,
    correlation_id  text COLLATE "C",
    causation_id    text COLLATE "C",
    tenant          text COLLATE "C",
    traceparent     text COLLATE "C",
    headers         text,                      -- JSON object: headers of the application, and of hapax what has no column
    last_error      text,
    number          bigint,                    -- place in its lane, in the order of commits; null where no order is kept
    lane            text COLLATE "C",          -- of which the order is kept: the key, or the id where there is none
    partition       int,                       -- of the lane
    body            bytea    NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX IF NOT EXISTS hapax_outbox_ready ON hapax.outbox (ready_at) WHERE status = 0;
CREATE INDEX IF NOT EXISTS hapax_outbox_lane ON hapax.outbox (partition, lane, number) WHERE status IN (0, 2) AND number IS NOT NULL;
CREATE INDEX IF NOT EXISTS hapax_outbox_failed ON hapax.outbox (ended_at) WHERE status = 2;
CREATE INDEX IF NOT EXISTS hapax_outbox_over ON hapax.outbox (ended_at) WHERE status IN (1, 3);

-- What was sent and is kept for longer. `status` 1 sent, 3 expired.
CREATE TABLE IF NOT EXISTS hapax.outbox_archive (
    id              uuid     PRIMARY KEY,
    status          smallint NOT NULL,
    attempts        int      NOT NULL,
    stored_at       bigint   NOT NULL,
    ended_at        bigint   NOT NULL,
    occurred_at     bigint,
    due_at          bigint,
    expires_at      bigint,
    destination     text COLLATE "C" NOT NULL,
    key             text COLLATE "C",
    type            text COLLATE "C" NOT NULL,
    content_type    text COLLATE "C" NOT NULL,
    correlation_id  text COLLATE "C",
    causation_id    text COLLATE "C",
    tenant          text COLLATE "C",
    traceparent     text COLLATE "C",
    headers         text,
    body            bytea    NOT NULL
);
CREATE INDEX IF NOT EXISTS hapax_outbox_archive_ended ON hapax.outbox_archive (ended_at);

-- Messages that were handled in a transaction of the database. One key over all that is kept: never split by time, since there is
-- no version of an entity behind it that would catch a second winner. Purged in small batches.
CREATE TABLE IF NOT EXISTS hapax.inbox (
    key         bytea  PRIMARY KEY, -- of endpoint, handler and message
    attempt     bytea  NOT NULL,
    fingerprint bytea  NOT NULL,    -- of type and body
    reply       bytea,              -- hapax record
    handled_at  bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS hapax_inbox_handled ON hapax.inbox (handled_at);

-- Who relays. For people, and so that nobody waits for one that is gone.
CREATE TABLE IF NOT EXISTS hapax.outbox_relay (
    id         bigint PRIMARY KEY,
    service    text   NOT NULL,
    host       text   NOT NULL,
    process    bigint NOT NULL,
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL
) WITH (fillfactor = 50);

-- Where order is kept: places in the lanes, drawn while a lane is locked.
CREATE SEQUENCE IF NOT EXISTS hapax.outbox_number;

-- Where order is kept: which relay has which lanes. `epoch` counts their owners, for people: a relay that lost its lanes is fenced by
-- the tokens of its claims, and by its row in outbox_relay, without which it says and claims nothing.
CREATE TABLE IF NOT EXISTS hapax.outbox_partition (
    partition int    PRIMARY KEY,
    owner     bigint,
    epoch     bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO hapax.outbox_partition (partition, epoch) SELECT partition, 0 FROM generate_series(0, 9999) AS partition
ON CONFLICT DO NOTHING;

INSERT INTO hapax.outbox_migration (version, name) VALUES (1, 'initial') ON CONFLICT DO NOTHING;
