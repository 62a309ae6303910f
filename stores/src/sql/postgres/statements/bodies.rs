//! Of bodies that are too large to travel. Each is its own transaction.

use std::sync::Arc;

use super::super::names::Names;

/// Now, in milliseconds since 1970: the same throughout a statement, or no index would be looked into for it.
const NOW: &str = "(date_part('epoch', statement_timestamp()) * 1000)::bigint";

/// The texts, with names in them.
pub(in crate::sql::postgres) struct Texts {
    /// `$1` name, `$2` endpoint, `$3` record, `$4` body.
    pub(in crate::sql::postgres) put: Arc<str>,
    /// `$1` name. Revision, record and the server's time.
    pub(in crate::sql::postgres) record: Arc<str>,
    /// `$1` name, `$2` its revision, `$3` over at, `$4` record, `$5` whether the body is needed. One row: how many.
    pub(in crate::sql::postgres) change: Arc<str>,
    /// `$1` name.
    pub(in crate::sql::postgres) get: Arc<str>,
    /// `$1` endpoint, `$2` age, `$3` limit.
    pub(in crate::sql::postgres) staged: Arc<str>,
    /// `$1` name. One row: how many.
    pub(in crate::sql::postgres) unstage: Arc<str>,
    /// `$1` limit. One row: how many.
    pub(in crate::sql::postgres) collect: Arc<str>,
}

impl Texts {
    pub(in crate::sql::postgres) fn new(names: &Names) -> Self {
        let [put, record, change, get, staged, unstage, collect] = all().map(|text| names.put_into(&text).into());
        Self { put, record, change, get, staged, unstage, collect }
    }
}

pub(in crate::sql::postgres) fn all() -> [String; 7] {
    [
        format!(
            "INSERT INTO hapax.body (name, revision, endpoint, put_at, staged, record, body) \
             VALUES ($1, 1, $2, {NOW}, true, $3, $4) ON CONFLICT DO NOTHING"
        ),
        format!("SELECT revision, record, {NOW} FROM hapax.body WHERE name = $1"),
        "WITH changed AS (UPDATE hapax.body SET revision = revision + 1, staged = false, over_at = $3, record = $4, \
           body = CASE WHEN $5 THEN body END WHERE name = $1 AND revision = $2 RETURNING 1) \
         SELECT count(*) FROM changed"
            .to_owned(),
        "SELECT record, body FROM hapax.body WHERE name = $1".to_owned(),
        format!(
            "SELECT name, record FROM hapax.body WHERE endpoint = $1 AND put_at < {NOW} - $2 AND staged \
             ORDER BY put_at LIMIT $3"
        ),
        "WITH gone AS (DELETE FROM hapax.body WHERE name = $1 AND staged RETURNING 1) SELECT count(*) FROM gone"
            .to_owned(),
        format!(
            "WITH gone AS (DELETE FROM hapax.body WHERE name IN \
               (SELECT name FROM hapax.body WHERE over_at <= {NOW} ORDER BY over_at LIMIT $1 FOR UPDATE SKIP LOCKED) \
               RETURNING 1) \
             SELECT count(*) FROM gone"
        ),
    ]
}
