//! What a MariaDB store refuses when it is opened: each refusal is one line that names the database, the cause and the remedy,
//! and never the password. And what it does not refuse: an account with no more rights than it needs, the schema applied by
//! hand, a newer schema that says it may be used.
#![allow(clippy::unwrap_used)]

#[path = "mysql_start/tls.rs"]
mod tls;
#[path = "start/uses.rs"]
mod uses;

use std::time::Duration;

use hapax::{
    MySql, MySqlQueue,
    entity::Expected,
    ports::{DeadLetters, DedupStore, EntityStore, ErrorKind, Page, Saved, StoreError},
    stores::mysql::MySqlOptions,
};
use hapax_tests::{MySqlServer, MySqlTables, Samples};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, mysql::MySqlConnectOptions};
use uses::{says, works};

async fn refusal(options: MySqlOptions) -> StoreError {
    options.open().await.expect_err("the store was opened")
}

#[tokio::test]
async fn a_wrong_url_of_mysql_is_refused_and_its_password_never_shown() {
    let wrong = [
        "",
        "postgres://user:s3cret@host/db",
        "mysql://user:s3cret@host:port/db",
        "mysql://user:s3cret@host:123456/db",
        "mysql://user:s3cret@[host/db",
        "mysql://user:s3cret@127.0.0.1:1/db?ssl-mode=no-such",
        "mysql://user:a/s3cret@127.0.0.1:1/db",
        "mysql://user:a#s3cret@127.0.0.1:1/db",
        "mysql://user:1/s3cret@127.0.0.1:1/db",
        "mysql://user:1?s3cret@127.0.0.1:1/db",
        "mysql://user:s3cret@127.0.0.1:1",
    ];
    for url in wrong {
        let error = refusal(MySql::options(url)).await;
        says(&error, ErrorKind::Misconfigured, &["database", "mysql://USER:PASSWORD@HOST:PORT/DATABASE"]);
        let debugged = format!("{error} {error:?}");
        assert!(!debugged.contains("s3cret"), "{url}: {debugged}");
    }
    let unreachable = refusal(MySql::options("mysql://user:s3cret@127.0.0.1:1/db")).await;
    says(&unreachable, ErrorKind::Unavailable, &["127.0.0.1:1/db", "cannot be reached"]);
    assert!(!format!("{unreachable:?}").contains("s3cret"));
    let options = MySql::options("mysql://user:s3cret@127.0.0.1:1/db");
    assert!(!format!("{options:?}").contains("s3cret"), "{options:?}");
}

#[tokio::test]
async fn a_mysql_database_that_is_not_there_and_an_account_that_is_not_are_refused() {
    let tables = MySqlTables::new();
    let server: MySqlConnectOptions = tables.url().parse().unwrap();
    let error = refusal(MySql::with(server.clone().database("no_such_database"))).await;
    says(&error, ErrorKind::Misconfigured, &["/no_such_database", "no such database", "create it"]);
    let error = refusal(MySql::with(server.username("no_such_account").password("wr0ng"))).await;
    says(&error, ErrorKind::Denied, &["the account, its password", "check the URL"]);
    assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");
}

/// With a store and a queue in one program, which of them it was.
#[tokio::test]
async fn what_of_mysql_could_not_be_opened_is_named_store_or_queue() {
    let tables = MySqlTables::new();
    let nowhere = MySql::options("mysql://user@127.0.0.1:1/db");
    let url = MySql::options("postgres://host/db");
    for database in [nowhere, url, tables.options().table_prefix("A"), tables.options()] {
        let database = database.migrate(false);
        let error = refusal(database.clone()).await.to_string();
        assert!(error.starts_with("opening the MariaDB store: "), "{error}");
        let error = MySqlQueue::options().open_database(database).await.unwrap_err().to_string();
        assert!(error.starts_with("opening the MariaDB queue: "), "{error}");
    }
    let wrong = tables.options().table_prefix("A");
    for error in [MySqlQueue::schema_sql(&wrong), MySqlQueue::grants_sql(&wrong, "account")] {
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("opening the MariaDB queue: "), "{error}");
    }
}

