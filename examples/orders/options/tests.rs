//! What is refused, in which words, and what is done to servers and workers unless told otherwise.
#![allow(clippy::unwrap_used)]

use super::*;

fn refused(arguments: &[&str]) -> String {
    let error = Options::try_parse_from([&["orders"], arguments].concat()).unwrap_err();
    explain(&error)
}

#[test]
fn a_wrong_option_is_explained_in_one_line() {
    for (arguments, expected) in [
        (&["--duplicates", "1.5"][..], "a share is a number from 0 to 1"),
        (&["--duplicates", "-0.1"], "a share is a number from 0 to 1"),
        (&["--crashes", "nan"], "a share is a number from 0 to 1"),
        (&["--crashes", "often"], "not a number"),
        (&["--orders", "0"], "0 is not in 1..=100000"),
        (&["--orders", "-3"], "-3 is not in"),
        (&["--seed", "x"], "invalid digit"),
        (&["--sede", "1"], "unexpected argument '--sede'"),
        (&["--store"], "a value is required"),
        (&["orders.jsonl"], "unexpected argument"),
        (&["--break", "everything"], "no such rule to break; choose one of check-before-load, blind-save, ack-"),
        (&["--mend"], "not provided: --break <NAME>"),
        (&["--workers", "0"], "0 is not in 1..=64"),
        (&["--workers", "2", "--kill-every", "often"], "not a time; give one such as 100ms or 2s"),
        (&["--workers", "2", "--kill-every", "0s"], "a time of nothing"),
        (&["--kill-server", "2"], "not a time"),
        (&["--kill-broker", "2"], "not a time"),
        (&["--workers", "2", "--break", "blind-save"], "cannot be used with"),
    ] {
        let said = refused(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said:?} does not say {expected:?}");
        assert!(!said.contains('\n') && said.ends_with("see --help"), "{said:?}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_with_what_would() {
    for (arguments, expected) in [
        (&["--kill-every", "1s"][..], "give --workers N too"),
        (&["--store", "shop.db", "--stall-every", "1s"], "give --workers N too"),
        (&["--workers", "2", "--kill-server", "1s"], "give --store postgres: too"),
        (
            &["--store", "postgres://shop@db/shop", "--kill-server", "1s"],
            "kills a server of the run's own and no other",
        ),
        (&["--store", "postgres:db.example"], "write SCHEME://USER:PASSWORD@HOST:PORT/DATABASE"),
        (&["--store", "mysql:root@db/shop"], "write SCHEME://USER:PASSWORD@HOST:PORT/DATABASE"),
        (&["--transport", "stomp://broker"], "write amqp://USER:PASSWORD@HOST:PORT/VHOST, nats://"),
        (&["--transport", "nats:localhost"], "write amqp://USER:PASSWORD@HOST:PORT/VHOST, nats://"),
        (&["--transport", "kafka+tls:"], "write amqp:, nats: or redis:"),
        (&["--transport", "rediss://"], "write amqp:, nats: or redis:"),
        (&["--transport", "nats://localhost", "--kill-broker", "1s"], "give --transport amqp: too"),
        (&["--transport", "redis:", "--kill-server", "1s"], "give --store postgres: too"),
        (&["--store", "postgres:", "--break", "blind-save"], "leave out --store, or name a file with it"),
    ] {
        let options = Options::try_parse_from([&["orders"], arguments].concat()).unwrap();
        let said = options.check().unwrap_err().to_string();
        assert!(said.contains(expected), "{arguments:?}: {said:?} does not say {expected:?}");
    }
}

#[test]
fn a_server_of_the_runs_own_is_killed_unless_it_is_told_when() {
    let options = |arguments: &[&str]| Options::try_parse_from([&["orders"], arguments].concat()).unwrap();
    assert_eq!(options(&["--store", "postgres:"]).kill_server(), Some(KILL_SERVER));
    let asked = options(&["--store", "postgres:", "--kill-server", "9s"]);
    assert_eq!((asked.kill_server(), asked.kill_every()), (Some(Duration::from_secs(9)), Some(KILL_EVERY)));
    let theirs = options(&["--store", "postgres://shop@db/shop"]);
    assert_eq!((theirs.kill_server(), theirs.kill_every()), (None, None));
    assert!(theirs.check().is_ok());
    let broker = options(&["--transport", "nats:"]);
    assert_eq!((broker.kill_broker(), broker.kill_server()), (Some(KILL_SERVER), None));
    assert_eq!((broker.kill_every(), broker.stall_every()), (Some(KILL_EVERY), Some(STALL_EVERY)));
    let kafka = options(&["--transport", "kafka:"]);
    assert!(kafka.check().is_ok() && kafka.kill_every() == Some(KILL_EVERY * OVER_KAFKA));
    assert!(
        broker.check().is_ok() && options(&["--transport", "kafka://host", "--store", "cosmos://a:1"]).check().is_ok()
    );
    assert_eq!(options(&["--transport", "nats://localhost"]).kill_broker(), None);
}
