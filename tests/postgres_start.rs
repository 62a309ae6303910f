//! What a PostgreSQL store refuses when it is opened: each refusal is one line that names the database, the cause and the
//! remedy, and never the password. And what it does not refuse: a role with no more rights than it needs, the schema applied
//! by hand, a newer schema that says it may be used.
#![allow(clippy::unwrap_used)]

#[path = "postgres_start/tls.rs"]
mod tls;
#[path = "start/uses.rs"]
mod uses;

use std::time::Duration;

use hapax::{
    Postgres, PostgresQueue,
    entity::Expected,
    ports::{DedupStore, EntityStore, ErrorKind, Saved, StoreError},
    stores::postgres::PostgresOptions,
};
use hapax_tests::{PostgresRole, PostgresSchema, PostgresServer, Samples};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgConnectOptions};
use uses::{says, works};

async fn refusal(options: PostgresOptions) -> StoreError {
    options.open().await.expect_err("the store was opened")
}

#[tokio::test]
async fn a_wrong_url_of_postgres_is_refused_and_its_password_never_shown() {
    let wrong = [
        "",
        "mysql://user:s3cret@host/db",
        "postgres://user:s3cret@host:port/db",
        "postgres://user:s3cret@host:123456/db",
        "postgres://user:s3cret@[host/db",
        "postgres://user:s3cret@127.0.0.1:1/db?sslmode=no-such",
        "postgres://user:a/s3cret@127.0.0.1:1/db",
        "postgres://user:a#s3cret@127.0.0.1:1/db",
        "postgres://user:1/s3cret@127.0.0.1:1/db",
        "postgres://user:1?s3cret@127.0.0.1:1/db",
    ];
    for url in wrong {
        let error = refusal(Postgres::options(url)).await;
        says(&error, ErrorKind::Misconfigured, &["the URL", "postgres://USER:PASSWORD@HOST:PORT/DATABASE"]);
        let debugged = format!("{error} {error:?}");
        assert!(!debugged.contains("s3cret"), "{url}: {debugged}");
    }
    let unreachable = refusal(Postgres::options("postgres://user:s3cret@127.0.0.1:1/db")).await;
    says(&unreachable, ErrorKind::Unavailable, &["127.0.0.1:1/db", "cannot be reached"]);
    assert!(!format!("{unreachable:?}").contains("s3cret"));
    let options = Postgres::options("postgres://user:s3cret@127.0.0.1:1/db");
    assert!(!format!("{options:?}").contains("s3cret"), "{options:?}");
}

#[tokio::test]
async fn a_postgres_database_that_is_not_there_and_a_role_that_is_not_are_refused() {
    let schema = PostgresSchema::new();
    let server: PgConnectOptions = schema.url().parse().unwrap();
    let error = refusal(Postgres::with(server.clone().database("no_such_database"))).await;
    says(&error, ErrorKind::Misconfigured, &["/no_such_database", "no such database", "create it"]);
    let error = refusal(Postgres::with(server.username("no_such_role"))).await;
    says(&error, ErrorKind::Denied, &["the role or its password", "check the URL"]);
}

#[tokio::test]
async fn a_wrong_password_of_postgres_is_refused_and_not_shown() {
    let mut server = PostgresServer::start(&[]).await;
    let schema = PostgresSchema::on(&server.url());
    schema.run("CREATE ROLE guarded LOGIN PASSWORD 'right'").await.unwrap();
    server.admit("host all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n").await;
    let url = |password: &str| server.url().replace("postgres@", &format!("guarded:{password}@"));
    // The server reads its rules when it gets to it.
    let error = loop {
        let error = refusal(Postgres::options(url("wr0ng"))).await;
        if error.kind() != ErrorKind::Absent {
            break error;
        }
    };
    says(&error, ErrorKind::Denied, &["the role or its password", "check the URL"]);
    assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");
    // With the right one it gets as far as the schema.
    let error = refusal(Postgres::options(url("right"))).await;
    says(&error, ErrorKind::Absent, &["has no tables of hapax"]);
}

/// With a store and a queue in one program, which of them it was.
#[tokio::test]
async fn what_of_postgres_could_not_be_opened_is_named_store_or_queue() {
    let schema = PostgresSchema::new();
    let role = PostgresRole::new(&schema, &["synchronous_commit = off"]).await;
    let nowhere = Postgres::options("postgres://user@127.0.0.1:1/db");
    let url = Postgres::options("mysql://host/db");
    for database in [nowhere, url, schema.options().schema("A"), schema.options(), role.options(&schema)] {
        let database = database.migrate(false);
        let error = refusal(database.clone()).await.to_string();
        assert!(error.starts_with("opening the PostgreSQL store: "), "{error}");
        let error = PostgresQueue::options().open_database(database).await.unwrap_err().to_string();
        assert!(error.starts_with("opening the PostgreSQL queue: "), "{error}");
    }
    let error = PostgresQueue::schema_sql(&schema.options().schema("A")).unwrap_err().to_string();
    assert!(error.starts_with("opening the PostgreSQL queue: "), "{error}");
}