#[tokio::test]
async fn a_missing_or_older_mysql_schema_is_refused_unless_it_may_be_migrated() {
    let tables = MySqlTables::new();
    let remedy = ["has no tables of hapax", "MySql::migrate", "schema_sql", "migrate(true)", tables.prefix()];
    says(&refusal(tables.options().migrate(false)).await, ErrorKind::Absent, &remedy);
    drop(tables.open().await);
    assert!(tables.options().migrate(false).open().await.is_ok());
    // What a migration that was never finished looks like: each of its statements commits by itself.
    tables.run("DELETE FROM hapax.migration; DROP TABLE hapax.dedup_2, hapax.dead_letter").await.unwrap();
    says(&refusal(tables.options().migrate(false)).await, ErrorKind::Absent, &remedy);
    works(&tables.options().open().await.unwrap(), "mended").await;
    assert!(tables.options().migrate(false).open().await.is_ok());
}

#[tokio::test]
async fn a_newer_mysql_schema_is_used_only_if_it_says_that_it_may_be() {
    let tables = MySqlTables::new();
    drop(tables.open().await);
    let later = "INSERT INTO hapax.migration (version, name) VALUES (99, 'later'); \
                 DELETE FROM hapax.meta WHERE name = 'usable_from'";
    tables.run(later).await.unwrap();
    for migrate in [false, true] {
        let error = refusal(tables.options().migrate(migrate)).await;
        let words = ["schema 99 of a newer hapax", "update this program", tables.prefix()];
        says(&error, ErrorKind::Malformed, &words);
    }
    tables.run("INSERT INTO hapax.meta (name, value) VALUES ('usable_from', 1)").await.unwrap();
    for migrate in [false, true] {
        let store = tables.options().migrate(migrate).open().await.unwrap();
        works(&store, &format!("newer-{migrate}")).await;
    }
    tables.run("UPDATE hapax.meta SET value = 99 WHERE name = 'usable_from'").await.unwrap();
    says(&refusal(tables.options()).await, ErrorKind::Malformed, &["update this program"]);
}

#[tokio::test]
async fn a_mysql_server_that_confirms_what_it_may_lose_is_refused_and_so_is_a_replica() {
    let server = MySqlServer::start(&["log-bin=log", "sync-binlog=1", "server-id=1"]).await;
    let tables = MySqlTables::on(&server.url());
    works(&tables.options().open().await.unwrap(), "logged").await;
    for (setting, back, words) in [
        ("innodb_flush_log_at_trx_commit = 2", "1", ["`innodb_flush_log_at_trx_commit` is not 1", "set it to 1"]),
        ("innodb_flush_log_at_trx_commit = 0", "1", ["`innodb_flush_log_at_trx_commit` is not 1", "set it to 1"]),
        ("sync_binlog = 0", "1", ["`sync_binlog` is not 1", "set it to 1"]),
        ("binlog_format = 'STATEMENT'", "'MIXED'", ["`binlog_format` is STATEMENT", "MIXED or ROW"]),
        ("read_only = 1", "0", ["`read_only` is on", "connect to the primary"]),
        ("max_allowed_packet = 1024", "16777216", ["`max_allowed_packet` is below", "64M"]),
    ] {
        tables.run(&format!("SET GLOBAL {setting}")).await.unwrap();
        says(&refusal(tables.options()).await, ErrorKind::Misconfigured, &words);
        let name = setting.split(' ').next().unwrap();
        tables.run(&format!("SET GLOBAL {name} = {back}")).await.unwrap();
    }
    works(&tables.options().open().await.unwrap(), "again").await;

    // What a server that was made a replica meanwhile refuses is not written, and goes on when it is the primary again.
    let (store, samples) = (tables.options().open().await.unwrap(), Samples::new("replica"));
    let save = async || store.save(&samples.key(1), &Expected::Absent, &samples.entity(1), &[]).await;
    let account = "CREATE USER plain@'%'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP ON *.* TO plain@'%'";
    tables.run(account).await.unwrap();
    let plain = MySql::options(server.url().replace("root@", "plain@")).migrate(true).open().await.unwrap();
    tables.run("SET GLOBAL read_only = 1").await.unwrap();
    let error = plain.save(&samples.key(2), &Expected::Absent, &samples.entity(2), &[]).await.unwrap_err();
    says(&error, ErrorKind::Unavailable, &["takes no writes", "connect to the primary"]);
    tables.run("SET GLOBAL read_only = 0").await.unwrap();
    assert!(matches!(save().await.unwrap(), Saved::At(_)));
    assert!(plain.save(&samples.key(2), &Expected::Absent, &samples.entity(2), &[]).await.is_ok());
}

