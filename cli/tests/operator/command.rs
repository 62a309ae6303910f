//! Debezium's settings, which need no server; and what the program prints and how it ends.

use std::process::{Command, Stdio};

use crate::rig::hapax;

#[test]
fn settings_go_to_the_output_and_the_password_nowhere() {
    let ran = hapax(&["outbox", "debezium", "postgres://shop:s3cret@db/orders"]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(ran.stderr.is_empty());
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(json["config"]["database.hostname"], "db");
    assert!(!String::from_utf8(ran.stdout).unwrap().contains("s3cret"));
    let sql = hapax(&["outbox", "debezium", "postgres://db/orders", "--expand-payload", "--sql"]);
    assert!(String::from_utf8(sql.stdout).unwrap().contains("ADD COLUMN IF NOT EXISTS body_text"));
}

#[test]
fn what_makes_no_sense_ends_with_2_one_line_and_no_password() {
    for args in [
        &["outbox", "debezium"][..],
        &["outbox", "debezium", "mysql://shop:s3cret@db/orders"],
        &["outbox", "debezium", "postgres://shop:s3cret/x@db/orders"],
        &["outbox", "debezium", "-postgres://shop:s3cret@db/orders", "--slot", ""],
        &["outbox", "debezium", "postgres://db/orders", "--password", "s3cret"],
        &["outbox", "debezium", "postgres://db/orders", "--topic", "a\nb"],
        &["outbox", "debezium", "postgres://db/orders", "--schema", "a\"; DROP TABLE x"],
        &["\u{1b}[31m"],
    ] {
        let ran = hapax(args);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {said}");
        assert!(ran.stdout.is_empty(), "{args:?}");
        assert_eq!(said.trim_end().lines().count(), 1, "{args:?}: {said}");
        assert!(
            said.starts_with("hapax: ") && !said.contains("s3cret") && !said.contains('\u{1b}'),
            "{args:?}: {said}"
        );
    }
}

#[cfg(unix)]
#[test]
fn what_is_not_utf8_is_refused_without_a_panic() {
    use std::os::unix::ffi::OsStrExt;
    let bad = std::ffi::OsStr::from_bytes(b"\xff");
    let ran = Command::new(env!("CARGO_BIN_EXE_hapax")).arg(bad).output().unwrap();
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hapax"))
        .arg("--help")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = child.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let help = hapax(&["--help"]);
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("outbox"));
}

#[test]
fn options_arrive_in_the_settings() {
    let ran = hapax(&[
        "outbox",
        "debezium",
        "postgres://u@h/d",
        "--schema",
        "s",
        "--table-prefix",
        "p_",
        "--route-by",
        "type",
        "--topic",
        "t.${routedByValue}",
        "--header",
        "type=kind",
        "--header",
        "tenant",
        "--expand-payload",
        "--connector-name",
        "n",
        "--slot",
        "sl",
        "--password",
        "${file:a:b}",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    for (name, value) in [
        ("database.password", "${file:a:b}"),
        ("slot.name", "sl"),
        ("table.include.list", "s\\.p_outbox"),
        ("transforms.outbox.route.by.field", "type"),
        ("transforms.outbox.route.topic.replacement", "t.${routedByValue}"),
        ("transforms.outbox.table.fields.additional.placement", "type:header:kind,tenant:header:tenant"),
        ("transforms.outbox.table.expand.json.payload", "true"),
    ] {
        assert_eq!(json["config"][name], value, "{name}");
    }
    assert_eq!(json["name"], "n");
    let none = hapax(&["outbox", "debezium", "postgres://u@h/d", "--no-headers"]);
    assert!(!String::from_utf8(none.stdout).unwrap().contains("additional.placement"));
    let both = hapax(&["outbox", "debezium", "postgres://u@h/d", "--no-headers", "--header", "type"]);
    assert_eq!(both.status.code(), Some(2));
    let twice = hapax(&["outbox", "debezium", "postgres://u@h/d", "--slot", "a", "--slot", "b"]);
    assert_eq!(twice.status.code(), Some(2));
}

#[test]
fn what_all_commands_take_stands_apart_from_what_one_takes() {
    let help = hapax(&["message", "--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    let (own, all) = help.split_once("Options of all commands:").unwrap();
    assert!(own.contains("--idempotency-key") && !own.contains("--table-prefix"), "{help}");
    assert!(all.contains("--table-prefix") && !all.contains("--idempotency-key"), "{help}");
}
