-- hapax on SQLite, schema 2: filters of closed generations, so that a check looks only into the few that may hold its key.
-- A file that lacks one is slower and as right. What they hold is made anew when it cannot be read.
CREATE TABLE IF NOT EXISTS hapax_generation_filter (
    generation INTEGER PRIMARY KEY,
    filter     BLOB    NOT NULL -- see `filter.rs`
) STRICT;

-- A program that knows schema 1 and no more may go on: it leaves the table alone.
INSERT INTO hapax_meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING;

INSERT INTO hapax_migration (version, name, applied_at)
    VALUES (2, 'generation filters', CAST(unixepoch('subsec') * 1000 AS INTEGER)) ON CONFLICT DO NOTHING;
