//! Opening: rights and schema.

use hapax::{
    MySql, MySqlOutbox,
    inbox::Inbox,
    ports::{Care, ErrorKind, OutboxTable, Page},
    stores::mysql::MySqlOptions,
};
use hapax_tests::MySqlTables;
use std::time::Duration;

use super::sink::{Fate, PATIENCE, Placed, Sink, quick, relay};

/// Stores, sends, fails, retries, removes and evicts, all through `database`.
async fn does_everything(database: MySqlOptions, url: &str, ordered: bool) {
    let outbox = MySqlOutbox::options().ordered_keys(ordered).open_database(database).await.unwrap();
    let sink = Sink::with(|order| if order == 1 { Fate::Impossible } else { Fate::Taken });
    let relay = relay(&outbox, &sink, quick());
    let pool = sqlx::MySqlPool::connect(url).await.unwrap();
    for order in 0..3 {
        let mut tx = pool.begin().await.unwrap();
        let ticket = outbox.enqueue(&mut tx, &Placed { order }).await.unwrap();
        outbox.commit(tx, ticket).await.unwrap();
    }
    sink.until(|sink| sink.distinct() == [0, 2]).await;
    let failed = async {
        loop {
            let failed = outbox.failed(&Page::first(10)).await.unwrap();
            if failed.len() == 1 && outbox.state().await.unwrap().stored == 0 {
                return failed[0].message_id.clone();
            }
        }
    };
    let failed = tokio::time::timeout(PATIENCE, failed).await.unwrap();
    relay.stop().await.unwrap();
    assert_eq!(outbox.retry(std::slice::from_ref(&failed)).await.unwrap(), 1);
    assert_eq!(outbox.discard(&[failed]).await.unwrap(), 0, "it waits again");
    let care = Care { keep: Duration::ZERO, archive: Some(Duration::ZERO), rows: 10 };
    assert_eq!(outbox.care(&care).await.unwrap().ended, 2);
    outbox.inbox(pool).evict(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn the_schema_is_applied_by_hand_and_an_account_with_the_grants_does_everything() {
    for ordered in [false, true] {
        let tables = MySqlTables::new();
        let name = format!("g_{}", fastrand::u32(..));
        tables.run(&format!("CREATE USER '{name}'@'%'")).await.unwrap();
        let (_, server) = tables.url().rsplit_once('@').unwrap();
        let url = format!("mysql://{name}@{server}");
        let database = MySql::options(&url).table_prefix(tables.prefix());
        let missing = MySqlOutbox::options().open_database(tables.options()).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Absent, "{missing:?}");
        assert!(missing.to_string().contains("MySqlOutbox::schema_sql"), "{missing}");
        for _ in 0..2 {
            tables.run(&MySqlOutbox::schema_sql(&tables.options()).unwrap()).await.unwrap();
        }
        tables.run(&MySqlOutbox::grants_sql(&tables.options(), &name).unwrap()).await.unwrap();
        does_everything(database, &url, ordered).await;
        tables.run(&format!("DROP USER '{name}'@'%'")).await.unwrap();
    }
}

#[tokio::test]
async fn several_that_start_at_once_migrate_once() {
    let tables = MySqlTables::new();
    let open = || MySqlOutbox::options().migrate(true).open_database(tables.options());
    let opened = tokio::join!(open(), open(), open(), open());
    for outbox in [opened.0, opened.1, opened.2, opened.3] {
        outbox.unwrap();
    }
}
