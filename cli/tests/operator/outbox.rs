//! What is stored to be sent: in entities, and in outbox tables.

use std::sync::Arc;

use hapax::{
    Relay, SqliteOutbox, SqliteQueue,
    ports::{OutboxRows, OutboxTable, Page, RowStatus},
};
use sqlx::SqlitePool;

use crate::rig::{Folder, ItemAdded, hapax, json, said, shop_that_could_not_send, text, until};

/// An outbox in which something was sent, something has failed and something waits; the ids of these.
async fn outbox_that_ran(file: &str) -> [String; 3] {
    let outbox = SqliteOutbox::open(file).await.unwrap();
    let queue = SqliteQueue::open(file).await.unwrap();
    let pool = SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    let store = async || {
        let mut tx = pool.begin().await.unwrap();
        let message = outbox.outgoing(&ItemAdded { order: "7".to_owned() }).unwrap();
        let mut envelope = (*message.envelope).clone();
        envelope.headers.set("from", "a test").unwrap();
        let (id, to) =
            (envelope.message_id.to_string(), hapax::envelope::Destination::Endpoint("stock".parse().unwrap()));
        let message = hapax::envelope::Outgoing { destination: to, envelope: Arc::new(envelope) };
        let ticket = outbox.enqueue_all(&mut tx, &[message]).await.unwrap();
        outbox.commit(tx, ticket).await.unwrap();
        id
    };
    let state = async || outbox.state().await.unwrap();
    let sent = store().await;
    let relay = Relay::to(queue.clone()).table(outbox.clone()).start().unwrap();
    until("it is sent", || async { state().await.stored == 0 }).await;
    relay.stop().await.unwrap();
    let failed = store().await;
    // As a relay leaves it that has tried too often.
    let fail = "UPDATE hapax_outbox SET status = 2, attempts = 15, last_error = 'the cable is cut', ended_at = stored_at WHERE status = 0";
    sqlx::query(fail).execute(&pool).await.unwrap();
    let waits = store().await;
    pool.close().await;
    queue.close().await;
    [sent, failed, waits]
}

