//! The job with every store of entities and every broker, while workers are killed and stopped; and, where the broker can be the run's own,
//! while that is killed too. Which of them run each time is said in `.config/nextest.toml`: each server among them
//! once, beside the tests of each broker with a file; all run by `cargo xtask test --all`.
#![cfg(all(feature = "dynamodb", feature = "cosmos", feature = "sqs", feature = "kafka"))]
#![allow(clippy::unwrap_used)]

mod program;

use program::{number, orders, words};

/// Two of the first thirty become dead letters at once, and one after its rule has given it up.
const ORDERS: &str = "30";

/// Where the tests' server is: set by `cargo xtask test`, which finds or starts one.
fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("no {variable} to test with: run `cargo xtask test`"))
}

/// The same of what is served by HTTP, as the program wants it.
fn emulator(scheme: &str, variable: &str) -> String {
    server(variable).replace("http://", &format!("{scheme}://"))
}

/// Runs it and expects the books to balance, and somebody to have been killed.
fn balanced(broker: &str, arguments: &[&str]) -> String {
    let output = orders(arguments);
    let report = words(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.contains("charged exactly once") && !report.contains("still there"), "{report}");
    assert!(report.contains(&format!("messages over {broker}")), "{report}");
    assert_ne!(number(&report, "  killed"), 0, "{report}");
    assert!(number(&report, "dead letters") >= 2, "{report}");
    report
}

/// Who is killed on Kafka has its partitions given to others after six seconds, and on an emulator each call takes longer.
fn goes_on(broker: &str, transport: &str, store: Option<&str>) {
    let faults = match broker {
        "Kafka" => ["--kill-every", "2s", "--stall-every", "5s"],
        _ => ["--kill-every", "700ms", "--stall-every", "1s"],
    };
    let usual = ["--orders", ORDERS, "--workers", "2", "--transport", transport];
    let store = store.map(|store| ["--store", store]);
    let report = balanced(broker, &[&usual[..], &faults, store.as_ref().map_or(&[][..], |store| &store[..])].concat());
    assert_ne!(number(&report, "  stopped"), 0, "{report}");
}

macro_rules! pairs {
    ($($module:ident: $broker:literal at $url:expr;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn goes_with_a_file() {
                goes_on($broker, &$url, None);
            }

            #[test]
            fn goes_with_postgres() {
                goes_on($broker, &$url, Some(&server("HAPAX_TEST_POSTGRES")));
            }

            #[test]
            fn goes_with_mysql() {
                goes_on($broker, &$url, Some(&server("HAPAX_TEST_MYSQL")));
            }

            #[test]
            fn goes_with_dynamodb() {
                goes_on($broker, &$url, Some(&emulator("dynamodb", "HAPAX_TEST_DYNAMODB")));
            }

            #[test]
            fn goes_with_cosmos() {
                goes_on($broker, &$url, Some(&emulator("cosmos", "HAPAX_TEST_COSMOS")));
            }
        }
    )*};
}

pairs! {
    rabbitmq: "RabbitMQ" at server("HAPAX_TEST_RABBITMQ");
    nats: "NATS" at server("HAPAX_TEST_NATS");
    redis: "Redis" at server("HAPAX_TEST_REDIS");
    kafka: "Kafka" at server("HAPAX_TEST_KAFKA");
    sqs: "SQS" at emulator("sqs", "HAPAX_TEST_SQS");
}

/// The broker is killed every few seconds as long as orders are open: so there are enough of them for one kill at least.
fn outlives_kills(broker: &str, transport: &str, orders: &str, store: Option<&str>) {
    // RabbitMQ takes seconds to let anybody in, so that not much would be done between two kills.
    let killed = ["--kill-broker", if broker == "RabbitMQ" { "4s" } else { "2s" }, "--kill-every", "1s"];
    let usual = ["--orders", orders, "--workers", "2", "--transport", transport];
    let store = store.map(|store| ["--store", store]);
    let report = balanced(broker, &[&usual[..], &killed, store.as_ref().map_or(&[][..], |store| &store[..])].concat());
    assert_ne!(number(&report, "broker killed"), 0, "{report}");
}

/// What a process had that was killed is given to others six seconds later, when its session ends. The broker's name is in those that call this, by which
/// they are left out where there is no kfake.
fn outlives_kills_of_kafka(store: Option<&str>) {
    if !hapax_servers::KfakeServer::is_there() {
        return eprintln!("SKIPPED: {}", hapax_servers::KfakeServer::REMEDY);
    }
    let killed = ["--kill-broker", "4s", "--kill-every", "5s", "--stall-every", "20s"];
    let usual = ["--orders", "100", "--workers", "2", "--transport", "kafka:"];
    let store = store.map(|store| ["--store", store]);
    let report = balanced("Kafka", &[&usual[..], &killed, store.as_ref().map_or(&[][..], |store| &store[..])].concat());
    assert_ne!(number(&report, "broker killed"), 0, "{report}");
}

mod killed {
    use super::*;

    #[test]
    fn the_books_balance_while_rabbitmq_and_workers_are_killed() {
        outlives_kills("RabbitMQ", "amqp:", "100", None);
    }

    #[test]
    fn the_books_balance_while_nats_and_workers_are_killed() {
        outlives_kills("NATS", "nats:", "100", None);
    }

    #[test]
    fn the_books_balance_while_redis_and_workers_are_killed() {
        outlives_kills("Redis", "redis://", "100", None);
    }

    #[test]
    fn the_books_balance_while_sqs_and_workers_are_killed() {
        outlives_kills("SQS", "sqs:", "40", None);
    }

    #[test]
    fn the_books_balance_while_kafka_by_kfake_and_workers_are_killed() {
        outlives_kills_of_kafka(None);
    }

    /// And the database, all at once.
    #[test]
    fn the_books_balance_while_nats_and_postgres_and_workers_are_killed() {
        let killed = ["--kill-broker", "2s", "--kill-server", "3s", "--kill-every", "1s"];
        let places = ["--store", "postgres:", "--transport", "nats:"];
        let report = balanced("NATS", &[&["--orders", "100", "--workers", "2"], &places[..], &killed[..]].concat());
        assert!(number(&report, "broker killed") > 0 && number(&report, "server killed") > 0, "{report}");
    }
}

/// The same over another store than the usual file: one on a server, or an emulator's.
mod killed_beside {
    use super::*;

    #[test]
    fn the_books_balance_in_mysql_while_rabbitmq_and_workers_are_killed() {
        outlives_kills("RabbitMQ", "amqp:", "100", Some(&server("HAPAX_TEST_MYSQL")));
    }

    #[test]
    fn the_books_balance_in_dynamodb_while_nats_and_workers_are_killed() {
        outlives_kills("NATS", "nats:", "100", Some(&emulator("dynamodb", "HAPAX_TEST_DYNAMODB")));
    }

    #[test]
    fn the_books_balance_in_postgres_while_redis_and_workers_are_killed() {
        outlives_kills("Redis", "redis://", "100", Some(&server("HAPAX_TEST_POSTGRES")));
    }

    #[test]
    fn the_books_balance_in_postgres_while_sqs_and_workers_are_killed() {
        outlives_kills("SQS", "sqs:", "40", Some(&server("HAPAX_TEST_POSTGRES")));
    }

    #[test]
    fn the_books_balance_in_mysql_while_kafka_by_kfake_and_workers_are_killed() {
        outlives_kills_of_kafka(Some(&server("HAPAX_TEST_MYSQL")));
    }
}
