//! What only looks: status, message, audit, doctor, completion.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use hapax::{
    Sqlite, SqliteQueue,
    ports::{DeadLetter, DeadLetters, Page},
};

use crate::rig::{Folder, ItemAdded, hapax, json, program, said, shop_that_could_not_send, shop_that_ran, text};

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_what_waits_what_was_set_aside_and_what_is_remembered() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    shop_that_could_not_send(&file).await;
    let status = json(&["status", "--store", &file, "--json"], 0);
    assert_eq!(status["store"], "sqlite");
    assert_eq!(
        (&status["place"], &status["transport"]),
        (&file.as_str().into(), &"the queues beside the store".into())
    );
    assert_eq!(status["dedup"]["entries"], serde_json::json!({"number": 1, "at_least": false}));
    let shop = &status["endpoints"][0];
    assert_eq!(shop["endpoint"], "shop");
    assert_eq!(shop["dead_letters"]["number"], 1);
    assert_eq!(shop["queue"]["messages"]["number"], 1); // `waits-1`, whose process has died.
    assert_eq!(shop["queue"]["leased"]["number"], 1);
    assert_eq!(shop["schedule"]["messages"]["number"], 0);
    let order = shop["sagas"].as_array().unwrap().iter().find(|saga| saga["saga"] == "order").unwrap();
    assert_eq!((&order["waiting"]["number"], &order["entries"]), (&1.into(), &1.into()));
    let page = text(&hapax(&["status", "--store", &file]));
    for part in ["endpoint shop", "dead letters  1", "1 message, 1 under a lease", "order", "dedup entries  1"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

/// Goal: who has forgotten what the environment says sees which place he is shown. Method: the head of a page, with and without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_headed_by_the_place_and_the_transport() {
    let (folder, other) = (Folder::new(), Folder::new());
    let (file, queues) = (folder.file(), other.file());
    shop_that_ran(&file).await;
    SqliteQueue::options().open(&queues).await.unwrap().close().await;
    let page = text(&hapax(&["status", "--store", &file]));
    assert!(page.starts_with(&format!("sqlite {file} at ")), "{page}");
    assert!(page.contains("\ntransport      the queues beside the store\n"), "{page}");
    let page = text(&program().args(["status", "--store", &file]).env("HAPAX_TRANSPORT", &queues).output().unwrap());
    assert!(page.contains(&format!("\ntransport      {queues}, as HAPAX_TRANSPORT says\n")), "{page}");
    let page = text(&hapax(&["status", "--store", &file, "--transport", &queues]));
    assert!(page.contains(&format!("\ntransport      {queues}\n")), "{page}");
}

/// Goal: a letter whose retry could not send it, or died, is one all the same. Method: it is put where a retry holds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_whose_retry_was_cut_short_is_counted_and_found() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let store = Sqlite::open(&file).await.unwrap();
    let letters = store.list(&"shop".parse().unwrap(), &Page::first(1)).await.unwrap();
    store.add(&DeadLetter { endpoint: "hapax.held/shop".parse().unwrap(), ..letters[0].clone() }).await.unwrap();
    assert_eq!(store.discard(&letters).await.unwrap(), 1);
    drop(store);
    let status = json(&["status", "--store", &file, "--json"], 0);
    assert_eq!(status["endpoints"][0]["dead_letters"]["number"], 1);
    let bad = json(&["message", "bad-1", "--store", &file, "--json"], 0);
    assert_eq!(bad["dead_letters"][0]["endpoint"], "shop");
}

/// Goal: of a mistyped endpoint nothing is told as a zero, and none that has something, whatever it is, is taken for one. Method: a name
/// that is none to each command; endpoints that have only a message in their queue, or only a letter, one of them held by a retry.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_none_is_said_with_those_there_are() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["dead-letters", "list"],
        &["dead-letters", "list", "--json"],
        &["dead-letters", "retry", "--all", "--yes"],
        &["dead-letters", "discard", "--all", "--yes"],
        &["dead-letters", "actions"],
        &["outbox", "list"],
        &["sweep", "--yes"],
        &["audit", "--every", "1ms"],
    ] {
        let ran = hapax(&[command, &["--endpoint", "shpo", "--store", &file]].concat());
        assert_eq!(ran.status.code(), Some(1), "{command:?}: {ran:?}");
        assert!(said(&ran).contains("endpoint shpo has stored nothing here; there is: shop"), "{command:?}: {ran:?}");
        assert!(ran.stdout.is_empty(), "{command:?}: {ran:?}");
    }
    let doctor = hapax(&["doctor", "--endpoint", "shpo", "--store", &file]);
    assert!(doctor.status.success() && text(&doctor).contains("shpo has stored nothing here"), "{doctor:?}");
    let life = hapax(&["message", "good-1", "--endpoint", "shpo", "--store", &file]);
    assert!(life.status.code() == Some(1) && said(&life).contains("there is: shop"), "{life:?}");

    let store = Sqlite::open(&file).await.unwrap();
    let letters = store.list(&"shop".parse().unwrap(), &Page::first(1)).await.unwrap();
    for endpoint in ["library", "hapax.held/loft"] {
        store.add(&DeadLetter { endpoint: endpoint.parse().unwrap(), ..letters[0].clone() }).await.unwrap();
    }
    drop(store);
    for endpoint in ["shop", "stock", "library", "loft"] {
        for command in [&["status"][..], &["dead-letters", "actions"], &["sweep", "--yes"]] {
            let ran = hapax(&[command, &["--endpoint", endpoint, "--store", &file]].concat());
            assert!(ran.status.success(), "{endpoint} {command:?}: {ran:?}");
        }
    }
}

