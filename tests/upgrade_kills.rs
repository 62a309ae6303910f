//! Kills while a file is migrated: a worker dies before, or in the middle of, its n-th change of a file, for every n, while
//! the shipped code makes the tables; then a clean worker comes up and works, and the tables are those of a file that was
//! made in peace.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")] // The kills come by LD_PRELOAD.

#[path = "process/books.rs"]
mod books;
#[path = "process/shim.rs"]
mod shim;
#[path = "process/stored.rs"]
mod stored;
#[path = "process/tally.rs"]
mod tally;

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use books::{SIGKILL, Scenario, check, feed, worker};
use hapax_tests::Scratch;
use shim::shim;
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

/// The first version of the tables, of store and queue.
const FIRST: [&str; 2] = [
    include_str!("../stores/src/sql/sqlite/migrations/0001_initial.sql"),
    include_str!("../transports/src/sql/sqlite/migrations/0001_queue.sql"),
];
/// A migration that makes more changes than this does not end.
const CHANGES_MAX: u32 = 1000;
/// Of the changes, how many are also done by half. Not every other one: a log is written by turns, header and page.
const HALF_EVERY: u32 = 3;
/// Of the changes, after how many a worker handles messages: what the tables are is looked at after each.
const WORK_EVERY: u32 = 10;

fn scenario(apart: bool) -> Scenario {
    Scenario { apart, ..Scenario::work() }
}

#[tokio::test]
async fn a_kill_at_any_change_of_a_file_that_is_made_is_made_good() {
    kill_everywhere("new", &scenario(false), async |_| {}).await;
}

#[tokio::test]
async fn a_kill_at_any_change_of_a_queue_file_that_is_made_is_made_good() {
    kill_everywhere("apart", &scenario(true), async |folder| fs::write(folder.join("queue.db"), "").unwrap()).await;
}

#[tokio::test]
async fn a_kill_at_any_change_of_a_file_of_the_first_version_is_made_good() {
    kill_everywhere("first", &scenario(false), async |folder| {
        let mut file = open(&folder.join("store.db"), true).await;
        for sql in FIRST {
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!("BEGIN; {sql} COMMIT"))).execute(&mut file).await.unwrap();
        }
        sqlx::raw_sql("PRAGMA application_id = 0x68617078; PRAGMA journal_mode = WAL")
            .execute(&mut file)
            .await
            .unwrap();
        file.close().await.unwrap();
    })
    .await;
}

/// Several open a new file at once, and some of them are killed: the others come up.
#[tokio::test]
async fn those_that_are_not_killed_while_all_migrate_at_once_come_up() {
    const ROUNDS: u64 = 12;
    const WORKERS: usize = 6;
    let scratch = Scratch::new("upgrade-crowd");
    let shim = shim(scratch.folder());
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let expected = made_in_peace(&scratch, &shim, false).await;
    let mut kills = 0;
    for round in 0..ROUNDS {
        let folder = scratch.file(&format!("{round}"));
        fs::create_dir(&folder).unwrap();
        let crowd: Vec<(bool, Child)> = (0..WORKERS)
            .map(|number| {
                let dies = number % 2 == 0;
                let point = if dies { random.u32(0..60) } else { CHANGES_MAX };
                (dies, migrating(&folder, &shim, &point.to_string()).stderr(Stdio::piped()).spawn().unwrap())
            })
            .collect();
        for (dies, child) in crowd {
            let ended = child.wait_with_output().unwrap();
            let killed = ended.status.signal() == Some(SIGKILL);
            assert!(ended.status.success() || (dies && killed), "seed {seed}, round {round}: {ended:?}");
            kills += u32::from(killed);
        }
        assert_eq!(contents(&folder, false).await, expected, "seed {seed}, round {round}");
        work(&folder, &scenario(false)).await.unwrap_or_else(|why| panic!("seed {seed}, round {round}: {why}"));
    }
    assert!(kills > 0, "seed {seed}: nobody was killed");
    println!("{kills} were killed");
}

