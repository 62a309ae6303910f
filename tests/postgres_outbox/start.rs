//! Opening: rights, schema, poolers.

use hapax::{
    Postgres, PostgresOutbox,
    inbox::Inbox,
    ports::{Care, ErrorKind, OutboxTable, Page},
    stores::postgres::PostgresOptions,
};
use hapax_tests::{Pgbouncer, PostgresRole, PostgresSchema};
use sqlx::{Connection, PgConnection};
use std::time::Duration;

use super::sink::{Fate, PATIENCE, Placed, Sink, quick, relay};

/// Stores, sends, fails, retries, removes and evicts, all through `database`.
async fn does_everything(database: PostgresOptions, url: sqlx::postgres::PgConnectOptions, ordered: bool) {
    let options = PostgresOutbox::options().ordered_keys(ordered);
    let outbox = options.open_database(database).await.unwrap();
    let sink = Sink::with(|order| if order == 1 { Fate::Impossible } else { Fate::Taken });
    let relay = relay(&outbox, &sink, quick());
    let mut connection = PgConnection::connect_with(&url.clone().statement_cache_capacity(0)).await.unwrap();
    for order in 0..3 {
        let mut tx = connection.begin().await.unwrap();
        let ticket = outbox.enqueue(&mut tx, &Placed { order }).await.unwrap();
        tx.commit().await.unwrap();
        ticket.committed();
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
    let pool = sqlx::PgPool::connect_with(url).await.unwrap();
    outbox.inbox(pool).evict(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn the_schema_is_applied_by_hand_and_a_role_with_the_grants_does_everything() {
    for ordered in [false, true] {
        let schema = PostgresSchema::new();
        let role = PostgresRole::new(&schema, &[]).await;
        let database = role.options(&schema);
        let missing = PostgresOutbox::options().open_database(schema.options()).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Absent, "{missing:?}");
        assert!(missing.to_string().contains("PostgresOutbox::schema_sql"), "{missing}");
        for _ in 0..2 {
            let sql = PostgresOutbox::schema_sql(&schema.options()).unwrap();
            schema.run(&format!("BEGIN; {sql} COMMIT")).await.unwrap();
        }
        schema.run(&PostgresOutbox::grants_sql(&schema.options(), role.name()).unwrap()).await.unwrap();
        does_everything(database, role.connect_options(), ordered).await;
        schema.run(&format!("DROP OWNED BY {0}; DROP ROLE {0}", role.name())).await.unwrap();
    }
}

#[tokio::test]
async fn behind_a_pooler_everything_works_and_nobody_listens() {
    let schema = PostgresSchema::new();
    let Some(pooler) =
        Pgbouncer::start(schema.url(), &["pool_mode = transaction", "ignore_startup_parameters = extra_float_digits"])
            .await
    else {
        return;
    };
    for (ordered, prefix) in [(false, "u_"), (true, "o_")] {
        let direct = schema.options().table_prefix(prefix);
        PostgresOutbox::options().migrate(true).ordered_keys(ordered).open_database(direct).await.unwrap();
        let database = Postgres::options(pooler.url()).schema(schema.name()).table_prefix(prefix).pooler(true);
        does_everything(database, pooler.url().parse().unwrap(), ordered).await;
    }
}

#[tokio::test]
async fn several_that_start_at_once_migrate_once() {
    let schema = PostgresSchema::new();
    let open = || PostgresOutbox::options().migrate(true).open_database(schema.options());
    let opened = tokio::join!(open(), open(), open(), open());
    for outbox in [opened.0, opened.1, opened.2, opened.3] {
        outbox.unwrap();
    }
}
