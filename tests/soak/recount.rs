//! The books once more, where they are rows: counted by SQL of their own, on the columns that the migrations describe. What an adapter reads wrongly,
//! or passes over, would be wrong in the ledger too.

use std::{path::Path, time::Duration};

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{AnyError, ledger::Books, place::StorePlace};

/// Entities; steps that they say they have handled; dead letters; entities that have something to send; messages remembered.
type Counted = (i64, i64, i64, i64, i64);

const ENTITIES: &str = "SELECT count(*) FROM hapax.entity";
const LETTERS: &str = "SELECT count(*) FROM hapax.dead_letter";
const WAITING: &str = "SELECT count(*) FROM hapax.entity WHERE pending IS NOT NULL OR pending_since IS NOT NULL";
/// In a stored state, behind its frame of two bytes.
const EFFECTS_IN_SQLITE: &str =
    "SELECT coalesce(sum(json_extract(CAST(substr(state, 3) AS TEXT), '$.handled.count')), 0) FROM hapax.entity";
const EFFECTS_ON_POSTGRES: &str = "SELECT coalesce(sum((convert_from(substring(state FROM 3), 'UTF8')::jsonb \
     #>> '{handled,count}')::bigint), 0)::bigint FROM hapax.entity";
const EFFECTS_ON_MYSQL: &str = "SELECT CAST(COALESCE(SUM(JSON_VALUE(CONVERT(SUBSTRING(state, 3) USING utf8mb4), \
     '$.handled.count')), 0) AS SIGNED) FROM hapax.entity";
/// A generation without a row counts for nothing.
const MARKS_IN_SQLITE: &str =
    "SELECT count(DISTINCT key) FROM hapax.dedup WHERE generation IN (SELECT id FROM hapax.generation)";
/// Tables of generations on a server.
const SLOTS: u8 = 6;
/// Others write for as long.
const PATIENCE: Duration = Duration::from_secs(20);

/// In what rows and ledger differ. Nothing where there are no rows.
pub(crate) async fn differences(place: &StorePlace, books: &Books) -> Result<Vec<String>, AnyError> {
    let (counted, marks) = match place {
        StorePlace::Sqlite { file } => with_its_marks(in_file(file).await?),
        StorePlace::SqliteApart { file, marks } => (in_file(file).await?, Some(in_file(marks).await?.4)),
        StorePlace::Object { file, .. } => (in_file(file).await?, None),
        StorePlace::Postgres { url, schema } => {
            let sql = all(EFFECTS_ON_POSTGRES, &in_slots("key", ""), &format!("\"{schema}\"."));
            let mut connection = PgConnection::connect(url).await?;
            with_its_marks(sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
        }
        StorePlace::MySql { url, prefix } => {
            let sql = all(EFFECTS_ON_MYSQL, &in_slots("`key`", " AND dropping = 0"), prefix);
            let mut connection = MySqlConnection::connect(url).await?;
            with_its_marks(sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
        }
        StorePlace::DynamoDb { .. } | StorePlace::Cosmos { .. } => return Ok(Vec::new()),
    };
    let (entities, effects, letters, waiting, _) = counted;
    let found = [
        ("entities", Some(entities), books.entities),
        ("effects", Some(effects), books.effects.iter().sum()),
        ("dead letters", Some(letters), books.letters),
        ("messages remembered", marks, books.marks),
    ];
    let mut differences = Vec::new();
    for (what, counted, found) in found {
        if let Some(counted) = counted
            && u64::try_from(counted) != Ok(found)
        {
            differences.push(format!("{what}: the database counts {counted}, the ledger has found {found}"));
        }
    }
    if (waiting > 0) != books.waits {
        let says = if books.waits { "something does" } else { "nothing does" };
        differences.push(format!("waits in an outbox: the database counts {waiting} entities, the ledger says {says}"));
    }
    Ok(differences)
}

/// Where they are in the same database.
const fn with_its_marks(counted: Counted) -> (Counted, Option<i64>) {
    (counted, Some(counted.4))
}

async fn in_file(file: &Path) -> Result<Counted, AnyError> {
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(PATIENCE);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let sql = all(EFFECTS_IN_SQLITE, MARKS_IN_SQLITE, "hapax_");
    Ok(sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
}

/// All that is counted, by one statement, with `names` in front of each table's.
fn all(effects: &str, marks: &str, names: &str) -> String {
    let all = [ENTITIES, effects, LETTERS, WAITING, marks];
    format!("SELECT ({})", all.join("), (")).replace("hapax.", names)
}

/// An entry may be in several generations.
fn in_slots(key: &str, more: &str) -> String {
    let slot = |slot| {
        format!(
            "SELECT {key} FROM hapax.dedup_{slot} \
             WHERE EXISTS (SELECT 1 FROM hapax.generation WHERE slot = {slot}{more})"
        )
    };
    let slots: Vec<String> = (0..SLOTS).map(slot).collect();
    format!("SELECT count(*) FROM ({}) AS marks", slots.join(" UNION "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hapax_tests::Scratch;

    use super::*;
    use crate::place::Front;

    #[tokio::test]
    async fn what_the_ledger_and_the_rows_do_not_agree_on_is_told() {
        let scratch = Scratch::new("recount");
        let place = StorePlace::Sqlite { file: scratch.file("store.db") };
        let _store = place.open(Front::Plain).await.unwrap();
        assert_eq!(differences(&place, &Books::default()).await.unwrap(), Vec::<String>::new());
        let books = Books { letters: 1, waits: true, ..Books::default() };
        let told = differences(&place, &books).await.unwrap();
        assert!(told.len() == 2 && told[0].starts_with("dead letters: the database counts 0, "), "{told:?}");
        assert!(told[1].starts_with("waits in an outbox: "), "{told:?}");
    }
}
