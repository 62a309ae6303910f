//! Removing tombstones.

use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use super::{error::Failure, names::Names, statements};

/// Removes at most `limit` tombstones of `scope`, which were completed `age` milliseconds ago or longer. The floor for
/// versions is raised with it, and nobody begins an entity meanwhile, so that one that comes again never has a version that
/// was used before.
pub(super) async fn purge(
    connection: &mut PgConnection,
    names: &Names,
    scope: i64,
    age: i64,
    limit: i64,
) -> Result<usize, Failure> {
    let text = |sql: &str| AssertSqlSafe(names.put_into(sql));
    let any = sqlx::query(text(&statements::may_purge())).bind(scope).bind(age);
    let any: bool = any.fetch_one(&mut *connection).await.and_then(|row| row.try_get(0)).map_err(Failure::of_read)?;
    if limit == 0 || !any {
        return Ok(0);
    }
    connection.execute("BEGIN").await.map_err(Failure::of_read)?;
    connection.execute(sqlx::raw_sql(text(statements::PURGE_LOCK))).await.map_err(Failure::of_read)?;
    let purge = sqlx::query(text(&statements::purge())).bind(scope).bind(age).bind(limit);
    let purged: i64 =
        purge.fetch_one(&mut *connection).await.and_then(|row| row.try_get(0)).map_err(Failure::of_read)?;
    connection.execute("COMMIT").await.map_err(Failure::of_write)?;
    Ok(usize::try_from(purged).unwrap_or_default())
}
