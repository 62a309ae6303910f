//! Of bodies that are too large to travel. Each is its own transaction.

/// $1 name, $2 endpoint, $3 now, $4 record, $5 body.
pub(in crate::sql::sqlite) const PUT: &str = "\
    INSERT INTO hapax_body (name, revision, endpoint, put_at, staged, record, body) \
    VALUES ($1, 1, $2, $3, 1, $4, $5) ON CONFLICT DO NOTHING";

/// $1 name.
pub(in crate::sql::sqlite) const RECORD: &str = "SELECT revision, record FROM hapax_body WHERE name = $1";

/// $1 name, $2 its revision, $3 over at, $4 record, $5 whether the body is needed.
pub(in crate::sql::sqlite) const CHANGE: &str = "\
    UPDATE hapax_body SET revision = revision + 1, staged = 0, over_at = $3, record = $4, \
    body = CASE WHEN $5 THEN body END WHERE name = $1 AND revision = $2";

/// $1 name.
pub(in crate::sql::sqlite) const GET: &str = "SELECT record, body FROM hapax_body WHERE name = $1";

/// $1 endpoint, $2 put before, $3 limit.
pub(in crate::sql::sqlite) const STAGED: &str = "\
    SELECT name, record FROM hapax_body INDEXED BY hapax_body_staged \
    WHERE endpoint = $1 AND put_at < $2 AND staged = 1 ORDER BY put_at LIMIT $3";

/// $1 name.
pub(in crate::sql::sqlite) const UNSTAGE: &str = "DELETE FROM hapax_body WHERE name = $1 AND staged = 1";

/// $1 now, $2 limit.
pub(in crate::sql::sqlite) const COLLECT: &str = "\
    DELETE FROM hapax_body WHERE name IN \
      (SELECT name FROM hapax_body INDEXED BY hapax_body_over WHERE over_at <= $1 ORDER BY over_at LIMIT $2)";

#[cfg(test)]
pub(super) const ALL: [&str; 7] = [PUT, RECORD, CHANGE, GET, STAGED, UNSTAGE, COLLECT];
