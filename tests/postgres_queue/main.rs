//! The queue on PostgreSQL: what it has in common with others on a server, and what is its own.

#[path = "../served_queue/common.rs"]
mod common;
#[path = "../served_queue/failing.rs"]
mod failing;
#[path = "../served_queue/leases.rs"]
mod leases;
#[path = "../served_queue/order.rs"]
mod order;
mod rig;
#[path = "../served_queue/sending.rs"]
mod sending;

use common::*;
use hapax::{Postgres, ports::Transport};
use rig::*;
use sqlx::AssertSqlSafe;

/// Nobody looks before an hour has passed, so that what comes was told by the server.
#[tokio::test]
async fn what_another_process_sends_is_told_and_needs_no_look() {
    let schema = Tables::new();
    let options = options().polls(NEVER, NEVER);
    let (here, there) = (schema.open_queue(options.clone()).await, schema.open_queue(options).await);
    comes_without_a_look(&here, &there).await;
}

#[tokio::test]
async fn where_nobody_listens_new_messages_are_looked_for() {
    let schema = Tables::new();
    let (here, there) = (schema.open_queue(options().listen(false)).await, open(&schema).await);
    comes_by_a_look(&here, &there).await;
}

#[tokio::test]
async fn a_listener_that_is_lost_is_missed_by_nobody_and_comes_back() {
    let schema = Tables::new();
    let name = format!("listen_{}", schema.name());
    let here = open_named(&schema, &name, options()).await;
    let there = schema.open_queue(options().listen(false)).await;
    let ends = shop(&here).await;
    let mut other = beside(&schema).await;
    let listens = format!("FROM pg_stat_activity WHERE application_name = '{name}' AND query ILIKE 'listen%'");
    for round in 0..2 {
        wait_for(&mut other, &format!("SELECT count(*) {listens}")).await;
        number(&mut other, &format!("SELECT count(pg_terminate_backend(pid)) {listens}")).await;
        let (delivery, ()) = tokio::join!(next(&ends), send_bodies(&there, &["a"]));
        assert_eq!(body(&delivery), "a", "round {round}");
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn the_schema_may_be_made_by_hand_and_a_role_needs_what_is_granted_and_no_more() {
    let schema = Tables::new();
    let database = Postgres::options(schema.url()).schema(schema.name());
    let none = options().open_database(database.clone()).await.unwrap_err();
    assert!(none.to_string().contains("has no tables of hapax, this hapax needs 1: set `migrate(true)`"), "{none}");
    let role = format!("role_{}", schema.name());
    let mut owner = beside(&schema).await;
    for _ in 0..2 {
        run(&mut owner, &format!("BEGIN; {} COMMIT", Queue::schema_sql(&database).unwrap())).await;
    }
    run(&mut owner, &format!("CREATE ROLE {role} LOGIN")).await;
    run(&mut owner, &Queue::grants_sql(&database, &role).unwrap()).await;

    let place: sqlx::postgres::PgConnectOptions = schema.url().parse().unwrap();
    let database = Postgres::with(place.username(&role)).schema(schema.name());
    for ordered_keys in [false, true] {
        let queue = options().ordered_keys(ordered_keys).open_database(database.clone()).await.unwrap();
        does_everything(&queue).await;
    }
    run(&mut owner, &format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Without one of our own behind it, but each statement as it is behind one: prepared and run in a transaction.
#[tokio::test]
async fn behind_a_connection_pooler_all_is_as_it_is_without_one_but_nobody_listens() {
    let schema = Tables::new();
    for ordered_keys in [false, true] {
        let database = Postgres::options(schema.url()).schema(schema.name()).pooler(true);
        let options = options().ordered_keys(ordered_keys).migrate(true);
        let queue = options.open_database(database).await.unwrap();
        let ends = shop(&queue).await;
        send(&queue, &[keyed("k", "a"), keyed("k", "b")]).await;
        for expected in ["a", "b"] {
            let delivery = next(&ends).await;
            assert_eq!(body(&delivery), expected);
            ack(&ends, &delivery).await;
        }
        let mut connection = beside(&schema).await;
        let listeners = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN \"' || $1 || '.\"'";
        let listeners: i64 = sqlx::query_scalar(AssertSqlSafe(listeners.to_owned()))
            .bind(schema.name())
            .fetch_one(&mut connection.connection)
            .await
            .unwrap();
        assert_eq!(listeners, 0);
        queue.close().await;
    }
}

/// What numbers are taken of is not rolled back with the rest.
#[tokio::test]
async fn a_subscription_that_loses_races_is_written_again() {
    let schema = Tables::new();
    let queue = open(&schema).await;
    let mut owner = beside(&schema).await;
    let loses = "CREATE SEQUENCE hapax.tries; CREATE FUNCTION hapax.loses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                   IF nextval('hapax.tries') <= 5 THEN RAISE 'a race' USING ERRCODE = 'serialization_failure'; END IF; \
                   RETURN new; END $$; \
                 CREATE TRIGGER loses BEFORE INSERT ON hapax.queue_subscription FOR EACH ROW EXECUTE FUNCTION hapax.loses()";
    run(&mut owner, loses).await;
    queue.connect(&endpoint("shop"), &[message_type()]).await.unwrap();
    send(&queue, &[published("a")]).await;
    assert_eq!(queue.backlog(&endpoint("shop")).await.unwrap(), 1);
    assert_eq!(number(&mut owner, "SELECT last_value FROM hapax.tries").await, 6);
}
