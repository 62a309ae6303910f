//! Removing tombstones.

use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use super::{
    arguments::{Begin, put_in},
    error::Failure,
    names::Names,
    statements,
};

/// Removes at most `limit` tombstones of `scope`, which were completed `age` milliseconds ago or longer. The floor for
/// versions is raised with it, and nobody begins an entity meanwhile, so that one that comes again never has a version that
/// was used before.
pub(super) async fn purge(
    connection: &mut PgConnection,
    begin: &Begin,
    names: &Names,
    scope: i64,
    age: i64,
    limit: i64,
) -> Result<usize, Failure> {
    let text = |sql: &str| AssertSqlSafe(names.put_into(sql));
    let any = sqlx::raw_sql(text(&begin.alone(put_in(&statements::may_purge(), &[scope, age]))));
    let any: bool = connection.fetch_one(any).await.and_then(|row| row.try_get(0)).map_err(Failure::of_read)?;
    if limit == 0 || !any {
        return Ok(0);
    }
    connection.execute(sqlx::raw_sql(AssertSqlSafe(begin.with_lock_limit()))).await.map_err(Failure::of_read)?;
    match connection.execute(sqlx::raw_sql(text(statements::PURGE_LOCK))).await.map_err(Failure::of_read) {
        // A dump of the database, for one. Whoever begins an entity would wait with us; tombstones go as well later.
        Err(failure) if failure.is_of_a_lock() => {
            connection.execute("ROLLBACK").await.map_err(Failure::of_read)?;
            tracing::debug!(%names, "others use the table `floor`: tombstones are purged later");
            return Ok(0);
        }
        locked => locked.map(drop)?,
    }
    let purge = sqlx::raw_sql(text(&put_in(&statements::purge(), &[scope, age, limit])));
    let purged: i64 = connection.fetch_one(purge).await.and_then(|row| row.try_get(0)).map_err(Failure::of_read)?;
    connection.execute("COMMIT").await.map_err(Failure::of_write)?;
    Ok(usize::try_from(purged).unwrap_or_default())
}
