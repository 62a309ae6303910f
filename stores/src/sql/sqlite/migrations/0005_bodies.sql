-- hapax on SQLite, schema 5: bodies that are too large to travel.
CREATE TABLE IF NOT EXISTS hapax_body (
    name      TEXT    PRIMARY KEY,
    revision  INTEGER NOT NULL, -- of the record: it is replaced by compare-and-set
    endpoint  TEXT    NOT NULL, -- that has put it
    put_at    INTEGER NOT NULL, -- milliseconds since 1970
    staged    INTEGER NOT NULL, -- 1: whether the save that refers to it was confirmed is not known
    over_at   INTEGER,          -- from when on nothing of it is needed; null: that is not known
    record    TEXT    NOT NULL, -- who needs it, as JSON
    body      BLOB              -- null: nobody needs it, but who released it is still told so
) STRICT;

CREATE INDEX IF NOT EXISTS hapax_body_staged ON hapax_body (endpoint, put_at) WHERE staged = 1;
CREATE INDEX IF NOT EXISTS hapax_body_over ON hapax_body (over_at) WHERE over_at IS NOT NULL;

-- Programs that know schema 1 to 3 and no more may go on: they leave the table alone.
INSERT INTO hapax_meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING;

INSERT INTO hapax_migration (version, name, applied_at)
    VALUES (5, 'bodies', CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT DO NOTHING;
