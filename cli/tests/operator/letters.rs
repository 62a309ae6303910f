//! Dead letters: looked at, changed, given again, given up.

use std::fs;

use hapax::{
    Sqlite, SqliteQueue,
    ids::EndpointName,
    ports::{DeadLetters, Page},
};

use crate::rig::{Folder, hapax, json, said, shop_that_ran, text};

async fn letters(file: &str) -> usize {
    let store = Sqlite::open(file).await.unwrap();
    let letters = store.list(&"shop".parse().unwrap(), &Page::first(10)).await.unwrap().len();
    store.close().await;
    letters
}

async fn backlog(file: &str) -> u64 {
    let queue = SqliteQueue::open(file).await.unwrap();
    let backlog = queue.backlog(&"shop".parse::<EndpointName>().unwrap()).await.unwrap();
    queue.close().await;
    backlog
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_listed_and_shown_with_their_bodies() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let listed = json(&["dead-letters", "list", "--store", &file, "--json"], 0);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!((&listed[0]["message"]["message_id"], &listed[0]["saga"]), (&"bad-1".into(), &"order".into()));
    assert!(listed[0]["message"].get("body").is_none());
    // Whoever only looks needs no transport.
    let away = if cfg!(feature = "redis") { &["--transport", "redis://127.0.0.1:1"][..] } else { &[] };
    let shown = json(&[&["dead-letters", "show", "bad-1", "--store", &file, "--json"][..], away].concat(), 0);
    assert_eq!(shown[0]["message"]["body"], serde_json::json!({"order": "7", "item": "bad"}));
    for (option, value, many) in [
        ("--reason", "no such item", 1),
        ("--reason", "something else", 0),
        ("--type", "shop.add-item", 1),
        ("--saga", "other", 0),
        ("--since", "1h", 1),
        ("--before", "1h", 0),
    ] {
        let listed = json(&["dead-letters", "list", option, value, "--store", &file, "--json"], 0);
        assert_eq!(listed.as_array().unwrap().len(), many, "{option} {value}");
    }
    let page = text(&hapax(&["dead-letters", "list", "--store", &file]));
    assert!(page.starts_with("time ") && page.contains("bad-1"), "{page}");
    let none = hapax(&["dead-letters", "show", "good-1", "--store", &file]);
    assert_eq!(none.status.code(), Some(1));
    assert!(said(&none).contains("no dead letter about message good-1"), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_is_given_up_is_gone_and_nothing_else_is() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let log = folder.path().join("deeds.log");
    let discard = ["dead-letters", "discard", "bad-1", "--store", &file];
    let dry = hapax(&[&discard[..], &["--dry-run"]].concat());
    assert!(dry.status.success() && said(&dry).contains("nothing was done"), "{dry:?}");
    assert_eq!(letters(&file).await, 1);
    let unknown = hapax(&["dead-letters", "discard", "bad-2", "--yes", "--store", &file]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert_eq!(letters(&file).await, 1);

    let done = hapax(&[&discard[..], &["--yes", "--by", "alice", "--log", log.to_str().unwrap()]].concat());
    assert!(done.status.success(), "{done:?}");
    assert_eq!(letters(&file).await, 0);
    let line: serde_json::Value = serde_json::from_str(said(&done).trim()).unwrap();
    assert_eq!((&line["by"], &line["count"], &line["of"]), (&"alice".into(), &1.into(), &"shop".into()));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&fs::read_to_string(&log).unwrap()).unwrap(), line);
    let actions = json(&["dead-letters", "actions", "--store", &file, "--json"], 0);
    assert_eq!((&actions[0]["by"], &actions[0]["deed"]), (&"alice".into(), &"discarded".into()));
    // What was handled is remembered as before.
    let good = json(&["message", "good-1", "--store", &file, "--json"], 0);
    assert_eq!(good["handled"][0]["remembered"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_edited_and_given_again() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let body = folder.path().join("body.json");
    fs::write(&body, r#"{"order":"7","item":"coffee","price":100.00}"#).unwrap();
    let edit = ["dead-letters", "edit", "bad-1", "--store", &file, "--yes", "--json"];
    let edited = json(&[&edit[..], &["--body", body.to_str().unwrap(), "--header", "mended=by alice"]].concat(), 0);
    assert_eq!(edited["message"]["body"]["item"], "coffee");
    assert_eq!(edited["message"]["headers"]["mended"], "by alice");
    assert_eq!((letters(&file).await, backlog(&file).await), (1, 0));
    // To the letter, so that it can be edited again.
    for args in [&["--json"][..], &[]] {
        let shown = text(&hapax(&[&["dead-letters", "show", "bad-1", "--store", &file][..], args].concat()));
        assert!(shown.contains(r#"{"order":"7","item":"coffee","price":100.00}"#), "{shown}");
    }

    let twice = hapax(&["dead-letters", "retry", "bad-1", "bad-1", "--store", &file, "--dry-run"]);
    assert!(said(&twice).contains("send 1 dead letters"), "one that is named twice is given once: {twice:?}");
    let retried = json(&["dead-letters", "retry", "--all", "--store", &file, "--yes", "--json"], 0);
    assert_eq!((&retried["done"], &retried["left"]), (&1.into(), &0.into()));
    assert_eq!((letters(&file).await, backlog(&file).await), (0, 1));
    let queued = json(&["message", "bad-1", "--store", &file, "--json"], 0);
    assert_eq!(queued["queued"][0]["endpoint"], "shop");
    assert_eq!(queued["dead_letters"].as_array().unwrap().len(), 0);
    let deeds = json(&["dead-letters", "actions", "--store", &file, "--json"], 0);
    let deeds: Vec<&str> = deeds.as_array().unwrap().iter().map(|action| action["deed"].as_str().unwrap()).collect();
    assert_eq!(deeds, ["edited", "retried"]);
    // There is nothing left to do.
    let again = json(&["dead-letters", "retry", "--all", "--store", &file, "--yes", "--json"], 0);
    assert_eq!(again["done"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_where_nothing_was_said_or_a_header_is_none() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let edit = ["dead-letters", "edit", "bad-1", "--store", &file, "--yes"];
    for (more, part) in [(&[][..], "nothing is to be changed"), (&["--header", "bad\u{1}=x"][..], "header")] {
        let refused = hapax(&[&edit[..], more].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(said(&refused).contains(part), "{refused:?}");
    }
    let gone = hapax(&[&edit[..], &["--body", folder.path().join("none").to_str().unwrap()]].concat());
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    let shown = json(&["dead-letters", "show", "bad-1", "--store", &file, "--json"], 0);
    assert_eq!(shown[0]["message"]["body"]["item"], "bad");
}
