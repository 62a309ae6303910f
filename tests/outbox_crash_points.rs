//! A program that sells and relays dies (SIGKILL) at a step of its own choice: of storing, of claiming, of sending, of telling what
//! was sent; each step has its turn, on each database. Another one takes over, and then what was sent is compared with what was
//! committed: nothing is lost, nothing is seen that was rolled back, and what comes twice bears the same id.
#![allow(clippy::unwrap_used)]

#[path = "process/audit.rs"]
mod audit;
#[path = "process/shops.rs"]
mod shops;
#[path = "process/stored.rs"]
mod stored;

use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Output},
};

use audit::Seen;
use futures_util::{StreamExt, stream};
use hapax::{
    SqliteQueue,
    ports::{Settlement, Transport},
};
use hapax_tests::{MySqlTables, PostgresSchema, Scratch};
use shops::{AUDIT, InFile, OnMySql, OnPostgres, Shop};
use stored::name_server;
use tokio::sync::mpsc::unbounded_channel;

/// The program sells six orders, of which one is rolled back.
const POINTS: &[&str] = &[
    // The writer, at an order that is handed to the relay and at one that waits for a claim.
    "begun-1-before",
    "stored-1-before",
    "inserted-1-before",
    "committed-0-before",
    "committed-1-before",
    "committed-2-before",
    "handed-0-before",
    "handed-2-before",
    // The relay.
    "join-0-before",
    "join-0-after",
    "claim-0-before",
    "claim-0-after",
    "claimed-0-before",
    "dispatch-0-before",
    "dispatch-0-after",
    "dispatch-1-before",
    "dispatch-1-after",
    "renew-0-before",
    "renew-0-after",
    "tell-0-before",
    "tell-0-after",
    "care-1-before",
    "care-1-after",
    "leave-0-before",
    "leave-0-after",
];
/// Programs at a time: mostly they wait for leases.
const AT_A_TIME: usize = 6;
const SIGKILL: i32 = 9;
/// Rows of an import, in hundreds of transactions, and how often it is killed.
const IMPORTED: i64 = 5000;
const KILLS: u32 = 20;

macro_rules! dies_at_each_step {
    ($($name:ident: $shop:ty, $mode:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let points = stream::iter(POINTS).map(|point| tokio::spawn(dies_at::<$shop>($mode, point)));
            points.buffer_unordered(AT_A_TIME).for_each(async |died| died.unwrap()).await;
        }
    )*};
}

dies_at_each_step! {
    an_outbox_on_postgres_outlives_a_kill_at_each_step: OnPostgres, "unordered";
    an_ordered_outbox_on_postgres_outlives_a_kill_at_each_step: OnPostgres, "ordered";
    an_outbox_on_mysql_outlives_a_kill_at_each_step: OnMySql, "unordered";
    an_ordered_outbox_on_mysql_outlives_a_kill_at_each_step: OnMySql, "ordered";
    an_outbox_in_sqlite_outlives_a_kill_at_each_step: InFile, "unordered";
    an_ordered_outbox_in_sqlite_outlives_a_kill_at_each_step: InFile, "ordered";
}