#[tokio::test]
async fn a_missing_or_older_postgres_schema_is_refused_unless_it_may_be_migrated() {
    let schema = PostgresSchema::new();
    let remedy = ["has no tables of hapax", "Postgres::migrate", "schema_sql", "migrate(true)", schema.name()];
    says(&refusal(schema.options().migrate(false)).await, ErrorKind::Absent, &remedy);
    drop(schema.open().await);
    assert!(schema.options().migrate(false).open().await.is_ok());
    // What a migration that was never finished would look like, were it not one transaction.
    schema.run(&format!("DELETE FROM {}.migration", schema.name())).await.unwrap();
    says(&refusal(schema.options().migrate(false)).await, ErrorKind::Absent, &remedy);
    assert!(schema.options().open().await.is_ok());
    assert!(schema.options().migrate(false).open().await.is_ok());
}

#[tokio::test]
async fn a_newer_postgres_schema_is_used_only_if_it_says_that_it_may_be() {
    let schema = PostgresSchema::new();
    drop(schema.open().await);
    let name = schema.name();
    let newer = |set: String| async move { schema_of(name, &set).await };
    newer("INSERT INTO migration (version, name) VALUES (99, 'later')".to_owned()).await;
    newer("DELETE FROM meta WHERE name = 'usable_from'".to_owned()).await;
    for migrate in [false, true] {
        let error = refusal(schema.options().migrate(migrate)).await;
        says(&error, ErrorKind::Malformed, &["schema 99 of a newer hapax", "update this program", name]);
    }
    newer("INSERT INTO meta (name, value) VALUES ('usable_from', 1)".to_owned()).await;
    for migrate in [false, true] {
        let store = schema.options().migrate(migrate).open().await.unwrap();
        works(&store, &format!("newer-{migrate}")).await;
    }
    newer("UPDATE meta SET value = 99 WHERE name = 'usable_from'".to_owned()).await;
    says(&refusal(schema.options()).await, ErrorKind::Malformed, &["update this program"]);
}

async fn schema_of(name: &str, sql: &str) {
    let url = PostgresSchema::new();
    url.run(&format!("SET search_path = {name}; {sql}")).await.unwrap();
}

#[tokio::test]
async fn a_postgres_server_that_confirms_what_it_may_lose_is_refused() {
    let schema = PostgresSchema::new();
    let role = PostgresRole::new(&schema, &["synchronous_commit = off"]).await;
    let error = refusal(role.options(&schema)).await;
    says(&error, ErrorKind::Misconfigured, &["`synchronous_commit` is off", "ALTER ROLE", "synchronous_commit = on"]);
    for (setting, words) in [
        ("fsync=off", ["`fsync` is off", "`fsync = on`"]),
        ("full_page_writes=off", ["`full_page_writes` is off", "on"]),
    ] {
        let server = PostgresServer::start(&[setting]).await;
        let error = refusal(Postgres::options(server.url()).migrate(true)).await;
        says(&error, ErrorKind::Misconfigured, &words);
    }
}

#[tokio::test]
async fn a_postgres_standby_is_refused() {
    let mut server = PostgresServer::start(&[]).await;
    let options = Postgres::options(server.url());
    Postgres::migrate(options.clone()).await.unwrap();
    server.kill();
    server.standby(true);
    server.restart().await;
    for migrate in [false, true] {
        let error = refusal(options.clone().migrate(migrate)).await;
        says(&error, ErrorKind::Misconfigured, &["a standby", "connect to the primary"]);
    }
    let error = Postgres::migrate(options).await.unwrap_err();
    says(&error, ErrorKind::Misconfigured, &["a standby", "connect to the primary"]);
}

