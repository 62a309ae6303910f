//! The same where the endpoint's queues are on a broker, which `--transport` names: what is in them is seen, and dead letters go there again.
//! Those that the variables name, as `cargo xtask test` sets them.

use hapax::{
    Sqlite,
    ids::EndpointName,
    ports::{DeadLetters, Page, Transport},
};

use crate::rig::{AddItem, Folder, builder, hapax, json, said, until};

/// `bad-1` is set aside by a shop whose queues are on the broker, and given to it again by the command.
macro_rules! day {
    ($variable:literal, $feature:literal, $options:expr) => {
        let Some(url) = std::env::var($variable).ok().filter(|_| cfg!(feature = $feature)) else {
            eprintln!("SKIPPED: {} names no server, or the program was built without it: set it to its URL", $variable);
            return;
        };
        let (folder, prefix) = (Folder::new(), format!("cli-{}-{}", $feature, std::process::id()));
        let file = folder.file();
        let [shop, stock] = ["shop", "stock"].map(|name| name.parse::<EndpointName>().unwrap());
        let store = Sqlite::open(&file).await.unwrap();
        let queue = $options.prefix(&prefix).open(&url).await.unwrap();
        drop(queue.connect(&stock, &[]).await.unwrap()); // So that there is a queue.
        let running = builder(store.clone(), queue.clone()).start().await.unwrap();
        let running = tokio::spawn(running.run_until(std::future::pending::<()>()));
        for (id, item) in [("good-1", "tea"), ("bad-1", "bad")] {
            let add = AddItem { order: "7".to_owned(), item: item.to_owned() };
            queue.sender().send_as(id.parse().unwrap(), "shop", &add).await.unwrap();
        }
        let settled = || async {
            let letters = store.list(&shop, &Page::first(10)).await.unwrap().len();
            (letters, queue.backlog(&shop).await.unwrap(), queue.backlog(&stock).await.unwrap()) == (1, 0, 1)
        };
        until("the shop has handled all", settled).await;
        running.abort();
        let _ = running.await;

        let place = ["--store", &file, "--transport", &url, "--queue-prefix", &prefix];
        let ask = |args: &[&str]| json(&[args, &place, &["--json"]].concat(), 0);
        assert_eq!(ask(&["status"])["endpoints"][0]["queue"]["messages"]["number"], 0);
        assert_eq!(ask(&["doctor"])["errors"], 0);
        let dry = hapax(&[&["dead-letters", "retry", "bad-1", "--dry-run"][..], &place].concat());
        assert!(said(&dry).contains("send 1 dead letter of shop again by "), "{dry:?}");
        let retried = ask(&["dead-letters", "retry", "bad-1", "--yes"]);
        assert_eq!((&retried["done"], &retried["left"]), (&1.into(), &0.into()), "{retried}");
        until("it is there again", || async { queue.backlog(&shop).await.unwrap() == 1 }).await;
        assert_eq!(ask(&["status"])["endpoints"][0]["queue"]["messages"]["number"], 1);
        assert_eq!(ask(&["dead-letters", "list"]), serde_json::json!([]));
        queue.remove(&[shop, stock]).await.unwrap();
        store.close().await;
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_goes_back_to_its_queue_on_rabbitmq() {
    day!("HAPAX_TEST_RABBITMQ", "rabbitmq", hapax::RabbitMq::options());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_goes_back_to_its_queue_on_nats() {
    day!("HAPAX_TEST_NATS", "nats", hapax::Nats::options());
}

/// Whether the server of the tests keeps anything is its owner's affair.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_goes_back_to_its_queue_on_redis() {
    use hapax::transports::redis::MayLose;
    day!("HAPAX_TEST_REDIS", "redis", hapax::RedisStreams::options().may_lose(MayLose::Everything));
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_goes_back_to_its_queue_on_kafka() {
    // The broker of the tests lets who joins a group wait for half of it.
    const SESSION: std::time::Duration = std::time::Duration::from_secs(2);
    day!("HAPAX_TEST_KAFKA", "kafka", hapax::Kafka::options().session(SESSION).batch(1));
}
