-- hapax on SQLite, schema 3: messages that are not due yet.
CREATE TABLE IF NOT EXISTS hapax_schedule (
    id           INTEGER PRIMARY KEY AUTOINCREMENT, -- never given again: receipts say it
    endpoint     TEXT    NOT NULL, -- that sends it
    message_id   TEXT    NOT NULL,
    destination  TEXT    NOT NULL,
    due_at       INTEGER NOT NULL, -- milliseconds since 1970
    leased_until INTEGER NOT NULL DEFAULT 0,
    taken        INTEGER NOT NULL DEFAULT 0, -- how often: a receipt with an older number is lost
    envelope     BLOB    NOT NULL, -- hapax record
    UNIQUE (endpoint, message_id, destination)
) STRICT;

CREATE INDEX IF NOT EXISTS hapax_schedule_due ON hapax_schedule (endpoint, due_at);

-- Programs that know schema 1 or 2 and no more may go on: they leave the table alone.
INSERT INTO hapax_meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING;

INSERT INTO hapax_migration (version, name, applied_at)
    VALUES (3, 'schedule', CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT DO NOTHING;