/// In a session whose mode lets the server cut what is too long, and whose time zone has an hour twice a year.
#[tokio::test]
async fn a_mysql_server_whose_settings_are_others_serves_as_well() {
    let settings = [
        "sql-mode=ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES",
        "transaction-isolation=SERIALIZABLE",
        "autocommit=0",
        "character-set-server=latin1",
        "collation-server=latin1_swedish_ci",
        "default-storage-engine=MyISAM",
        "innodb-rollback-on-timeout=1",
        "default-time-zone=+13:00",
        "lower-case-table-names=1",
        // A commit that begins the next transaction would leave what comes next in it, told as saved.
        "completion-type=CHAIN",
        "group-concat-max-len=1024",
    ];
    let server = MySqlServer::start(&settings).await;
    let tables = MySqlTables::on(&server.url());
    let store = tables.options().writers(1).open().await.unwrap();
    works(&store, "settings").await;
    let samples = Samples::new("chained");
    let save = async |key, expected: Expected| {
        let saved = store.save(&samples.key(key), &expected, &samples.entity(key), &[]).await.unwrap();
        let Saved::At(version) = saved else { panic!("{key}: {saved:?}") };
        version
    };
    let first = save(1, Expected::Absent).await;
    let second = save(1, Expected::Version(first)).await;
    let elsewhere = tables.options().open().await.unwrap();
    assert_eq!(elsewhere.load(&samples.key(1), &[]).await.unwrap().stored.unwrap().version, second);
}

/// A server that starts removes the temporary tables that it finds in its folder for them, whoever's they are: with a common
/// one, those that start at once take each other's.
#[tokio::test]
async fn a_mysql_server_of_a_test_keeps_its_temporary_tables_to_itself() {
    let servers = [MySqlServer::start(&[]).await, MySqlServer::start(&[]).await];
    let mut folders = Vec::new();
    for server in &servers {
        let mut connection = MySqlConnection::connect(&server.url()).await.unwrap();
        let folder: (String, String) =
            sqlx::query_as("SELECT @@tmpdir, @@datadir").fetch_one(&mut connection).await.unwrap();
        assert!(folder.1.starts_with(&folder.0), "{folder:?}");
        folders.push(folder.0);
    }
    assert_ne!(folders[0], folders[1]);
}

/// Where a server's sessions begin with a mode that lets it cut what is too long for a column.
#[tokio::test]
async fn what_is_too_long_for_a_mysql_column_is_refused_and_not_cut() {
    const LONG: usize = 300;
    let server = MySqlServer::start(&["sql-mode="]).await;
    let tables = MySqlTables::on(&server.url());
    let (store, samples) = (tables.open().await, Samples::new("cut"));
    let saved = store.save(&samples.key(1), &Expected::Absent, &samples.entity(1), &[]).await.unwrap();
    let Saved::At(version) = saved else { panic!("{saved:?}") };
    let shrink = "ALTER TABLE hapax.entity MODIFY state TINYBLOB NOT NULL; \
                  ALTER TABLE hapax.dedup_0 MODIFY attempt BINARY(8) NOT NULL; \
                  ALTER TABLE hapax.dead_letter MODIFY reason TINYTEXT NOT NULL";
    tables.run(shrink).await.unwrap();
    let cut = format!("UPDATE hapax.entity SET outbox = state, state = REPEAT('x', {LONG})");
    tables.run(&cut).await.expect("the server cuts what others write");
    tables.run("UPDATE hapax.entity SET state = outbox, outbox = x''").await.unwrap();

    let long = |bytes: usize| hapax::entity::Entity { state: vec![b'x'; bytes].into(), ..samples.entity(1) };
    let (same, absent) = (Expected::Version(version.clone()), Expected::Absent);
    let mut refused = Vec::new();
    // By itself, beside a mark, in a message of its own, as a new one; marks by themselves.
    refused.push(store.save(&samples.key(1), &same, &long(LONG), &[]).await.map(drop));
    let few = [samples.done(1)];
    refused.push(store.save(&samples.key(1), &same, &long(LONG), &few).await.map(drop));
    refused.push(store.save(&samples.key(1), &same, &long(9 << 20), &few).await.map(drop));
    refused.push(store.save(&samples.key(2), &absent, &long(LONG), &[]).await.map(drop));
    refused.push(store.save(&samples.key(1), &same, &samples.entity(2), &few).await.map(drop));
    refused.push(store.insert(&few).await);
    refused.push(store.insert(&[samples.done(1), samples.done(2)]).await);
    let letter = hapax::ports::DeadLetter { reason: "x".repeat(LONG), ..samples.letter() };
    refused.push(store.add(&letter).await);
    for (number, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err(&format!("{number} was cut"));
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{number}: {error:?}");
    }
    let ids = [samples.done(1).key, samples.done(2).key];
    let known = store.contains(&ids).await.unwrap();
    assert!(ids.iter().all(|id| known.entry(id).is_none()));
    assert!(store.load(&samples.key(2), &[]).await.unwrap().stored.is_none());
    let page = Page { message_id: None, limit: 10, skip: 0 };
    assert_eq!(store.list(&letter.endpoint, &page).await.unwrap(), []);
    assert_eq!(store.version(&samples.key(1)).await.unwrap(), Some(version));
}

