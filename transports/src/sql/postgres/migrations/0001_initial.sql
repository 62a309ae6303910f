-- hapax queues on PostgreSQL, schema 1. All times are milliseconds since 1970 by the server's clock.
--
-- `hapax.` stands for the schema and the prefix of the tables' names; every table's begins with `queue`, so that a store's
-- may be beside them.

CREATE TABLE IF NOT EXISTS hapax.queue_migration (
    version    int         PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Numbers by name. `usable_from`: the oldest schema that a program must know to go on with this one.
CREATE TABLE IF NOT EXISTS hapax.queue_meta (
    name  text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);

-- A queue for each endpoint that has connected or has been sent to, so that messages carry a small number. Rows are never
-- changed or removed.
CREATE TABLE IF NOT EXISTS hapax.queue (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint text COLLATE "C" NOT NULL UNIQUE
);

-- Who gets what is published.
CREATE TABLE IF NOT EXISTS hapax.queue_subscription (
    type  text COLLATE "C" NOT NULL,
    queue bigint NOT NULL,
    PRIMARY KEY (type, queue)
);

-- A message is inserted, given and deleted. What changes when it is given is in no index, so that the new version of its
-- row stays on its page (heap-only): half of each page is left for that, and is free again as soon as nobody can see the
-- old version. Deleted rows are cleared away often; it takes little, because the table is small when nothing lags behind.
CREATE TABLE IF NOT EXISTS hapax.queue_message (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- of one sender in the order of sending
    queue        bigint NOT NULL,
    due_at       bigint NOT NULL, -- not given before: when it was sent, was due, or is to be retried
    leased_until bigint NOT NULL, -- not given before, either; 0: no lease
    token        bigint NOT NULL, -- of the lease
    deliveries   bigint NOT NULL,
    sent_at      bigint NOT NULL,
    first_at     bigint,          -- when it was first given; null: not yet
    key          text COLLATE "C", -- partition key, where order is asked for
    message_id   text COLLATE "C" NOT NULL,
    envelope     bytea NOT NULL   -- hapax record
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000
);
-- Messages live for too short a time to be compressed.
ALTER TABLE hapax.queue_message ALTER COLUMN envelope SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS hapax_queue_message_due ON hapax.queue_message (queue, due_at, id);
CREATE INDEX IF NOT EXISTS hapax_queue_message_key ON hapax.queue_message (queue, key, id) WHERE key IS NOT NULL;

-- Where order is asked for: messages that have been given and not settled, so that one process at a time has a key. A table
-- of its own, since an index over leases would cost every message its heap-only update.
CREATE TABLE IF NOT EXISTS hapax.queue_given (
    id    bigint PRIMARY KEY, -- the message's
    queue bigint NOT NULL,
    key   text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS hapax_queue_given_key ON hapax.queue_given (queue, key);

CREATE TABLE IF NOT EXISTS hapax.queue_dead_letter (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint    text COLLATE "C" NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    saga        text COLLATE "C" NOT NULL, -- empty: no saga was found for it
    destination text COLLATE "C" NOT NULL, -- empty: it could not be handled; else: it could not be sent there
    fingerprint bytea,           -- of type and body; null: set aside by the queue, which is once for each message in it
    attempts    bigint NOT NULL,
    sent_at     bigint,          -- null: it was not in a queue
    first_at    bigint,          -- when it was first given
    time        bigint NOT NULL, -- when it was set aside
    reason      text   NOT NULL,
    envelope    bytea  NOT NULL, -- hapax record
    UNIQUE (endpoint, message_id, saga, destination, fingerprint)
);
CREATE INDEX IF NOT EXISTS hapax_queue_dead_letter_list ON hapax.queue_dead_letter (endpoint, id);
CREATE INDEX IF NOT EXISTS hapax_queue_dead_letter_time ON hapax.queue_dead_letter (time);

INSERT INTO hapax.queue_migration (version, name) VALUES (1, 'initial') ON CONFLICT DO NOTHING;
