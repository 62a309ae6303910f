//! Opening: the user's own file.

use hapax::{SqliteOutbox, ports::ErrorKind};
use hapax_tests::Scratch;
use sqlx::{Connection, Executor, SqliteConnection};

use super::sink::{Placed, Sink, quick, relay};

#[tokio::test]
async fn tables_are_added_to_the_users_own_file_or_by_hand() {
    let dir = Scratch::new("outbox");
    let file = dir.file("shop.db");
    let url = format!("sqlite://{}?mode=rwc", file.display());
    let mut own = SqliteConnection::connect(&url).await.unwrap();
    own.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)").await.unwrap();
    let missing = SqliteOutbox::options().open(&file).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Absent, "{missing:?}");
    assert!(missing.to_string().contains("SqliteOutbox::schema_sql"), "{missing}");
    for _ in 0..2 {
        own.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(SqliteOutbox::schema_sql()))).await.unwrap();
    }
    let outbox = SqliteOutbox::options().open(&file).await.unwrap();
    let sink = Sink::new();
    let relay = relay(&outbox, &sink, quick());
    let mut tx = own.begin().await.unwrap();
    let ticket = outbox.enqueue(&mut tx, &Placed { order: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    ticket.committed();
    sink.until(|sink| sink.distinct() == [1]).await;
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn several_that_start_at_once_migrate_once() {
    let dir = Scratch::new("outbox");
    let open = || SqliteOutbox::open(dir.file("shop.db"));
    let opened = tokio::join!(open(), open(), open(), open());
    for outbox in [opened.0, opened.1, opened.2, opened.3] {
        outbox.unwrap();
    }
}
