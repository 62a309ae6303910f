//! What stands in the tables, held still: see [`crate::golden`].

use std::path::{Path, PathBuf};

use hapax_core::{
    envelope::{Destination, Outgoing},
    ports::{DeadLetter, DeadLetters, Dispatcher, Page, Transport},
    time::Timestamp,
};

use super::{super::SqliteQueue, *};
use crate::golden;

/// A file as the first version has made it, with messages and letters: one of an endpoint and one of the queue itself.
const FIRST: &str = include_str!("golden/first.sql");
/// Of rows, what does not depend on when they were written.
const ROWS: [&str; 3] = [
    "SELECT q.endpoint || ' ' || m.message_id || ' ' || m.deliveries || ' ' || m.place || ' ' || coalesce(m.key, '-') || ' ' || \
     hex(m.envelope) FROM hapax_queue_message AS m JOIN hapax_queue AS q ON q.id = m.queue ORDER BY m.id",
    "SELECT s.type || ' ' || q.endpoint FROM hapax_queue_subscription AS s JOIN hapax_queue AS q ON q.id = s.queue",
    "SELECT endpoint || ' ' || message_id || ' ' || saga || ' ' || destination || ' ' || attempts || ' ' || time || ' ' || \
     reason || ' ' || hex(envelope) || ' ' || hex(fingerprint) FROM hapax_queue_dead_letter WHERE fingerprint IS NOT NULL",
];

/// A folder that is removed with the guard.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("hapax-queue-golden-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn beside(file: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite://{}?mode=rwc", file.display())).await.unwrap()
}

async fn rows(file: &Path) -> Vec<String> {
    let (mut connection, mut rows) = (beside(file).await, Vec::<String>::new());
    for sql in ROWS {
        let found: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap();
        rows.extend(found);
    }
    connection.close().await.unwrap();
    rows
}

#[tokio::test]
async fn a_queue_of_the_first_version_is_read_and_what_is_written_is_the_same() {
    let folder = Folder::new();
    let [old, new] = ["old.db", "new.db"].map(|name| folder.0.join(name));
    let (endpoint, topic) = ("shop".parse().unwrap(), "shop.item-added".parse().unwrap());
    let mut connection = beside(&old).await;
    connection.execute(sqlx::raw_sql(FIRST)).await.unwrap();
    connection.close().await.unwrap();
    let queue = SqliteQueue::open(&old).await.unwrap();
    let kept = rows(&old).await;

    let shop = queue.connect(&endpoint, &[]).await.unwrap();
    let came = shop.receiver.receive(10).await.unwrap();
    assert_eq!(came.len(), 2);
    golden::same_message(&came[0].envelope, &golden::small());
    golden::same_message(&came[1].envelope, &golden::full());
    let by_the_queue = DeadLetter {
        envelope: golden::small().into(),
        saga: None,
        destination: None,
        reason: "no more tries".to_owned(),
        attempts: 3,
        ..golden::letter()
    };
    let letters = queue.set_aside(&endpoint, &Page::first(10)).await.unwrap();
    assert_eq!(letters.len(), 2);
    golden::same_letter(&letters[0].letter, &golden::letter());
    golden::same_letter(&letters[1].letter, &by_the_queue);
    let times = [1_700_000_000_000, 1_700_000_000_001].map(|time| Some(Timestamp::from_millis(time)));
    assert_eq!([letters[1].sent_at, letters[1].first_given_at], times);
    queue.close().await;

    let queue = SqliteQueue::open(&new).await.unwrap();
    drop(queue.connect(&endpoint, &[topic]).await.unwrap());
    let sent = [("endpoint:shop", golden::small()), ("topic:shop.item-added", golden::full())];
    let sent =
        sent.map(|(to, envelope)| Outgoing { destination: Destination::parse(to).unwrap(), envelope: envelope.into() });
    for result in queue.dispatch(&sent).await {
        result.unwrap();
    }
    DeadLetters::add(&queue, &golden::letter()).await.unwrap();
    let written = rows(&new).await;
    queue.close().await;
    golden::same(&written.join("\n"), &kept.join("\n"));
}
