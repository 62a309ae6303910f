//! Others' tables in the store's file: their rows share its commits, and everyone learns what became of its own.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use common::*;
use futures_util::future::join_all;
use hapax_core::{
    entity::Expected,
    ports::{EntityStore, ErrorKind, Saved},
};
use hapax_stores::sql::sqlite::ride::{Kind, Rider, Rows, Schema};
use sqlx::Row;

static SCHEMA: Schema = Schema {
    opening: "opening the notes",
    remedy: "set `migrate(true)`",
    tables: "SELECT count(*), coalesce(sum(name = 'note_migration'), 0) FROM sqlite_schema WHERE type = 'table'",
    version: "SELECT coalesce(max(version), 0) FROM note_migration",
    numbers: "note_meta",
    probe: "UPDATE note_migration SET version = version",
    rows: &[],
    framed: None,
    migrations: &[
        (
            1,
            "CREATE TABLE note_migration (version INTEGER PRIMARY KEY); INSERT INTO note_migration VALUES (1); \
             CREATE TABLE note (id INTEGER PRIMARY KEY, body BLOB NOT NULL CHECK (length(body) < 100), at INTEGER)",
        ),
        (2, "INSERT INTO note_migration VALUES (2); ALTER TABLE note ADD COLUMN token INTEGER"),
    ],
};

/// Removes, then writes, then takes.
static NOTES: [Kind; 3] = [
    Kind {
        sql: "DELETE FROM note WHERE id IN (SELECT value ->> 0 FROM json_each({rows})) RETURNING 0, id",
        statements: 1,
        usual: true,
        shared: true,
        bytes: false,
    },
    Kind {
        sql: "INSERT INTO note (at, token, body) \
              SELECT {now}, value ->> 2, substr({bytes}, (value ->> 0) + 1, value ->> 1) FROM json_each({rows}) \
              WHERE true RETURNING 1, token, id",
        statements: 1,
        usual: true,
        shared: true,
        bytes: true,
    },
    Kind {
        sql: "UPDATE note SET token = {rows} ->> '$[0][0]' WHERE id IN \
              (SELECT id FROM note WHERE token > 0 ORDER BY id LIMIT coalesce({rows} ->> '$[0][1]', 0)) \
              RETURNING 2, token, id",
        statements: 1,
        usual: false,
        shared: false,
        bytes: false,
    },
];
const REMOVE: usize = 0;
const WRITE: usize = 1;
const TAKE: usize = 2;

/// The same in another family.
static OTHERS: [Kind; 1] = [Kind {
    sql: "INSERT INTO note (at, token, body) SELECT {now}, value ->> 0, x'00' FROM json_each({rows}) WHERE true \
          RETURNING 3, token",
    statements: 1,
    usual: true,
    shared: true,
    bytes: false,
}];

async fn rider(place: &Place) -> (hapax_stores::Sqlite, Rider) {
    let store = place.open().await;
    name(&store).await;
    let rider = Rider::on(&store, &SCHEMA, true).await.unwrap();
    (store, rider)
}

async fn write(rider: &Rider, token: i64, body: &str) -> Result<Vec<i64>, ErrorKind> {
    let mut rows = Rows::default();
    rows.push(Some((1, token)), &(token,), body.as_bytes());
    ids(rider, WRITE, rows).await
}

/// What a ride returns, third column.
async fn ids(rider: &Rider, kind: usize, rows: Rows) -> Result<Vec<i64>, ErrorKind> {
    let returned = rider.ride("testing", &NOTES, kind, rows).await.map_err(|e| e.kind())?;
    Ok(returned.iter().map(|row| row.get(2)).collect())
}

