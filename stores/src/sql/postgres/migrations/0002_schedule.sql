-- hapax on PostgreSQL, schema 2: messages that are not due yet. Each is written once, given to somebody, and removed: room is
-- left on each page for the second of these, which touches no indexed column.
CREATE TABLE IF NOT EXISTS hapax.schedule (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint     text COLLATE "C" NOT NULL, -- that sends it
    message_id   text COLLATE "C" NOT NULL,
    destination  text COLLATE "C" NOT NULL,
    due_at       bigint NOT NULL, -- by the sender's clock
    leased_until bigint NOT NULL DEFAULT 0,
    token        bigint NOT NULL DEFAULT 0, -- of whoever was given it last: a receipt with another one is lost
    bytes        bigint NOT NULL, -- of the envelope
    envelope     bytea  NOT NULL, -- hapax record
    UNIQUE (endpoint, message_id, destination)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX IF NOT EXISTS hapax_schedule_due ON hapax.schedule (endpoint, due_at, id);

-- Programs that know schema 1 and no more may go on: they leave the table alone.
INSERT INTO hapax.meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING;

INSERT INTO hapax.migration (version, name) VALUES (2, 'schedule') ON CONFLICT DO NOTHING;