/// Kills one at each change, and once more in the middle of it; `begin` lays out the files.
async fn kill_everywhere(name: &str, scenario: &Scenario, begin: impl AsyncFn(&Path)) {
    let scratch = Scratch::new(&format!("upgrade-{name}"));
    let shim = shim(scratch.folder());
    let expected = made_in_peace(&scratch, &shim, scenario.apart).await;
    let mut kills = 0;
    for number in 0..CHANGES_MAX {
        let mut killed = false;
        let half = (number % HALF_EVERY == 0).then(|| format!("{number}-half"));
        for point in std::iter::once(number.to_string()).chain(half) {
            let folder = scratch.file(&point);
            fs::create_dir(&folder).unwrap();
            begin(&folder).await;
            let ended = migrating(&folder, &shim, &point).output().unwrap();
            let was_killed = ended.status.signal() == Some(SIGKILL);
            assert!(was_killed || ended.status.success(), "{name} {point}: {ended:?}");
            let recovered = worker(&folder, "migrate", "none");
            assert!(recovered.status.success(), "{name} {point}: {recovered:?}");
            assert_eq!(contents(&folder, scenario.apart).await, expected, "{name} {point}");
            if number % WORK_EVERY == 0 || !was_killed {
                work(&folder, scenario).await.unwrap_or_else(|why| panic!("{name} {point}: {why}"));
            }
            fs::remove_dir_all(&folder).unwrap();
            killed |= was_killed;
            kills += u32::from(was_killed);
        }
        if !killed {
            break;
        }
    }
    println!("{name}: {kills} kills");
    assert!(kills > 20, "{name}: only {kills} kills");
}

fn migrating(folder: &Path, shim: &Path, point: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax-test-worker"));
    command.arg(folder).args(["migrate", "none"]).env("LD_PRELOAD", shim).env("HAPAX_TEST_KILL", point);
    command
}

/// A clean worker handles messages.
async fn work(folder: &Path, scenario: &Scenario) -> Result<(), String> {
    let messages = feed(folder, scenario).await;
    let worked = worker(folder, scenario.recovery, "none");
    if !worked.status.success() {
        return Err(format!("{worked:?}"));
    }
    check(folder, scenario, messages).await
}

/// What files hold that nobody was killed over.
async fn made_in_peace(scratch: &Scratch, shim: &Path, apart: bool) -> Vec<String> {
    let folder = scratch.file("peace");
    fs::create_dir(&folder).unwrap();
    if apart {
        fs::write(folder.join("queue.db"), "").unwrap();
    }
    assert!(migrating(&folder, shim, &CHANGES_MAX.to_string()).output().unwrap().status.success());
    contents(&folder, apart).await
}

/// Tables and indexes of store and queue, and the rows that migrations write, without their times. The files are sound.
async fn contents(folder: &Path, apart: bool) -> Vec<String> {
    const STORE: &str = "\
        SELECT coalesce(sql, name) FROM sqlite_schema \
        UNION ALL SELECT 'store ' || version FROM hapax_migration \
        UNION ALL SELECT name || ' ' || value FROM hapax_meta \
        UNION ALL SELECT 'generation ' || id FROM hapax_generation ORDER BY 1";
    const QUEUE: &str = "\
        SELECT coalesce(sql, name) FROM sqlite_schema \
        UNION ALL SELECT 'queue ' || version FROM hapax_queue_migration ORDER BY 1";
    let queue = if apart { "queue.db" } else { "store.db" };
    let mut contents = Vec::new();
    for (name, sql) in [("store.db", STORE), (queue, QUEUE)] {
        let mut file = open(&folder.join(name), false).await;
        let sound: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut file).await.unwrap();
        let application: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut file).await.unwrap();
        let rows = sqlx::query(sql).fetch_all(&mut file).await.unwrap();
        contents.extend(rows.iter().map(|row| row.get(0)));
        contents.push(format!("{sound}, application {application:x}"));
    }
    assert!(contents.iter().any(|row| row.starts_with("ok, application")), "{contents:?}");
    contents
}

async fn open(path: &PathBuf, create: bool) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(create);
    SqliteConnection::connect_with(&options).await.unwrap()
}