#[tokio::test]
async fn riders_of_two_families_share_commits_with_saves_and_learn_their_own_results() {
    let place = Place::new();
    let (store, rider) = rider(&place).await;
    let before = store.commits();
    let writes = join_all((1..=100).map(|token| {
        let rider = &rider;
        async move { write(rider, token, &format!("note {token}")).await.unwrap() }
    }));
    let others = join_all((1..=100).map(|token| {
        let rider = &rider;
        async move {
            let mut rows = Rows::default();
            rows.push(Some((3, -token)), &(-token,), &[]);
            let returned = rider.ride("testing", &OTHERS, 0, rows).await.unwrap();
            assert_eq!(returned.len(), 1);
            assert_eq!(returned[0].get::<i64, _>(1), -token);
        }
    }));
    let saves = join_all((0..50).map(|number| {
        let store = &store;
        async move {
            let saved = store.save(&entity_key(&number.to_string()), &Expected::Absent, &entity("s", &[]), &[]).await;
            assert!(matches!(saved.unwrap(), Saved::At(_)));
        }
    }));
    let (written, _, _) = tokio::join!(writes, others, saves);
    let commits = store.commits() - before;
    assert!(commits < 15, "250 writes took {commits} commits");
    for (token, ids) in (1..=100).zip(written) {
        let [id] = ids[..] else { panic!("{token} was told {ids:?}") };
        let body = format!(
            "SELECT count(*) FROM note WHERE id = {id} AND token = {token} AND body = CAST('note {token}' AS BLOB)"
        );
        assert_eq!(place.number(&body).await, 1, "{token} was told of another's");
    }
    assert_eq!(place.number("SELECT count(*) FROM note").await, 200);
}

#[tokio::test]
async fn rides_that_share_no_statement_each_get_their_own_however_many_there_are() {
    let place = Place::new();
    let (_store, rider) = rider(&place).await;
    for token in 1..=40 {
        write(&rider, token, "x").await.unwrap();
    }
    let taken = join_all((1..=11).map(|taker| {
        let rider = &rider;
        async move {
            let mut rows = Rows::default();
            rows.push(Some((2, -taker)), &(-taker, 3), &[]);
            ids(rider, TAKE, rows).await.unwrap()
        }
    }))
    .await;
    let mut all = taken.concat();
    assert!(taken.iter().all(|ids| ids.len() == 3), "{taken:?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 33, "one was given to two: {taken:?}");
}

#[tokio::test]
async fn kinds_run_in_their_order_and_a_wish_of_two_is_granted_once() {
    let place = Place::new();
    let (_store, rider) = rider(&place).await;
    let [id] = write(&rider, 1, "first").await.unwrap()[..] else { panic!("it has no id") };
    let remove = || {
        let mut rows = Rows::default();
        rows.push(Some((0, id)), &(id,), &[]);
        rider.ride("testing", &NOTES, REMOVE, rows)
    };
    // Removed before it is written anew, so that the number is free again, whoever asked first.
    let (written, one, other) = tokio::join!(write(&rider, 2, "second"), remove(), remove());
    assert_eq!(written.unwrap(), [id]);
    assert_eq!((one.unwrap().len(), other.unwrap().len()), (1, 0));
    assert_eq!(place.number("SELECT count(*) FROM note").await, 1);
}

#[tokio::test]
async fn a_rider_that_is_refused_hurts_neither_saves_nor_other_riders() {
    let place = Place::new();
    let (store, rider) = rider(&place).await;
    let long = "x".repeat(200);
    let key = entity_key("a");
    let state = entity("s", &[]);
    let (good, bad, saved, last) = tokio::join!(
        write(&rider, 1, "good"),
        write(&rider, 2, &long),
        store.save(&key, &Expected::Absent, &state, &[]),
        write(&rider, 3, "last"),
    );
    assert_eq!(bad.unwrap_err(), ErrorKind::Misconfigured);
    assert!(good.is_ok() && last.is_ok());
    assert!(matches!(saved.unwrap(), Saved::At(_)));
    assert_eq!(place.number("SELECT count(*) FROM note").await, 2);
    assert!(store.load(&key, &[]).await.unwrap().stored.is_some());
}

#[tokio::test]
async fn a_schema_is_brought_up_to_date_once_and_only_if_it_may_be() {
    let place = Place::new();
    let store = place.open().await;
    let refused = Rider::on(&store, &SCHEMA, false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Absent, "{refused}");
    assert!(
        refused.to_string().contains("opening the notes") && refused.to_string().contains("no tables of hapax"),
        "{refused}"
    );
    for _ in 0..2 {
        Rider::on(&store, &SCHEMA, true).await.unwrap();
    }
    assert_eq!(place.number("SELECT count(*) FROM note_migration").await, 2);
}