#[tokio::test]
async fn postgres_tables_that_a_crash_empties_are_refused() {
    let schema = PostgresSchema::new();
    drop(schema.open().await);
    drop(schema.open_queue(PostgresQueue::options()).await);
    let name = schema.name();
    schema.run(&format!("CREATE UNLOGGED TABLE {name}.others (x int)")).await.unwrap();
    drop(schema.open().await);
    schema.run(&format!("ALTER TABLE {name}.dedup_1 SET UNLOGGED")).await.unwrap();
    let error = refusal(schema.options()).await;
    says(&error, ErrorKind::Misconfigured, &["UNLOGGED", "dedup_1", "SET LOGGED"]);
    schema
        .run(&format!("ALTER TABLE {name}.dedup_1 SET LOGGED; ALTER TABLE {name}.queue_meta SET UNLOGGED"))
        .await
        .unwrap();
    drop(schema.open().await);
    let queue = PostgresQueue::options().open_database(schema.options()).await.unwrap_err().to_string();
    assert!(queue.contains("UNLOGGED") && queue.contains("queue_meta"), "{queue}");
}

/// Whoever names a standby wants what was confirmed to be there.
#[tokio::test]
async fn less_than_waiting_for_the_standby_that_is_named_is_refused_by_postgres() {
    for level in ["local", "remote_write"] {
        let level = format!("synchronous_commit={level}");
        let server = PostgresServer::start(&[&level]).await;
        Postgres::migrate(Postgres::options(server.url())).await.unwrap(); // Without a standby it is as good.
        drop(server);
        let server = PostgresServer::start(&[&level, "synchronous_standby_names=nobody"]).await;
        let error = refusal(Postgres::options(server.url())).await;
        says(&error, ErrorKind::Misconfigured, &["`synchronous_commit`", "`synchronous_standby_names`", "ALTER ROLE"]);
    }
}

#[tokio::test]
async fn a_postgres_store_is_opened_beside_a_pool() {
    let schema = PostgresSchema::new();
    let pool = sqlx::PgPool::connect(schema.url()).await.unwrap();
    let store = PostgresOptions::from(&pool).schema(schema.name()).migrate(true).open().await.unwrap();
    works(&store, "pool").await;
    // Its connections are its own.
    pool.close().await;
    let samples = Samples::new("pool-closed");
    let saved = store.save(&samples.key(1), &Expected::Absent, &samples.entity(1), &[]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)));
}

/// Without it nothing says which dedup entries count: nothing may be called unseen.
#[tokio::test]
async fn a_postgres_schema_without_a_generation_is_told_as_what_it_is() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    let samples = Samples::new("damaged");
    store.insert(&[samples.done(0)]).await.unwrap();
    schema.run(&format!("DELETE FROM {}.generation", schema.name())).await.unwrap();
    let words = ["`generation`", schema.name(), "restore"];
    says(&refusal(schema.options()).await, ErrorKind::Malformed, &words);
    says(&store.contains(&[samples.done(0).key]).await.unwrap_err(), ErrorKind::Malformed, &words);
    says(&store.insert(&[samples.done(1)]).await.unwrap_err(), ErrorKind::Malformed, &words);
}

#[tokio::test]
async fn a_postgres_role_that_may_only_read_is_refused() {
    let schema = PostgresSchema::new();
    drop(schema.open().await);
    let role = PostgresRole::new(&schema, &["default_transaction_read_only = on"]).await;
    schema.run(&Postgres::grants_sql(&schema.options(), role.name()).unwrap()).await.unwrap();
    let error = refusal(role.options(&schema)).await;
    says(&error, ErrorKind::Misconfigured, &["default_transaction_read_only", "ALTER ROLE"]);
}

#[tokio::test]
async fn a_postgres_database_with_another_encoding_is_refused() {
    let schema = PostgresSchema::new();
    let name = format!("latin_{}", schema.name());
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
    schema.run(&create).await.unwrap();
    let server: PgConnectOptions = schema.url().parse().unwrap();
    let error = refusal(Postgres::with(server.database(&name)).migrate(true)).await;
    schema.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    says(&error, ErrorKind::Misconfigured, &[&name, "as LATIN1", "ENCODING 'UTF8'"]);
}

#[tokio::test]
async fn names_that_postgres_would_not_take_are_refused_before_it_is_asked() {
    let schema = PostgresSchema::new();
    for name in ["", "Own", "own schema", "own\"; DROP TABLE x; --", "pg_own", "1own", "ö", &"n".repeat(31)] {
        let error = refusal(schema.options().schema(name)).await;
        says(&error, ErrorKind::Misconfigured, &["schema `", "lower-case ASCII letters"]);
        assert!(Postgres::schema_sql(&schema.options().schema(name)).is_err());
        assert!(Postgres::grants_sql(&schema.options().schema(name), "role").is_err());
    }
    let error = refusal(schema.options().table_prefix("a'b")).await;
    says(&error, ErrorKind::Misconfigured, &["table prefix `a'b`"]);
    let longest = "n".repeat(30);
    let sql = Postgres::schema_sql(&schema.options().table_prefix(&longest)).unwrap();
    schema.run(&format!("BEGIN; {sql}; {sql}; COMMIT")).await.unwrap();
    works(&schema.options().migrate(false).table_prefix(&longest).open().await.unwrap(), "longest").await;
}