/// A server may be told what to call itself.
#[tokio::test]
async fn a_mysql_server_that_is_too_old_is_refused_and_the_oldest_one_is_not() {
    let mut server = MySqlServer::start(&[]).await;
    for (version, refused) in [
        ("10.5.29-MariaDB-log", Some("MariaDB 10.5, hapax needs 10.6 or later")),
        ("5.7.44", Some("MySQL 5.7, hapax needs 8.0 or later")),
        ("10.6.0-MariaDB", None),
    ] {
        server.kill();
        server.settings(&[&format!("version={version}")]);
        server.restart().await;
        match (MySql::open(server.url()).await, refused) {
            (Err(error), Some(words)) => says(&error, ErrorKind::Misconfigured, &["127.0.0.1", words]),
            (Ok(store), None) => works(&store, &version.replace('.', "-")).await,
            (opened, _) => panic!("{version}: {opened:?}"),
        }
    }
}

/// The store has connections of its own, with settings of its own, beside an application's pool.
#[tokio::test]
async fn a_mysql_store_on_an_applications_pool_leaves_that_as_it_is() {
    let tables = MySqlTables::new();
    let pool = sqlx::MySqlPool::connect(tables.url()).await.unwrap();
    let mode = async || -> (String, String) {
        sqlx::query_as("SELECT @@SESSION.sql_mode, @@SESSION.tx_isolation").fetch_one(&pool).await.unwrap()
    };
    let before = mode().await;
    let store = MySqlOptions::from(&pool).table_prefix(tables.prefix()).migrate(true).open().await.unwrap();
    works(&store, "pool").await;
    assert_eq!(mode().await, before);
    pool.close().await;
    works(&store, "closed").await;
}

/// MariaDB speaks first, so that a program that waits to be spoken to would be waited for without end.
#[tokio::test]
async fn what_is_not_mysql_and_says_nothing_is_given_up() {
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("mysql://shop@127.0.0.1:{}/shop", silent.local_addr().unwrap().port());
    let error = refusal(MySql::options(url).write_limit(Duration::from_secs(1))).await;
    says(&error, ErrorKind::Unavailable, &["cannot be reached"]);
}

#[tokio::test]
async fn mysql_tables_without_transactions_are_refused() {
    let tables = MySqlTables::new();
    drop(tables.open().await);
    tables.run("ALTER TABLE hapax.dead_letter ENGINE = Aria").await.unwrap();
    let error = refusal(tables.options()).await;
    says(&error, ErrorKind::Misconfigured, &["dead_letter", "Aria", "ENGINE = InnoDB", tables.prefix()]);
}

#[tokio::test]
async fn names_that_mysql_would_not_take_are_refused_before_it_is_asked() {
    let tables = MySqlTables::new();
    for name in ["", "Own", "own ", "own`; DROP TABLE x; --", "1own", "ö", "a.b", &"n".repeat(31)] {
        let error = refusal(tables.options().table_prefix(name)).await;
        says(&error, ErrorKind::Misconfigured, &["table prefix `", "lower-case ASCII letters"]);
        assert!(MySql::schema_sql(&tables.options().table_prefix(name)).is_err());
        assert!(MySql::grants_sql(&tables.options().table_prefix(name), "account").is_err());
    }
}