/// The control: were the books blind, this would pass too.
#[tokio::test]
#[should_panic(expected = "lost [")]
async fn a_transport_that_takes_what_it_does_not_send_is_found_out_by_the_books() {
    dies_at::<InFile>("careless", "tell-0-after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_on_postgres_outlives_kills() {
    is_killed_while_it_imports::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_on_mysql_outlives_kills() {
    is_killed_while_it_imports::<OnMySql>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_in_sqlite_outlives_kills() {
    is_killed_while_it_imports::<InFile>().await;
}

/// Each row is there or is a message, and is one message, wherever the program dies.
async fn is_killed_while_it_imports<S: Shop + 'static>() {
    let scratch = Scratch::new("outbox-import");
    let (folder, tables) = (scratch.folder().to_owned(), Tables::of::<S>(&scratch));
    let (url, names) = tables.names();
    name_server(&folder, url, names);
    S::outbox(url, names, false).await.unwrap();
    let mut shop = S::connect(url, names).await.unwrap();
    shop.make().await;
    let rows: Vec<String> = (0..IMPORTED).map(|order| format!("({order}, 0)")).collect();
    shop.run(&format!("INSERT INTO hapax.orders (id, `key`) VALUES {}", rows.join(", "))).await;
    let mut left = IMPORTED;
    for _ in 0..KILLS {
        let mut program = worker(&folder, "import", "none").spawn().unwrap();
        // In the middle of it, and not before it has begun.
        let before = left;
        while left == before && program.try_wait().unwrap().is_none() {
            left = shop.number("SELECT count(*) FROM hapax.orders").await;
        }
        program.kill().unwrap();
        let died = program.wait().unwrap();
        assert_eq!(died.signal(), Some(SIGKILL), "void: {left} rows were left when it ended");
    }
    // What the server still does for those that died is in nobody's way for long.
    while shop.number("SELECT count(*) FROM hapax.orders").await > 0 {
        assert!(program(&folder, "import", "none").await.status.success());
    }
    let messages = ["SELECT count(*) FROM hapax.outbox", "SELECT count(DISTINCT body) FROM hapax.outbox"];
    assert_eq!([shop.number(messages[0]).await, shop.number(messages[1]).await], [IMPORTED; 2]);
}

/// Tables of one's own on the server of the tests, which go with it.
enum Tables {
    Postgres(PostgresSchema),
    MySql(MySqlTables),
    File(String),
}

impl Tables {
    fn of<S: 'static>(scratch: &Scratch) -> Self {
        let of = std::any::TypeId::of::<S>();
        if of == std::any::TypeId::of::<OnPostgres>() {
            Self::Postgres(PostgresSchema::new())
        } else if of == std::any::TypeId::of::<OnMySql>() {
            Self::MySql(MySqlTables::new())
        } else {
            Self::File(scratch.file("shop.db").display().to_string())
        }
    }

    /// A URL or a file, and a schema or a prefix there.
    fn names(&self) -> (&str, &str) {
        match self {
            Self::Postgres(schema) => (schema.url(), schema.name()),
            Self::MySql(tables) => (tables.url(), tables.prefix()),
            Self::File(file) => (file, ""),
        }
    }
}

async fn dies_at<S: Shop + 'static>(mode: &str, point: &str) {
    let scratch = Scratch::new(&format!("outbox-{mode}-{point}"));
    let (folder, tables) = (scratch.folder().to_owned(), Tables::of::<S>(&scratch));
    let (url, names) = tables.names();
    name_server(&folder, url, names);
    S::outbox(url, names, mode == "ordered").await.unwrap();
    let mut shop = S::connect(url, names).await.unwrap();
    shop.make().await;
    let queue = SqliteQueue::open(folder.join("queue.db")).await.unwrap();
    let ends = queue.connect(&AUDIT.parse().unwrap(), &[]).await.unwrap();
    let died = program(&folder, "market", &format!("{mode}:{point}")).await;
    let step = point.split('-').next().unwrap();
    let said = String::from_utf8_lossy(&died.stdout).trim().to_owned();
    assert_eq!(died.status.signal(), Some(SIGKILL), "{mode} {point}: {died:?}");
    assert!(said.to_lowercase().ends_with(step), "{mode} {point}: {said}");
    let lives = program(&folder, "market", &format!("{mode}:none")).await;
    assert!(lives.status.success(), "{mode} {point}: {lives:?}");
    // It has ended when everything was sent.
    assert_eq!(shop.waiting().await, 0);
    let (tell, mut told) = unbounded_channel();
    while queue.backlog(&AUDIT.parse().unwrap()).await.unwrap() > 0 {
        for delivery in ends.receiver.receive(100).await.unwrap() {
            let body: serde_json::Value = serde_json::from_slice(&delivery.envelope.body).unwrap();
            let order = i32::try_from(body["order"].as_i64().unwrap()).unwrap();
            tell.send((order, delivery.envelope.message_id.clone())).unwrap();
            ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        }
    }
    let mut seen = Seen::default();
    while !told.is_empty() {
        seen.receive_some(&mut told).await;
    }
    println!("{mode} {point}");
    seen.check(shop.sold().await, mode);
}

async fn program(folder: &Path, task: &str, argument: &str) -> Output {
    let mut program = worker(folder, task, argument);
    tokio::task::spawn_blocking(move || program.output().unwrap()).await.unwrap()
}

fn worker(folder: &Path, task: &str, argument: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_hapax-test-worker"));
    program.arg(folder).args([task, argument]);
    program
}
