//! The tables of `docs/stores.md` and of the README say what the stores declare, and what a message and its copies do in each pair.
//!
//! `HAPAX_WRITE=1` writes them. A store that is not there keeps its line, aloud.

#![allow(clippy::unwrap_used)]

#[path = "pairs/counted.rs"]
mod counted;
#[path = "pairs/declared.rs"]
mod declared;
#[path = "pairs/table.rs"]
mod table;

use hapax_tests::written::Written;

/// Writes the tables.
const HOW: &str = "--features object --test pairs";
/// For three messages in one pair.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test]
async fn the_tables_of_pairs_say_what_the_stores_declare_and_what_a_message_does_in_each() {
    let [chapter, readme] = ["docs/stores.md", "README.md"].map(|file| Written::read(file, "pairs"));
    let mut lines = table::parse(&chapter.tables);
    let mut pairs = table::parse_pairs(&chapter.tables);
    let mut there = Vec::new();
    for (name, opened) in declared::all().await {
        let Some(opened) = opened else {
            println!("SKIPPED: {name} is not there; its lines in docs/stores.md stay as they are");
            continue;
        };
        lines.insert(name.clone(), opened.line.clone());
        there.push((name, opened));
    }
    for (entities, one) in &there {
        for (dedup, other) in &there {
            let pair = if entities == dedup { one.alone() } else { one.with(other) };
            if let Some(pair) = pair {
                let seen = tokio::time::timeout(PATIENCE, pair.seen(&format!("{entities}-{dedup}"))).await;
                let seen =
                    seen.unwrap_or_else(|_| panic!("entities in {entities}, dedup entries in {dedup}: not over"));
                assert_eq!(seen.effects, 1, "entities in {entities}, dedup entries in {dedup}");
                pairs.insert((entities.clone(), dedup.clone()), seen);
            }
        }
    }
    chapter.is_or_becomes(&table::render(&lines, &pairs), HOW);
    readme.is_or_becomes(&table::render_short(&lines, &pairs), HOW);
}
