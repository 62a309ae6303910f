-- hapax queues on SQLite, schema 2: what of a key is given, so that one process at a time has it, also when a message that
-- was sent earlier becomes due meanwhile.
CREATE INDEX IF NOT EXISTS hapax_queue_message_given ON hapax_queue_message (queue, key)
    WHERE key IS NOT NULL AND place = 1;

-- Numbers that belong to the whole queue file. usable_from: the oldest schema that a program must know to go on with it.
CREATE TABLE IF NOT EXISTS hapax_queue_meta (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- A program that knows schema 1 and no more may go on: SQLite keeps the index for it.
INSERT INTO hapax_queue_meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING;

INSERT INTO hapax_queue_migration (version, name, applied_at)
    VALUES (2, 'given', CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT DO NOTHING;
