#![allow(clippy::unwrap_used)]

use hapax_core::{
    entity::DedupEntry,
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::DedupStore,
    time::Timestamp,
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use super::{Postgres, PostgresOptions, names::Names, statements};

fn options(schema: &str) -> PostgresOptions {
    let url = std::env::var("HAPAX_TEST_POSTGRES");
    let url =
        url.expect("no PostgreSQL to test with: run `cargo xtask test`, or set HAPAX_TEST_POSTGRES=postgres://..");
    Postgres::options(url).schema(schema)
}

#[tokio::test]
async fn the_server_takes_every_statement() {
    let schema = format!("hapax_prepare_{}", std::process::id());
    let options = options(&schema);
    Postgres::migrate(options.clone()).await.unwrap();
    let names = Names::new(&schema, "").unwrap();
    let mut connection = PgConnection::connect_with(&options.place().unwrap()).await.unwrap();
    for sql in all() {
        let text = names.put_into(&sql);
        let prepared = connection.prepare(AssertSqlSafe(text.clone()).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {text}", prepared.unwrap_err());
    }
    connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE")))).await.unwrap();
}

/// The statement is refused then, and written again by another that leaves them out: beside others, and alone. Both ways are
/// gone more than once, since the first refusal makes the writer wary for a while.
#[tokio::test]
async fn known_dedup_entries_stay_as_they_are_and_the_new_ones_beside_them_go_in() {
    let schema = format!("hapax_known_{}", std::process::id());
    let entry = |key: u8, attempt: u8| DedupEntry {
        key: DedupKey::from_bytes([key; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([attempt; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(0),
    };
    let store = options(&schema).migrate(true).open().await.unwrap();
    store.insert(&[entry(1, 1), entry(2, 1)]).await.unwrap();
    for again in [&[entry(1, 2), entry(3, 2)][..], &[entry(2, 2)]] {
        // Another store each time: one that is not wary.
        let store = options(&schema).open().await.unwrap();
        for _ in 0..2 {
            store.insert(again).await.unwrap();
        }
        let known = store.contains(&[1, 2, 3].map(|key| entry(key, 0).key)).await.unwrap();
        for (key, attempt) in [(1, 1), (2, 1), (3, 2)] {
            assert_eq!(known.entry(&entry(key, 0).key), Some(&entry(key, attempt)));
        }
        store.close().await;
    }
    store.close().await;
    let mut connection = PgConnection::connect_with(&options(&schema).place().unwrap()).await.unwrap();
    connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE")))).await.unwrap();
}

/// Every text, for the test that prepares them.
fn all() -> Vec<String> {
    use statements::*;
    use {DedupPart as D, EntityPart as E, Known as K};
    let mut all = Vec::new();
    for entity in [E::None, E::Update, E::Create] {
        for dedup in [D::None, D::Always, D::IfWon] {
            if entity == E::None && dedup == D::Always {
                all.extend([K::Refused, K::Skipped].map(|known| one(entity, Waiting::None, dedup, known, 1)));
            }
            if entity != E::None {
                let waiting = [Waiting::None, Waiting::One, Waiting::Any];
                all.extend(waiting.map(|waiting| one(entity, waiting, dedup, K::Refused, 1)));
            }
        }
    }
    for bits in 1..8 {
        let (updates, creates, dedup) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        all.extend([K::Refused, K::Skipped].map(|known| group(Kinds { updates, creates, dedup }, known, 2)));
    }
    let slots = [(1, 0), (2, 3)];
    all.extend([load_one(&slots), load_many(&slots), pending_page(), may_purge(), purge(), generations()]);
    all.extend([holds_any(0), close(), begin(), drop_generation(), count(0)]);
    all.extend([VERSION, SCOPE_ID, SCOPE_ADD, RETENTION, LETTER_ADD, LETTER_LIST, SCHEMA_VERSION].map(str::to_owned));
    all
}
