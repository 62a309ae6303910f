-- hapax on PostgreSQL, schema 4: bodies that are too large to travel.
CREATE TABLE IF NOT EXISTS hapax.body (
    name     text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,           -- of the record: it is replaced by compare-and-set
    endpoint text COLLATE "C" NOT NULL, -- that has put it
    put_at   bigint NOT NULL,           -- by the server's clock, milliseconds since 1970
    staged   boolean NOT NULL,          -- whether the save that refers to it was confirmed is not known
    over_at  bigint,                    -- from when on nothing of it is needed; null: that is not known
    record   text NOT NULL,             -- who needs it, as JSON
    body     bytea                      -- null: nobody needs it, but who released it is still told so
);
CREATE INDEX IF NOT EXISTS hapax_body_staged ON hapax.body (endpoint, put_at) WHERE staged;
CREATE INDEX IF NOT EXISTS hapax_body_over ON hapax.body (over_at) WHERE over_at IS NOT NULL;
-- What is encrypted or compressed already is not compressed again.
ALTER TABLE hapax.body ALTER COLUMN body SET STORAGE EXTERNAL;

-- Programs of older schemas may go on: they leave the table alone.
INSERT INTO hapax.meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING;

INSERT INTO hapax.migration (version, name) VALUES (4, 'bodies') ON CONFLICT DO NOTHING;
