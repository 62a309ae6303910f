//! Large bodies in a file: two processes that send and read them are killed again and again; in the end every text was read once, and
//! nothing is left of any body.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sqlite, SqliteQueue,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, Settings},
    ids::{EntityKey, SagaKey, Scope},
    ports::{DeadLetters, EntityStore, Page},
};
use hapax_tests::Scratch;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, Executor, Row, SqliteConnection};
use tokio::time::{sleep, timeout};

/// Where a process that is to be killed finds its file.
const FOLDER: &str = "HAPAX_TEST_CLAIMED";
/// Texts, each for a reader of its own.
const TEXTS: usize = 60;
const BYTES: usize = 40_000;
const ROUNDS: usize = 8;
const LEASE: Duration = Duration::from_millis(500);
/// How long the last two processes may take.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Serialize, Deserialize)]
struct Ask {
    key: String,
}

impl Message for Ask {
    const TYPE: &'static str = "claimed.ask";
}

#[derive(Serialize, Deserialize)]
struct Text {
    key: String,
    text: String,
}

impl Message for Text {
    const TYPE: &'static str = "claimed.text";
}

#[derive(Default, Serialize, Deserialize)]
struct Writer;

impl Saga for Writer {
    const NAME: &'static str = "writer";
}

impl Handle<Ask> for Writer {
    fn correlate(ask: &Ask) -> Correlation<'_> {
        (&ask.key).into()
    }

    async fn handle(&mut self, ask: Ask, cx: &mut Context) -> Result<(), HandlerError> {
        cx.send("archive", Text { key: ask.key, text: "x".repeat(BYTES) })
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Reader {
    read: Vec<usize>,
}

impl Saga for Reader {
    const NAME: &'static str = "reader";
}

impl Handle<Text> for Reader {
    fn correlate(text: &Text) -> Correlation<'_> {
        (&text.key).into()
    }

    async fn handle(&mut self, text: Text, _: &mut Context) -> Result<(), HandlerError> {
        self.read.push(text.text.len());
        Ok(())
    }
}

async fn open(folder: &Path) -> (Sqlite, SqliteQueue) {
    let store = Sqlite::open(folder.join("store.db")).await.unwrap();
    let queue = SqliteQueue::options().lease(LEASE).on(&store).await.unwrap();
    (store, queue)
}

fn endpoint(name: &str, store: &Sqlite, queue: &SqliteQueue) -> EndpointBuilder {
    let recoverability = Recoverability { poison_above: 1_000_000, ..Recoverability::default() };
    let settings = Settings {
        sweep_age: Duration::from_secs(1),
        sweep_interval: Duration::from_millis(200),
        evict_interval: Duration::from_millis(200),
        recoverability,
        ..Settings::default()
    };
    Endpoint::builder(name).store(store.clone()).bodies(store.clone(), 1000).transport(queue.clone()).settings(settings)
}

/// What a process does that is to be killed. As a test it has nothing to do.
#[tokio::test]
async fn process_of_claims() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (store, queue) = open(Path::new(&folder)).await;
    let writer = endpoint("front", &store, &queue).saga::<Writer>(|writer| writer.starts::<Ask>());
    let reader = endpoint("archive", &store, &queue).saga::<Reader>(|reader| reader.starts::<Text>());
    let never = std::future::pending::<()>;
    let (first, second) = tokio::join!(writer.run_until(never()), reader.run_until(never()));
    first.and(second).unwrap();
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn process(folder: &Path) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["claimed::process_of_claims", "--exact", "--nocapture"]).env(FOLDER, folder);
    Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn numbered(number: usize) -> String {
    format!("text-{number}")
}

async fn read(store: &Sqlite, number: usize) -> Vec<usize> {
    let scope = Scope { endpoint: "archive".parse().unwrap(), saga: "reader".parse().unwrap() };
    let key = EntityKey::new(Arc::new(scope), SagaKey::parse(numbered(number)).unwrap());
    let Some(stored) = store.load(&key, &[]).await.unwrap().stored else { return Vec::new() };
    serde_json::from_slice::<Reader>(&stored.entity.state[hapax::codec::FRAME_BYTES..]).unwrap().read
}

/// Rows, those with a body, and of these the staged ones.
async fn bodies(file: &mut SqliteConnection) -> (i64, i64, i64) {
    let sql = "SELECT count(*), count(body), coalesce(sum(staged = 1 AND body IS NOT NULL), 0) FROM hapax_body";
    let row = file.fetch_one(sql).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test]
async fn killed_processes_lose_no_large_body_and_leave_none() {
    let scratch = Scratch::new("claimed");
    let folder: PathBuf = scratch.folder().to_owned();
    let (store, queue) = open(&folder).await;
    let mut file = SqliteConnection::connect(&format!("sqlite://{}", folder.join("store.db").display())).await.unwrap();
    file.execute("PRAGMA busy_timeout = 10000").await.unwrap();
    for number in 0..TEXTS {
        let id = numbered(number).parse().unwrap();
        queue.sender().send_as(id, "front", &Ask { key: numbered(number) }).await.unwrap();
    }
    for _ in 0..ROUNDS {
        let processes = (process(&folder), process(&folder));
        // Not to wait for anything: a process is killed wherever it is.
        sleep(Duration::from_millis(fastrand::u64(150..700))).await;
        drop(processes);
    }
    let _processes = (process(&folder), process(&folder));
    let all_read = async {
        for number in 0..TEXTS {
            while read(&store, number).await.is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
        }
        // The last ones are released, or their copies come for it.
        loop {
            let (_, kept, staged) = bodies(&mut file).await;
            if kept == staged {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, all_read).await.expect("all texts are read, and their bodies let go of");
    for number in 0..TEXTS {
        assert_eq!(read(&store, number).await, [BYTES], "{number}");
    }
    for endpoint in ["front", "archive"] {
        let letters = store.list(&endpoint.parse().unwrap(), &Page::first(10)).await.unwrap();
        assert_eq!(letters, [], "{endpoint}");
    }
    // As if retention had passed.
    let month = "30 * 24 * 3600 * 1000";
    let later = format!("UPDATE hapax_body SET put_at = put_at - {month}, over_at = over_at - {month}");
    let all_gone = async {
        loop {
            file.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(later.clone()))).await.unwrap();
            if bodies(&mut file).await.0 == 0 {
                break;
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(PATIENCE, all_gone).await.expect("nothing is left of any body");
}