#[tokio::test]
async fn a_mysql_schema_applied_by_hand_twice_is_one_that_can_be_used() {
    let tables = MySqlTables::new();
    let sql = MySql::schema_sql(&tables.options()).unwrap();
    tables.run(&sql).await.unwrap();
    let store = tables.options().migrate(false).open().await.unwrap();
    works(&store, "before").await;
    let samples = Samples::new("kept");
    let Saved::At(version) = store.save(&samples.key(1), &Expected::Absent, &samples.entity(1), &[]).await.unwrap()
    else {
        panic!("a new entity is not stored");
    };
    tables.run(&sql).await.unwrap();
    works(&store, "after").await;
    let stored = tables.options().open().await.unwrap().load(&samples.key(1), &[]).await.unwrap().stored.unwrap();
    assert_eq!((stored.version, stored.entity), (version, samples.entity(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_programs_that_migrate_mysql_at_once_all_go_on() {
    const PROGRAMS: usize = 8;
    for _ in 0..5 {
        let tables = MySqlTables::new();
        let programs = (0..PROGRAMS).map(|number| {
            let options = tables.options().writers(1);
            tokio::spawn(async move {
                match number % 2 {
                    0 => drop(options.open().await?),
                    _ => MySql::migrate(options).await?,
                }
                Ok::<_, StoreError>(())
            })
        });
        for program in programs.collect::<Vec<_>>() {
            program.await.unwrap().unwrap();
        }
        works(&tables.open().await, "migrated").await;
    }
}

#[tokio::test]
async fn a_mysql_account_with_the_grants_can_do_everything_and_nothing_else() {
    const DENIED: [u16; 4] = [1044, 1142, 1143, 1227];
    // A server of its own: to many, everybody may do everything in a database with the name `test`.
    let server = MySqlServer::start(&[]).await;
    let tables = MySqlTables::on(&server.url());
    tables.run("CREATE USER granted@'127.0.0.1'").await.unwrap();
    drop(tables.open().await);
    let options = MySql::options(server.url().replace("root@", "granted@"));
    says(&refusal(options.clone()).await, ErrorKind::Denied, &["the account, its password or its database"]);
    let grants = MySql::grants_sql(&tables.options(), "granted@127.0.0.1").unwrap();
    tables.run(&format!("{grants}{grants}")).await.unwrap();
    // As a program that always asks for it: there is nothing to migrate.
    let store = options.migrate(true).open().await.unwrap();
    works(&store, "granted").await;
    for forbidden in [
        "CREATE TABLE own (x int)",
        "DROP TABLE hapax_schedule",
        "ALTER TABLE hapax_entity ADD COLUMN own int",
        "TRUNCATE hapax_entity",
        "INSERT INTO hapax_migration (version, name) VALUES (9, 'own')",
        "DELETE FROM hapax_scope",
        "DELETE FROM hapax_floor",
        "CREATE INDEX own ON hapax_entity (version)",
        "GRANT SELECT ON hapax_entity TO PUBLIC",
        "CREATE DATABASE own",
    ] {
        let url = server.url().replace("root@", "granted@");
        let mut connection = MySqlConnection::connect(&url).await.unwrap();
        let ran = connection.execute(sqlx::raw_sql(AssertSqlSafe(forbidden))).await;
        let error = ran.as_ref().err().and_then(|e| e.as_database_error()?.try_downcast_ref());
        let number = error.map(|error: &sqlx::mysql::MySqlDatabaseError| error.number());
        assert!(number.is_some_and(|number| DENIED.contains(&number)), "{forbidden}: {ran:?}");
    }
    // What is missing is said, not tried again and again.
    for slot in 0..4 {
        tables.run(&format!("REVOKE DROP ON hapax_dedup_{slot} FROM granted@'127.0.0.1'")).await.unwrap();
    }
    let samples = Samples::new("revoked");
    let denied = loop {
        store.insert(&[samples.done(fastrand::u32(..))]).await.unwrap();
        if let Err(denied) = store.evict(Duration::from_millis(1)).await {
            break denied;
        }
    };
    says(&denied, ErrorKind::Denied, &["this account may not", "MySql::grants_sql"]);
}
