//! The alert rules say what their chapter says: by Prometheus' own checker.
#![allow(clippy::unwrap_used)]

use std::process::Command;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/alerts/outbox.yml");
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/alerts/outbox_test.yml");
/// Their names are checked beside what records them, in `otel/tests/dashboard.rs`.
const OF_ENDPOINTS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/alerts/endpoint.yml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/alerts/endpoint_test.yml"),
];

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/relay.md");

fn promtool(arguments: &[&str]) -> Option<(bool, String)> {
    let output = Command::new("promtool").args(arguments).output().ok()?;
    Some((output.status.success(), format!("{output:?}")))
}

fn fire_where_they_should(rules: &str, tests: &str) {
    let Some(checked) = promtool(&["check", "rules", rules]) else {
        return eprintln!("SKIPPED: there is no promtool to check alert rules with: `apt-get install prometheus`");
    };
    for (is_well, said) in [checked, promtool(&["test", "rules", tests]).unwrap()] {
        assert!(is_well, "{said}");
    }
}

#[test]
fn the_rules_of_an_outbox_fire_where_they_should() {
    fire_where_they_should(RULES, TESTS);
}

#[test]
fn the_rules_of_an_endpoint_fire_where_they_should() {
    let [rules, tests] = OF_ENDPOINTS;
    fire_where_they_should(rules, tests);
}

#[test]
fn the_rules_name_what_an_outbox_tells() {
    let rules = std::fs::read_to_string(RULES).unwrap();
    // The fields of `OutboxState`.
    for field in ["oldest_seconds", "lag_seconds", "failed", "stored", "log_gaps", "log_lag_bytes"] {
        assert!(rules.contains(&format!("expr: hapax_outbox_{field} >")), "{field}");
    }
    // A gauge keeps its value: that nothing is told any more is seen by the age of what was told last.
    let observed = "hapax_outbox_observed_timestamp_seconds";
    assert!(rules.contains(&format!("expr: time() - max by (table) ({observed}) > 300")));
    assert!(rules.contains(&format!("expr: absent({observed})")));
    let chapter = std::fs::read_to_string(CHAPTER).unwrap();
    assert!(chapter.contains(observed), "the chapter's `observe` sets it");
}
