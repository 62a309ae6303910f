//! Removing tombstones.

use std::sync::Arc;

use sqlx::mysql::MySqlArguments;

use super::{
    arguments::{Bind, Text},
    connection::Link,
    error::Failure,
    names::Names,
    rows::Columns,
    statements::{self, AND_KEYS, FOR_UPDATE, OF_SCOPE},
};

/// Tombstones that are removed in one transaction: what has its floor waits for it.
pub(super) const PAGE: i64 = 500;
/// Keys in one statement: of a longer list MariaDB makes a temporary table.
const UNWATCHED_AT_ONCE: usize = 500;

/// Removes at most `limit` tombstones of `scope`, which were completed `age` milliseconds ago or longer. The floor for
/// versions is raised with it, and nobody begins an entity meanwhile, so that one that comes again never has a version that
/// was used before.
pub(super) async fn purge(link: &mut Link, names: &Names, scope: i64, age: i64, limit: i64) -> Result<usize, Failure> {
    let text = |sql: &str| -> Arc<str> { names.put_into(sql).into() };
    let mut arguments = MySqlArguments::default();
    arguments.bind(scope).bind(age).bind(limit);
    let old = link.read(&text(&statements::to_purge()), arguments).await?;
    let keys = old.iter().filter_map(|row| row.bytes(0).transpose()).collect::<Result<Vec<_>, _>>();
    let keys = keys.map_err(Failure::of_read)?;
    if keys.is_empty() {
        return Ok(0);
    }
    // Looked at again once they are locked: a saga may have been taken up since.
    let mut lock = Text::with_capacity(1000 + keys.len() * 100);
    lock.sql(&text(statements::PURGE_LOCK)).end();
    lock.sql(&text(&statements::lock_tombstones())).number(age).sql(OF_SCOPE);
    of_keys(&mut lock, scope, &keys).sql(FOR_UPDATE);
    let locked = link.begin(lock).await?;
    let gone: Result<Vec<_>, _> = match locked.get(1) {
        Some(answer) => answer.rows.iter().map(|row| Ok((row.bytes(0)?.unwrap_or_default(), row.number(1)?))).collect(),
        None => Ok(Vec::new()),
    };
    let gone: Vec<(&[u8], i64)> = match gone {
        Ok(gone) if !gone.is_empty() => gone,
        Ok(_) => {
            link.roll_back().await;
            return Ok(0);
        }
        Err(e) => {
            link.roll_back().await;
            return Err(Failure::of_read(e));
        }
    };
    let highest = gone.iter().map(|(_, version)| *version).max().unwrap_or_default();
    let mut delete = Text::with_capacity(1000 + gone.len() * 100);
    let keys: Vec<&[u8]> = gone.iter().map(|(key, _)| *key).collect();
    of_keys(delete.sql(&text(statements::PURGE)), scope, &keys).sql(")").end();
    delete.sql(&text(statements::RAISE_FLOOR)).number(highest).sql(statements::OF_THE_FLOOR);
    link.commit(delete).await?;
    Ok(gone.len())
}

/// Takes those of `keys` that still have nothing waiting, and have not been changed for `age` milliseconds, from the sweeper's
/// list. Where others write them at that moment it is as good the next time.
pub(super) async fn unwatch(
    link: &mut Link,
    names: &Names,
    scope: i64,
    keys: &[Vec<u8>],
    age: i64,
) -> Result<(), Failure> {
    let sql = names.put_into(&statements::unwatch());
    for some in keys.chunks(UNWATCHED_AT_ONCE) {
        let mut text = Text::with_capacity(1000 + some.len() * 100);
        text.sql(&sql).number(age).sql(OF_SCOPE);
        let some: Vec<&[u8]> = some.iter().map(|key| &key[..]).collect();
        of_keys(&mut text, scope, &some).sql(")");
        match link.write_text(text).await {
            Err(failure) if failure.is_of_a_race() => {}
            written => {
                written?;
            }
        }
    }
    Ok(())
}

/// `.. scope = 1 AND key IN (..`
pub(super) fn of_keys<'t>(text: &'t mut Text, scope: i64, keys: &[&[u8]]) -> &'t mut Text {
    text.number(scope).sql(AND_KEYS);
    for (at, key) in keys.iter().enumerate() {
        text.sql(if at == 0 { "" } else { ", " }).bytes(key);
    }
    text
}