#[tokio::test]
async fn a_postgres_schema_applied_by_hand_twice_is_one_that_can_be_used() {
    let schema = PostgresSchema::new();
    let sql = Postgres::schema_sql(&schema.options()).unwrap();
    schema.run(&format!("BEGIN; {sql}; COMMIT")).await.unwrap();
    let store = schema.options().migrate(false).open().await.unwrap();
    works(&store, "before").await;
    let samples = Samples::new("kept");
    let Saved::At(version) = store.save(&samples.key(1), &Expected::Absent, &samples.entity(1), &[]).await.unwrap()
    else {
        panic!("a new entity is not stored");
    };
    schema.run(&format!("BEGIN; {sql}; COMMIT")).await.unwrap();
    schema.run(&sql).await.unwrap();
    works(&store, "after").await;
    let stored = schema.options().open().await.unwrap().load(&samples.key(1), &[]).await.unwrap().stored.unwrap();
    assert_eq!((stored.version, stored.entity), (version, samples.entity(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_programs_that_migrate_postgres_at_once_all_go_on() {
    const PROGRAMS: usize = 8;
    for _ in 0..5 {
        let schema = PostgresSchema::new();
        let programs = (0..PROGRAMS).map(|number| {
            let options = schema.options().writers(1);
            tokio::spawn(async move {
                match number % 2 {
                    0 => drop(options.open().await?),
                    _ => Postgres::migrate(options).await?,
                }
                Ok::<_, StoreError>(())
            })
        });
        for program in programs.collect::<Vec<_>>() {
            program.await.unwrap().unwrap();
        }
        works(&schema.open().await, "migrated").await;
    }
}

#[tokio::test]
async fn a_postgres_role_with_the_grants_can_do_everything_and_nothing_else() {
    let schema = PostgresSchema::new();
    let role = PostgresRole::new(&schema, &[]).await;
    // Nothing is granted to everybody in a new schema; and the role owns nothing.
    drop(schema.open().await);
    let error = refusal(role.options(&schema)).await;
    says(&error, ErrorKind::Denied, &["this role may not", "Postgres::grants_sql"]);
    let grants = Postgres::grants_sql(&schema.options(), role.name()).unwrap();
    schema.run(&format!("BEGIN; {grants}; COMMIT; {grants}")).await.unwrap();
    // As a program that always asks for it: there is nothing to migrate.
    let store = role.options(&schema).migrate(true).open().await.unwrap();
    works(&store, "granted").await;
    let mut connection = PgConnection::connect_with(&role.connect_options()).await.unwrap();
    let name = schema.name();
    // What is missing is said, not tried again and again.
    for slot in 0..4 {
        schema.run(&format!("REVOKE TRUNCATE ON {name}.dedup_{slot} FROM {}", role.name())).await.unwrap();
    }
    let samples = Samples::new("revoked");
    let denied = loop {
        store.insert(&[samples.done(fastrand::u32(..))]).await.unwrap();
        if let Err(denied) = store.evict(Duration::from_millis(1)).await {
            break denied;
        }
    };
    says(&denied, ErrorKind::Denied, &["this role may not", "Postgres::grants_sql"]);
    for forbidden in [
        format!("CREATE TABLE {name}.own (x int)"),
        format!("DROP TABLE {name}.dead_letter"),
        format!("ALTER TABLE {name}.entity ADD COLUMN own int"),
        format!("TRUNCATE {name}.entity"),
        format!("UPDATE {name}.dead_letter SET reason = ''"),
        format!("INSERT INTO {name}.migration (version, name) VALUES (9, 'own')"),
        format!("DELETE FROM {name}.scope"),
        format!("UPDATE {name}.scope SET saga = ''"),
        format!("DELETE FROM {name}.floor"),
        format!("CREATE INDEX own ON {name}.entity (version)"),
        format!("GRANT SELECT ON {name}.entity TO public"),
        "CREATE SCHEMA own".to_owned(),
    ] {
        let ran = connection.execute(sqlx::raw_sql(AssertSqlSafe(forbidden.clone()))).await;
        let code = ran.as_ref().err().and_then(|e| e.as_database_error()?.code().map(|code| code.into_owned()));
        // A grant without the right to grant is a warning; it gives nothing.
        let granted = forbidden.starts_with("GRANT");
        assert!(code.as_deref() == Some("42501") || granted && ran.is_ok(), "{forbidden}: {ran:?}");
    }
}
