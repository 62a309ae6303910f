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

use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- pairs:begin -->\n";
const END: &str = "<!-- pairs:end -->";
/// For three messages in one pair.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test]
async fn the_tables_of_pairs_say_what_the_stores_declare_and_what_a_message_does_in_each() {
    let [chapter, readme] = ["docs/stores.md", "README.md"].map(Written::read);
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
    chapter.is_or_becomes(&table::render(&lines, &pairs));
    readme.is_or_becomes(&table::render_short(&lines, &pairs));
}

/// What stands between the marks of a file.
struct Written {
    path: PathBuf,
    text: String,
    tables: String,
}

impl Written {
    fn read(file: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, rest) = text.split_once(BEGIN).unwrap();
        let tables = rest.split_once(END).unwrap().0.to_owned();
        Self { path, text, tables }
    }

    fn is_or_becomes(&self, tables: &str) {
        let Self { path, text, tables: written } = self;
        if std::env::var_os("HAPAX_WRITE").is_some() {
            std::fs::write(path, text.replacen(&format!("{BEGIN}{written}"), &format!("{BEGIN}{tables}"), 1)).unwrap();
            return;
        }
        let how = "`HAPAX_WRITE=1 cargo nextest run -p hapax-tests --features object --test pairs`";
        assert_eq!(written, tables, "{} is behind the stores: run {how}", path.display());
    }
}