/// Goal: an endpoint of which nobody but its broker has anything is not taken for one that was mistyped, and where that cannot be known it is
/// said. Method: a message in queues of another file, which `--transport` names or does not.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_has_only_messages_is_known_where_its_transport_is_named() {
    let (folder, other, bare) = (Folder::new(), Folder::new(), Folder::new());
    let (file, queues, bare) = (folder.file(), other.file(), bare.file());
    shop_that_ran(&file).await;
    let queue = SqliteQueue::open(&queues).await.unwrap();
    let added = ItemAdded { order: "7".to_owned() };
    queue.sender().send_as("sent-1".parse().unwrap(), "loft", &added).await.unwrap();
    queue.close().await;
    for command in [
        &["status"][..],
        &["dead-letters", "list"],
        &["dead-letters", "discard", "--all", "--yes"],
        &["dead-letters", "actions"],
        &["outbox", "list"],
        &["sweep", "--yes"],
        &["audit", "--every", "1ms"],
    ] {
        let named = [command, &["--endpoint", "loft", "--store", &file]].concat();
        let unknown = hapax(&named);
        assert_eq!(unknown.status.code(), Some(1), "{command:?}: {unknown:?}");
        assert!(said(&unknown).contains("endpoint loft has stored nothing here"), "{command:?}: {unknown:?}");
        let known = hapax(&[&named[..], &["--transport", &queues]].concat());
        assert!(known.status.success(), "{command:?}: {known:?}");
    }
    let named = ["dead-letters", "list", "--endpoint", "loft", "--store"];
    if cfg!(feature = "redis") {
        let away = ["--transport", "redis://shop:s3cret@127.0.0.1:1"];
        let away = hapax(&[&named[..], &[file.as_str()], &away].concat());
        assert_eq!(away.status.code(), Some(1), "{away:?}");
        let why = said(&away);
        assert!(why.contains("has anything is not known") && why.contains("127.0.0.1:1"), "{why}");
        assert!(!why.contains("s3cret"), "{why}");
    }
    assert!(hapax(&["migrate", "--yes", "--store", &bare]).status.success());
    let untold = said(&hapax(&[&named[..], &[bare.as_str()]].concat()));
    assert!(untold.contains("what is in its queue is not known here: no transport was given"), "{untold}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_message_is_told_from_its_queue_to_what_it_caused() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    shop_that_could_not_send(&file).await;
    let good = json(&["message", "good-1", "--store", &file, "--json"], 0);
    let handled = &good["handled"][0];
    assert_eq!(
        (&handled["saga"], &handled["key"], &handled["remembered"]),
        (&"order".into(), &"7".into(), &true.into())
    );
    assert_eq!(good["dead_letters"].as_array().unwrap().len(), 0);

    let bad = json(&["message", "bad-1", "--store", &file, "--json"], 0);
    assert_eq!(bad["handled"].as_array().unwrap().len(), 0);
    assert_eq!(bad["dead_letters"][0]["saga"], "order");
    assert!(bad["dead_letters"][0]["reason"].as_str().unwrap().contains("no such item"));

    let waits = json(&["message", "waits-1", "--store", &file, "--json"], 0);
    let handled = &waits["handled"][0];
    assert_eq!((&handled["key"], &handled["remembered"]), (&"8".into(), &false.into()));
    let outgoing = &handled["waits"]["outgoing"][0];
    assert_eq!(outgoing["destination"], "endpoint:stock");
    let queued = &waits["queued"][0];
    assert!(queued["attempts"].as_u64().unwrap() >= 1, "{queued}");
    // And of what it sends, who sends it.
    let sent = json(&["message", outgoing["message_id"].as_str().unwrap(), "--store", &file, "--json"], 0);
    assert_eq!(sent["sent_by"][0]["key"], "8");

    let page = text(&hapax(&["message", "waits-1", "--store", &file]));
    assert!(page.contains("handled by shop/order/8") && page.contains("1 message of it waits to be sent"), "{page}");
    // Of whom nobody knows anything, the id was mistyped: a script has to hear of that.
    let unknown = hapax(&["message", "nobody", "--store", &file]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    let page = text(&unknown);
    assert!(page.contains("nothing is known of it here: look at how it is written"), "{page}");
    let unknown = json(&["message", "nobody", "--store", &file, "--json"], 1);
    assert_eq!((&unknown["message_id"], &unknown["handled"]), (&"nobody".into(), &serde_json::json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_looks_at_what_there_is_and_finds_what_a_forgetful_job_has_done() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_could_not_send(&file).await;
    let audit = ["audit", "--store", &file, "--json", "--every", "1ms"];
    let fine = json(&audit, 0);
    assert_eq!(fine["violations"], 0);
    assert!(fine["looks"].as_u64().unwrap() >= 2, "{fine}");
    // Somebody marks the message under another attempt, as a copy after retention would.
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{file}")).await.unwrap();
    let broken = "INSERT INTO hapax_dedup (generation, key, attempt, fingerprint, time) \
         SELECT g.id, unhex(p.value ->> 0), randomblob(16), randomblob(16), 1 \
         FROM hapax_generation AS g, hapax_entity AS e, json_each(e.pending) AS p WHERE e.pending IS NOT NULL";
    assert_eq!(sqlx::query(broken).execute(&pool).await.unwrap().rows_affected(), 1);
    pool.close().await;
    let found = json(&audit, 1);
    assert!(found["violations"].as_u64().unwrap() > 0, "{found}");
    let named = found["found"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("handled_once"));
    assert!(named, "{found}");
    // Also to who has stopped reading.
    let mut child = program().args(audit).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_what_is_to_be_done() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let fine = hapax(&["doctor", "--store", &file]);
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
    let page = text(&fine);
    assert!(
        page.contains("the store opens") && page.contains("shop has set 1 message aside") && page.contains("-> "),
        "{page}"
    );
    let short = json(&["doctor", "--store", &file, "--redelivery", "999d", "--json"], 1);
    assert_eq!(short["errors"], 1);
    let none = hapax(&["doctor", "--store", folder.path().join("none.db").to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none).contains("there is no such file") && text(&none).contains("hapax migrate"), "{none:?}");
}

/// Goal: a transport that fails hides nothing else, and an address that is none ends the program as that of a store does. Method: one that does
/// not answer, and one of no kind.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_looks_on_where_the_transport_fails() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let (away, none) = (("redis://shop:s3cret@127.0.0.1:1", 1), ("carrier-pigeon://loft", 2));
    for (url, code) in [away, none].into_iter().skip(usize::from(!cfg!(feature = "redis"))) {
        let ran = hapax(&["doctor", "--store", &file, "--transport", url]);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let page = text(&ran);
        for part in ["ERROR    transport: ", "dedup entries are kept for", "shop has set 1 message aside", "1 error"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("the transport opens") && !page.contains("s3cret"), "{page}");
        assert_eq!(said(&ran).contains("no transport"), code == 2, "{ran:?}");
    }
    let store = hapax(&["doctor", "--store", "carrier-pigeon://loft"]);
    assert_eq!(store.status.code(), Some(2), "{store:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_without_a_terminal_is_a_line_for_each_look_and_ends_with_its_reader() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let mut child = program()
        .args(["status", "--watch", "--every", "100ms", "--json", "--store", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["store"], "sqlite");
    }
    drop(lines); // `| head -2`.
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(said(&ended).is_empty(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_on_a_terminal_leaves_it_as_it_was() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    // Ctrl-C, and Ctrl-\\, each after a second in a terminal from `script`.
    for signal in ["INT", "QUIT"] {
        let line = format!(
            "timeout --signal={signal} 1 '{}' status --watch --every 200ms --store '{file}'",
            env!("CARGO_BIN_EXE_hapax")
        );
        let terminal = std::process::Command::new("script")
            .args(["--quiet", "--command", &line, "/dev/null"])
            .stdin(Stdio::null())
            .output();
        let Ok(seen) = terminal else {
            eprintln!("SKIPPED: there is no program `script`, which makes a terminal: install util-linux");
            return;
        };
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        assert!(seen.contains("\u{1b}[?1049h") && seen.contains("Ctrl-C ends it"), "{signal}: {seen}");
        assert!(seen.matches("endpoint shop").count() > 1, "{signal}: {seen}");
        assert!(seen.trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{signal}: {seen}");
    }
}

#[test]
fn each_shell_gets_its_completion() {
    for (shell, part) in [("bash", "complete -F"), ("zsh", "#compdef hapax"), ("fish", "complete -c hapax")] {
        let output = hapax(&["completion", shell]);
        assert!(output.status.success() && text(&output).contains(part), "{shell}");
        assert!(text(&output).contains("dead-letters"), "{shell}");
    }
}
