//! The dashboard, and the alert rules beside it, ask for nothing that is not recorded, and show all that is.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use hapax_otel::{INSTRUMENTS, Kind};
use serde_json::Value;

const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/dashboards/hapax.json");
const RULES: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/alerts/outbox.yml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/alerts/endpoint.yml"),
];
const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/telemetry.md");

/// The names that Prometheus knows an instrument by.
fn names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for instrument in INSTRUMENTS {
        let name = instrument.prometheus();
        match instrument.kind {
            Kind::Histogram => names.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}"))),
            _ => drop(names.insert(name)),
        }
    }
    names
}

/// The attributes that metrics have, as labels.
const LABELS: [&str; 11] = [
    "error_type",
    "hapax_cause",
    "hapax_endpoint",
    "hapax_invariant",
    "hapax_message_type",
    "hapax_outcome",
    "hapax_rule",
    "hapax_saga",
    "messaging_destination_name",
    "messaging_operation_name",
    "messaging_system",
];

/// Words of an expression that could be names of ours.
fn asked(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| (word.starts_with("hapax_") || word.starts_with("messaging_")) && !LABELS.contains(word))
        .collect()
}

/// All expressions and queries in a piece of the dashboard.
fn expressions(of: &Value, found: &mut Vec<String>) {
    match of {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if ["expr", "definition", "query"].contains(&name.as_str()) => {
                        found.push(text.clone())
                    }
                    value => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

fn dashboard() -> Vec<String> {
    let json: Value = serde_json::from_str(&std::fs::read_to_string(DASHBOARD).unwrap()).unwrap();
    let mut found = Vec::new();
    expressions(&json, &mut found);
    assert!(found.len() > 30, "{found:?}");
    found
}

#[test]
fn the_dashboard_asks_only_for_what_is_recorded() {
    let names = names();
    for expression in dashboard() {
        for name in asked(&expression) {
            assert!(names.contains(name), "`{name}` is not recorded; asked for in {expression}");
        }
    }
}

#[test]
fn the_dashboard_shows_every_instrument() {
    let all = dashboard().join("\n");
    let asked = asked(&all);
    for instrument in INSTRUMENTS {
        let name = instrument.prometheus();
        let is_shown = asked.iter().any(|asked| {
            asked.strip_prefix(name.as_str()).is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
        });
        assert!(is_shown, "{name} is in no panel");
    }
}

#[test]
fn alert_rules_ask_only_for_what_is_recorded() {
    let names = names();
    for file in RULES {
        let rules = std::fs::read_to_string(file).unwrap();
        let expressions: Vec<_> = rules.lines().filter(|line| line.trim_start().starts_with("expr:")).collect();
        assert!(!expressions.is_empty(), "{file}");
        for name in expressions.iter().flat_map(|line| asked(line)) {
            assert!(names.contains(name), "`{name}` is not recorded; asked for in {file}");
        }
    }
}

#[test]
fn the_chapter_names_every_instrument() {
    let chapter = std::fs::read_to_string(CHAPTER).unwrap();
    for instrument in INSTRUMENTS {
        assert!(chapter.contains(&format!("`{}`", instrument.name)), "{} is not in docs/telemetry.md", instrument.name);
    }
}
