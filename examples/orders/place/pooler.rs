//! The connection pooler before a run's server: asked by itself, so that nobody looks for its faults at the database.

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};

use super::server::{Schema, in_time, is_postgres, not_reached, place, reach};
use crate::Refusal;

const OPTION: &str = "--pooler";

/// Refuses a pooler that does not lead to `schema`, which has been made without it.
pub(super) async fn check(schema: &Schema, pooler: &str) -> Result<(), Refusal> {
    if !is_postgres(pooler) {
        // Without the URL, which may hold a password.
        let why = format!("{OPTION}: it is no URL of a pooler; write postgres://USER:PASSWORD@HOST:PORT/DATABASE");
        return Err(Refusal::new(why));
    }
    let options = reach(pooler, OPTION, schema.is_trusted())?;
    // What pgbouncer refuses of what the driver asks for by itself.
    let options = options.extra_float_digits(None).statement_cache_capacity(0).disable_statement_logging();
    let at = place(&options);
    let asked = async {
        let mut connection = options.connect().await?;
        let sql = format!("SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = '{}'", schema.name());
        let found: i64 = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql))).await?.try_get(0)?;
        connection.close().await?;
        Ok(found)
    };
    match in_time(asked).await.map_err(|e| not_reached(&options, OPTION, &at, &e))? {
        0 => Err(Refusal::new(format!(
            "{at}: {OPTION} leads to another database than --store: the run's schema is not there; correct one of the two"
        ))),
        _ => Ok(()),
    }
}
