//! The job over a Redis server: messages there, and everything else in a file.
#![allow(clippy::unwrap_used)]

mod program;

mod redis {
    use super::program::{number, orders, words};

    /// Where the tests' server is: set by `cargo xtask test`, which finds or starts one.
    const SERVER: &str = "HAPAX_TEST_REDIS";

    fn server() -> String {
        std::env::var(SERVER).unwrap_or_else(|_| panic!("no Redis to test with: run `cargo xtask test`"))
    }

    #[test]
    fn the_books_balance_over_a_broker_while_workers_are_killed_and_stopped() {
        let killed = ["--kill-every", "300ms", "--stall-every", "1s"];
        let output = orders(&[&["--orders", "300", "--workers", "3", "--transport", &server()], &killed[..]].concat());
        let report = words(&output);
        assert_eq!(output.status.code(), Some(0), "{report}");
        assert!(report.contains("messages over Redis") && report.contains("charged exactly once"), "{report}");
        assert!(number(&report, "  killed") > 0 && !report.contains("still there"), "{report}");
        assert!(number(&report, "  stopped") > 0, "{report}");
        let row = report.lines().find_map(|line| line.strip_prefix("dead letters")).unwrap();
        assert_eq!(row.split_whitespace().next(), Some("9"), "{report}");
    }

    #[test]
    fn a_broker_that_cannot_be_reached_is_named_with_what_to_write() {
        let output = orders(&["--orders", "3", "--transport", "redis://127.0.0.1:1"]);
        let report = words(&output);
        assert_eq!(output.status.code(), Some(2), "{report}");
        assert!(
            report.contains("write redis://USER:PASSWORD@HOST:PORT/DATABASE") && report.contains("127.0.0.1:1"),
            "{report}"
        );
    }
}