async fn status_of(file: &str, id: &str) -> Option<(RowStatus, bool)> {
    let outbox = SqliteOutbox::open(file).await.unwrap();
    let page = Page { message_id: Some(id.parse().unwrap()), ..Page::first(1) };
    let rows = outbox.rows(None, &page).await.unwrap();
    rows.first().map(|row| (row.status, row.archived))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_entities_and_tables_is_listed() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_could_not_send(&file).await;
    let [sent, failed, waits] = outbox_that_ran(&file).await;
    let listed = json(&["outbox", "list", "--store", &file, "--json"], 0);
    let entity = &listed["entities"][0];
    assert_eq!((&entity["saga"], &entity["key"]), (&"order".into(), &"8".into()));
    assert_eq!(entity["entries"][0]["outgoing"][0]["destination"], "endpoint:stock");
    let rows = listed["rows"].as_array().unwrap();
    let seen: Vec<(&str, &str)> =
        rows.iter().map(|row| (row["message_id"].as_str().unwrap(), row["status"].as_str().unwrap())).collect();
    assert_eq!(seen, [(failed.as_str(), "failed"), (waits.as_str(), "waits")]);
    assert_eq!((&rows[0]["attempts"], &rows[0]["last_error"]), (&15.into(), &"the cable is cut".into()));
    // Page by page, each of them once.
    for (skip, expected) in [("0", Some(&failed)), ("1", Some(&waits)), ("2", None)] {
        let page = json(&["outbox", "list", "--skip", skip, "--limit", "1", "--store", &file, "--json"], 0);
        let rows = page["rows"].as_array().unwrap();
        let ids: Vec<&str> = rows.iter().map(|row| row["message_id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected.into_iter().collect::<Vec<_>>(), "{skip}");
    }
    let over = json(&["outbox", "list", "--status", "sent", "--store", &file, "--json"], 0);
    assert_eq!(over["rows"][0]["message_id"], sent.as_str());
    assert!(over.get("entities").is_none());
    let page = text(&hapax(&["outbox", "list", "--store", &file]));
    assert!(page.contains("endpoint:stock") && page.contains("the cable is cut"), "{page}");
    // And of one message.
    let life = json(&["message", &failed, "--store", &file, "--json"], 0);
    assert_eq!(life["outbox_rows"][0]["status"], "failed");
    let status = json(&["status", "--store", &file, "--json"], 0);
    assert_eq!((&status["outboxes"][0]["waiting"], &status["outboxes"][0]["failed"]), (&1.into(), &1.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_row_is_tried_again_or_given_up_and_no_other_is_touched() {
    let folder = Folder::new();
    let file = folder.file();
    let [sent, failed, waits] = outbox_that_ran(&file).await;
    for (command, becomes) in [("retry", RowStatus::Waits), ("discard", RowStatus::Expired)] {
        for other in [&sent, &waits] {
            let refused = hapax(&["outbox", command, other, "--yes", "--store", &file]);
            assert_eq!(refused.status.code(), Some(1), "{refused:?}");
            assert!(said(&refused).contains("no row that has failed"), "{refused:?}");
        }
        let dry = said(&hapax(&["outbox", command, &failed, &failed, "--dry-run", "--store", &file]));
        assert!(dry.contains("1 failed messages"), "one that is named twice is counted once: {dry}");
        let changed = json(&["outbox", command, &failed, "--yes", "--store", &file, "--json"], 0);
        assert_eq!(changed[0]["rows"], 1);
        assert_eq!(status_of(&file, &failed).await, Some((becomes, false)));
        assert_eq!(status_of(&file, &sent).await, Some((RowStatus::Sent, false)));
        assert_eq!(status_of(&file, &waits).await, Some((RowStatus::Waits, false)));
        // As it was, for the next command.
        let pool = SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
        let fail =
            "UPDATE hapax_outbox SET status = 2, ended_at = stored_at WHERE hex(id) = upper(replace(?, '-', ''))";
        sqlx::query(fail).bind(&failed).execute(&pool).await.unwrap();
        pool.close().await;
    }
    let all = json(&["outbox", "retry", "--all", "--yes", "--store", &file, "--json"], 0);
    assert_eq!(all[0]["rows"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_goes_to_the_archive_or_away_and_what_is_young_waits_or_has_failed_stays() {
    let folder = Folder::new();
    let file = folder.file();
    let [sent, failed, waits] = outbox_that_ran(&file).await;
    let young = json(&["outbox", "purge", "--yes", "--store", &file, "--json"], 0);
    assert_eq!(young[0]["rows"], 0);
    let dry = hapax(&["outbox", "archive", "--older-than", "0s", "--dry-run", "--store", &file]);
    assert!(said(&dry).contains("1 rows") && said(&dry).contains("nothing was done"), "{dry:?}");
    let dry = json(&["outbox", "archive", "--older-than", "0s", "--dry-run", "--store", &file, "--json"], 0);
    assert!(dry["dry_run"] == true && dry["would"].as_str().unwrap().contains("1 rows"), "{dry}");
    let archived = json(&["outbox", "archive", "--older-than", "0s", "--yes", "--store", &file, "--json"], 0);
    assert_eq!(archived[0]["rows"], 1);
    assert_eq!(status_of(&file, &sent).await, Some((RowStatus::Sent, true)));
    // The archive goes by its age as well.
    let young = json(&["outbox", "purge", "--yes", "--store", &file, "--json"], 0);
    assert_eq!(young[0]["removed_from_archive"], 0);
    let purged = json(&["outbox", "purge", "--older-than", "0s", "--yes", "--store", &file, "--json"], 0);
    assert_eq!(purged[0]["removed_from_archive"], 1);
    assert_eq!(status_of(&file, &sent).await, None);
    assert_eq!(status_of(&file, &failed).await, Some((RowStatus::Failed, false)));
    assert_eq!(status_of(&file, &waits).await, Some((RowStatus::Waits, false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_archive_loses_for_good_is_written_down_by_itself() {
    let folder = Folder::new();
    let file = folder.file();
    let [sent, ..] = outbox_that_ran(&file).await;
    let archive = ["outbox", "archive", "--older-than", "0s", "--yes", "--store", &file];
    let deeds = |args: &[&str]| -> Vec<(String, u64)> {
        let done = hapax(args);
        assert!(done.status.success(), "{done:?}");
        let lines = said(&done);
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|line| (line["deed"].as_str().unwrap().to_owned(), line["count"].as_u64().unwrap())).collect()
    };
    assert_eq!(deeds(&archive), [("archived outbox rows".to_owned(), 1)]);
    let removed = ("removed outbox rows from the archive".to_owned(), 1);
    assert_eq!(deeds(&[&archive[..], &["--keep", "0s"]].concat()), [removed, ("archived outbox rows".to_owned(), 0)]);
    assert_eq!(status_of(&file, &sent).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_an_outbox_alone_is_looked_at_too() {
    let folder = Folder::new();
    let file = folder.file();
    outbox_that_ran(&file).await;
    let status = json(&["status", "--store", &file, "--json"], 0);
    assert!(status["dedup"]["unknown"].as_str().unwrap().contains("no store"), "{status}");
    assert_eq!(status["outboxes"][0]["failed"], 1);
    let doctor = json(&["doctor", "--store", &file, "--json"], 1);
    let missing = doctor["findings"]
        .as_array()
        .unwrap()
        .iter()
        .any(|finding| finding["what"].as_str().unwrap().contains("no relay"));
    assert!(missing, "{doctor}");
    let letters = hapax(&["dead-letters", "list", "--store", &file]);
    assert_eq!(letters.status.code(), Some(1));
}
