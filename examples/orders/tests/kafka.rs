//! The job over Kafka's protocol: messages there, and everything else in a file.
#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used)]

mod program;

mod kafka {
    use super::program::{number, orders, words};

    /// Where the tests' server is: set by `cargo xtask test`, which finds or starts one.
    const SERVER: &str = "HAPAX_TEST_KAFKA";

    fn server() -> String {
        std::env::var(SERVER).unwrap_or_else(|_| panic!("no Kafka to test with: run `cargo xtask test`"))
    }

    /// What a worker had that is killed waits for the end of its session.
    #[test]
    fn the_books_balance_over_a_broker_while_workers_are_killed_and_stopped() {
        let killed = ["--kill-every", "2s", "--stall-every", "5s"];
        let output = orders(&[&["--orders", "60", "--workers", "2", "--transport", &server()], &killed[..]].concat());
        let report = words(&output);
        assert_eq!(output.status.code(), Some(0), "{report}");
        assert!(report.contains("messages over Kafka") && report.contains("charged exactly once"), "{report}");
        assert!(number(&report, "  killed") > 0 && !report.contains("still there"), "{report}");
        assert!(number(&report, "  stopped") > 0, "{report}");
    }

    #[test]
    fn a_broker_that_cannot_be_reached_is_named_with_what_to_write() {
        let output = orders(&["--orders", "3", "--transport", "kafka://127.0.0.1:1"]);
        let report = words(&output);
        assert_eq!(output.status.code(), Some(2), "{report}");
        assert!(report.contains("write kafka://HOST:PORT") && report.contains("127.0.0.1:1"), "{report}");
    }
}
