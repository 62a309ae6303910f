//! A sweep by hand.

use hapax::{Sqlite, SqliteQueue, ids::EndpointName};

use crate::rig::{Folder, hapax, json, said, shop_that_could_not_send};

async fn backlog(file: &str, endpoint: &str) -> u64 {
    let queue = SqliteQueue::open(file).await.unwrap();
    let backlog = queue.backlog(&endpoint.parse::<EndpointName>().unwrap()).await.unwrap();
    queue.close().await;
    backlog
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_sent_marked_and_cleaned_up_once() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_could_not_send(&file).await;
    assert_eq!(backlog(&file, "stock").await, 0);
    let young = json(&["sweep", "--store", &file, "--yes", "--json"], 0);
    assert_eq!(young["entities"], 0); // It has not waited for a minute.
    let sweep = ["sweep", "--older-than", "0s", "--store", &file];
    let dry = hapax(&[&sweep[..], &["--dry-run"]].concat());
    assert!(dry.status.success() && said(&dry).contains("in 1 entity by"), "{dry:?}");
    let dry = json(&[&sweep[..], &["--dry-run", "--json"]].concat(), 0);
    assert!(dry["dry_run"] == true && dry["would"].as_str().unwrap().contains("in 1 entity by"), "{dry}");
    assert_eq!(backlog(&file, "stock").await, 0);
    let swept = json(&[&sweep[..], &["--yes", "--json"]].concat(), 0);
    assert_eq!((&swept["entries"], &swept["finished"], &swept["failed"]), (&1.into(), &1.into(), &0.into()));
    assert_eq!(backlog(&file, "stock").await, 1);
    let life = json(&["message", "waits-1", "--store", &file, "--json"], 0);
    assert_eq!(life["handled"][0]["remembered"], true);
    assert!(life["handled"][0].get("waits").is_none(), "{life}");
    // The state is as the handler left it, and nothing is left to sweep.
    let again = json(&[&sweep[..], &["--yes", "--json"]].concat(), 0);
    assert_eq!(again["entries"], 0);
    assert_eq!(backlog(&file, "stock").await, 1);
    let store = Sqlite::open(&file).await.unwrap();
    let scope = hapax::ids::Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
    let key = hapax::ids::EntityKey::new(scope.into(), "8".parse().unwrap());
    let stored = hapax::ports::EntityStore::load(&store, &key, &[]).await.unwrap().stored.unwrap();
    assert!(stored.entity.state.ends_with(br#"{"items":["tea"]}"#), "{:?}", stored.entity.state);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_and_written_down_is_what_is_swept() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_could_not_send(&file).await;
    let sweep = ["sweep", "--older-than", "0s", "--saga", "order", "--store", &file];
    let dry = said(&hapax(&[&sweep[..], &["--limit", "1", "--dry-run"]].concat()));
    assert!(dry.contains("up to 1 entity of each saga"), "{dry}");
    let dry = said(&hapax(&[&sweep[..], &["--dry-run"]].concat()));
    assert!(dry.contains("in 1 entity by"), "{dry}");
    let done = hapax(&[&sweep[..], &["--yes"]].concat());
    let line: serde_json::Value = serde_json::from_str(said(&done).trim()).unwrap();
    assert_eq!((&line["of"], &line["count"]), (&"order of all endpoints".into(), &1.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_no_way_out_nothing_is_sent_and_it_is_said() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_could_not_send(&file).await;
    // A transport that is not there: what waits stays.
    let away = hapax(&["sweep", "--older-than", "0s", "--store", &file, "--yes", "--transport", "redis://127.0.0.1:1"]);
    assert_ne!(away.status.code(), Some(0), "{away:?}");
    assert_eq!(said(&away).trim().lines().count(), 1, "{away:?}");
    let life = json(&["message", "waits-1", "--store", &file, "--json"], 0);
    assert_eq!(life["handled"][0]["waits"]["over"], false);
}

#[test]
fn what_sends_is_refused_where_no_way_out_was_named() {
    let folder = Folder::new();
    let file = folder.file();
    // No queues are beside the store.
    assert!(hapax(&["migrate", "--yes", "--store", &file]).status.success());
    for command in [&["sweep", "--older-than", "0s"][..], &["dead-letters", "retry", "--all"]] {
        let refused = hapax(&[command, &["--yes", "--store", &file]].concat());
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {refused:?}");
        assert!(said(&refused).contains("--transport"), "{command:?}: {refused:?}");
    }
}
