//! Dead letters: looked at, changed, given again, given up.

use std::{fs, process::Stdio, sync::Arc};

use hapax::{
    Sqlite, SqliteQueue,
    envelope::Envelope,
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page},
    time::Timestamp,
};

use crate::rig::{Folder, hapax, json, program, said, shop_that_ran, text};

/// Sets messages aside, in a store in which nothing was saved: each at an endpoint, with a body.
async fn set_aside(file: &str, letters: &[(&str, &str, &str)]) {
    assert!(hapax(&["migrate", "--queues", "--yes", "--store", file]).status.success());
    let store = Sqlite::open(file).await.unwrap();
    for (endpoint, id, body) in letters {
        let message_type = "shop.add-item".parse().unwrap();
        let envelope = Envelope::new(id.parse().unwrap(), message_type, body.as_bytes().to_vec());
        let letter = DeadLetter {
            envelope: Arc::new(envelope),
            endpoint: endpoint.parse().unwrap(),
            saga: Some("order".parse().unwrap()),
            destination: None,
            reason: "no \u{1b}[31m such\u{9b}2J item".to_owned(),
            attempts: 1,
            time: Timestamp::now(),
        };
        store.add(&letter).await.unwrap();
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_an_endpoint_that_has_saved_nothing_are_seen_and_given_again() {
    let folder = Folder::new();
    let file = folder.file();
    set_aside(&file, &[("shop", "bad-1", "{}"), ("shop", "bad-2", "{}")]).await;
    let listed = json(&["dead-letters", "list", "--store", &file, "--json"], 0);
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    let status = json(&["status", "--store", &file, "--json"], 0);
    assert_eq!(status["endpoints"][0]["dead_letters"]["number"], 2, "{status}");
    let life = json(&["message", "bad-1", "--store", &file, "--json"], 0);
    assert_eq!(life["dead_letters"][0]["endpoint"], "shop", "{life}");
    let found = json(&["doctor", "--store", &file, "--json"], 0);
    assert_eq!(found["warnings"], 1, "{found}");
    // One that is named twice is sent once.
    let named = ["dead-letters", "retry", "bad-1", "bad-2", "bad-1", "--yes", "--json", "--store", &file];
    assert_eq!(json(&named, 0)["done"], 2);
    assert_eq!((letters(&file).await, backlog(&file).await), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_whose_retry_was_cut_short_is_seen_everywhere_and_counted_once() {
    let folder = Folder::new();
    let file = folder.file();
    // As it is left between two steps: one is held alone, one is still where it was, too.
    let held = "hapax.held/shop";
    set_aside(&file, &[(held, "bad-1", "{}"), (held, "bad-2", "{}"), ("shop", "bad-2", "{}"), ("shop", "bad-3", "{}")])
        .await;
    let listed = json(&["dead-letters", "list", "--store", &file, "--json"], 0);
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    let status = json(&["status", "--store", &file, "--json"], 0);
    assert_eq!(status["endpoints"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(status["endpoints"][0]["dead_letters"], serde_json::json!({"number": 3, "at_least": false}));
    for id in ["bad-1", "bad-2", "bad-3"] {
        let life = json(&["message", id, "--store", &file, "--json"], 0);
        let seen = life["dead_letters"].as_array().unwrap();
        assert_eq!((seen.len(), &seen[0]["endpoint"]), (1, &"shop".into()), "{life}");
    }
    assert_eq!(json(&["dead-letters", "retry", "--all", "--yes", "--json", "--store", &file], 0)["done"], 3);
    assert_eq!(backlog(&file).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_several_endpoints_are_one_list_page_by_page() {
    let folder = Folder::new();
    let file = folder.file();
    let all = ["bad-1", "bad-2", "bad-3", "bad-4"];
    set_aside(&file, &[("desk", all[0], "{}"), ("desk", all[1], "{}"), ("shop", all[2], "{}"), ("shop", all[3], "{}")])
        .await;
    for skip in 0..=all.len() {
        let passed = skip.to_string();
        let page = json(&["dead-letters", "list", "--skip", &passed, "--limit", "2", "--json", "--store", &file], 0);
        let letters = page.as_array().unwrap().iter();
        let ids: Vec<&str> = letters.map(|letter| letter["message"]["message_id"].as_str().unwrap()).collect();
        assert_eq!(ids, all.iter().copied().skip(skip).take(2).collect::<Vec<_>>(), "{skip}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_cut_says_that_there_is_more_and_no_other_does() {
    let folder = Folder::new();
    let file = folder.file();
    set_aside(&file, &[("shop", "bad-1", "{}"), ("shop", "bad-2", "{}"), ("shop", "bad-3", "{}")]).await;
    for (page, next) in
        [(["0", "2"], Some("--skip 2")), (["1", "1"], Some("--skip 2")), (["0", "3"], None), (["2", "1"], None)]
    {
        let listed = hapax(&["dead-letters", "list", "--skip", page[0], "--limit", page[1], "--store", &file]);
        assert!(listed.status.success(), "{listed:?}");
        let warned = said(&listed);
        assert_eq!(next.is_some_and(|next| warned.contains(next)), next.is_some(), "{page:?}: {warned}");
        assert_eq!(warned.is_empty(), next.is_none(), "{page:?}: {warned}");
    }
    let none = hapax(&["dead-letters", "list", "--skip", "3", "--store", &file]);
    assert!(text(&none).contains("no such dead letters") && said(&none).is_empty(), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_set_aside_longer_ago_than_is_remembered_is_given_again_only_where_that_is_said() {
    let folder = Folder::new();
    let file = folder.file();
    set_aside(&file, &[("shop", "bad-1", "{}")]).await;
    let store = Sqlite::open(&file).await.unwrap();
    let young = store.list(&"shop".parse().unwrap(), &Page::first(1)).await.unwrap();
    assert_eq!(store.discard(&young).await.unwrap(), 1);
    store.add(&DeadLetter { time: Timestamp::from_millis(1), ..young[0].clone() }).await.unwrap();
    store.close().await;
    let retry = ["dead-letters", "retry", "bad-1", "--yes", "--json", "--store", &file];
    let left = json(&retry, 1);
    assert_eq!((&left["done"], &left["left"]), (&0.into(), &1.into()), "{left}");
    assert!(left["reasons"][0]["reason"].as_str().unwrap().contains("longer ago"), "{left}");
    assert_eq!((letters(&file).await, backlog(&file).await), (1, 0));
    assert_eq!(json(&[&retry[..], &["--beyond-retention"]].concat(), 0)["done"], 1);
    assert_eq!((letters(&file).await, backlog(&file).await), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_was_cut_short_is_mended_by_the_same_edit() {
    let folder = Folder::new();
    let file = folder.file();
    // The new letter is there, and the old one is there still.
    set_aside(&file, &[("shop", "bad-1", "{}"), ("shop", "bad-1", r#"{"item":"tea"}"#)]).await;
    let body = folder.path().join("body.json");
    let edit = ["dead-letters", "edit", "bad-1", "--yes", "--json", "--store", &file, "--body", body.to_str().unwrap()];
    fs::write(&body, r#"{"item":"coffee"}"#).unwrap();
    let another = hapax(&edit);
    assert!(another.status.code() == Some(1) && said(&another).contains("by the same edit"), "{another:?}");
    assert_eq!(letters(&file).await, 2);
    let shown = json(&["dead-letters", "show", "bad-1", "--json", "--store", &file], 0);
    let [old, new] = [0, 1].map(|at| shown[at]["fingerprint"].as_str().unwrap().to_owned());
    assert_ne!(old, new);
    let told = text(&hapax(&["dead-letters", "show", "bad-1", "--store", &file]));
    assert!(told.contains(&old) && told.contains(&new), "{told}");
    let one = ["dead-letters", "discard", "bad-1", "--fingerprint", &old, "--dry-run", "--store", &file];
    let dry = hapax(&one);
    assert!(dry.status.success() && said(&dry).contains("1 dead letter "), "{dry:?}");
    fs::write(&body, r#"{"item":"tea"}"#).unwrap();
    assert_eq!(json(&edit, 0)["message"]["body"]["item"], "tea");
    let shown = json(&["dead-letters", "show", "bad-1", "--json", "--store", &file], 0);
    assert_eq!((shown.as_array().unwrap().len(), &shown[0]["message"]["body"]["item"]), (1, &"tea".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_cannot_be_read_is_warned_of_and_hides_no_other() {
    let folder = Folder::new();
    let file = folder.file();
    set_aside(&file, &["bad-1", "bad-2", "bad-3"].map(|id| ("shop", id, "{}"))).await;
    let other = sqlx::SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    let damage = "UPDATE hapax_dead_letter SET envelope = x'07' WHERE message_id = 'bad-2'";
    assert_eq!(sqlx::raw_sql(damage).execute(&other).await.unwrap().rows_affected(), 1);
    let listed = hapax(&["dead-letters", "list", "--json", "--store", &file]);
    let letters: serde_json::Value = serde_json::from_str(&text(&listed)).unwrap();
    let ids = [0, 1].map(|at| letters[at]["message"]["message_id"].as_str().unwrap().to_owned());
    assert_eq!((letters.as_array().unwrap().len(), ids), (2, ["bad-1".to_owned(), "bad-3".to_owned()]));
    assert!(said(&listed).contains("left out of the list"), "{listed:?}");
    // Nor do as many as are looked at at once; neither from a list nor from what is given again.
    let folder = Folder::new();
    let file = folder.file();
    let ids: Vec<String> = (0..=100).map(|number| format!("bad-{number}")).collect();
    let all: Vec<_> = ids.iter().map(|id| ("shop", id.as_str(), "{}")).collect();
    set_aside(&file, &all).await;
    let other = sqlx::SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    let damage = "UPDATE hapax_dead_letter SET envelope = x'07' WHERE message_id <> 'bad-100'";
    assert_eq!(sqlx::raw_sql(damage).execute(&other).await.unwrap().rows_affected(), 100);
    other.close().await;
    let listed = json(&["dead-letters", "list", "--json", "--store", &file], 0);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["message"]["message_id"]), (1, &"bad-100".into()));
    assert_eq!(json(&["dead-letters", "retry", "--all", "--yes", "--json", "--store", &file], 0)["done"], 1);
    assert_eq!(backlog(&file).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_others_have_written_moves_the_cursor() {
    let folder = Folder::new();
    let file = folder.file();
    let id = "bad-\u{202e}1"; // Shown from right to left, it would look like another.
    let bodies = ["{\"a\": \"\u{9b}31m\u{202e}\"}", "no JSON \u{1b}[2J\u{9b}2J\u{7f}"];
    set_aside(&file, &bodies.map(|body| ("shop", id, body))).await;
    for command in [&["dead-letters", "list"][..], &["dead-letters", "show", id], &["message", id]] {
        for more in [&[][..], &["--json"]] {
            let ran = hapax(&[command, more, &["--store", &file]].concat());
            let shown = text(&ran);
            assert!(ran.status.success() && shown.contains("bad-"), "{ran:?}");
            assert!(shown.chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{command:?} {more:?}: {shown:?}");
        }
    }
    let shown = json(&["dead-letters", "show", id, "--json", "--store", &file], 0);
    assert_eq!(
        (&shown[0]["message"]["body"]["a"], &shown[0]["message"]["message_id"]),
        (&"\u{9b}31m\u{202e}".into(), &id.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_reads_the_answer_the_program_ends_as_it_would() {
    let folder = Folder::new();
    let file = folder.file();
    set_aside(&file, &[("shop", "bad-1", "{}"), ("shop", "bad-2", "{}")]).await;
    let past = ["--expires", "2020-01-01T00:00:00Z"];
    assert!(
        hapax(&[&["dead-letters", "edit", "bad-2", "--yes", "--store", &file], &past[..]].concat()).status.success()
    );
    for (command, code) in [
        (&["dead-letters", "list"][..], 0),
        (&["dead-letters", "retry", "--all", "--yes"], 1),
        (&["doctor", "--redelivery", "30d"], 1),
        (&["status", "--watch"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran =
            program().args(command).args(["--store", &file]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{command:?}: {ran:?}");
    }
    assert_eq!((letters(&file).await, backlog(&file).await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_on_the_way_says_that_some_of_it_may_be_done() {
    let folder = Folder::new();
    let file = folder.file();
    set_aside(&file, &[("shop", "bad-1", "{}"), ("shop", "bad-2", "{}")]).await;
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    let refuse = "CREATE TRIGGER no BEFORE DELETE ON hapax_dead_letter WHEN old.message_id = 'bad-2' BEGIN SELECT raise(ABORT, 'no'); END";
    sqlx::query(refuse).execute(&pool).await.unwrap();
    let log = folder.path().join("deeds.log");
    for deed in ["retry", "discard"] {
        let _ = fs::remove_file(&log);
        let command =
            ["dead-letters", deed, "--all", "--yes", "--by", "alice", "--log", log.to_str().unwrap(), "--store", &file];
        let ran = hapax(&command);
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        assert!(said(&ran).contains("some of it may be done already"), "{ran:?}");
        let line: serde_json::Value = serde_json::from_str(&fs::read_to_string(&log).unwrap()).unwrap();
        assert_eq!((&line["by"], line.get("count")), (&"alice".into(), None), "{line}");
        assert!(line["failed"].as_str().unwrap().contains("trigger"), "{line}");
    }
    sqlx::query("DROP TRIGGER no").execute(&pool).await.unwrap();
    pool.close().await;
}

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
    let dry = json(&[&discard[..], &["--dry-run", "--json"]].concat(), 0);
    assert_eq!(dry["would"], "give up 1 dead letter of shop for good");
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
    // Nothing else is known of it, and that is.
    let bad = json(&["message", "bad-1", "--store", &file, "--json"], 0);
    let of = |name: &str| bad["actions"][0][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(["by", "deed", "endpoint"].map(of), ["alice", "discarded", "shop"], "{bad}");
    let page = text(&hapax(&["message", "bad-1", "--store", &file]));
    assert!(page.contains("discarded by alice at ") && page.contains("with 1 dead letter of shop"), "{page}");
    // What was handled is remembered as before.
    let good = json(&["message", "good-1", "--store", &file, "--json"], 0);
    assert_eq!((&good["handled"][0]["remembered"], &good["actions"]), (&true.into(), &serde_json::json!([])));
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
    assert!(said(&twice).contains("send 1 dead letter of"), "one that is named twice is given once: {twice:?}");
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
