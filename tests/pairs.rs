//! The tables of `docs/stores.md` say what the stores declare.
//!
//! `HAPAX_WRITE=1` writes them. A store that is not there keeps its line, aloud.

#![allow(clippy::unwrap_used)]

#[path = "pairs/counted.rs"]
mod counted;
#[path = "pairs/declared.rs"]
mod declared;
#[path = "pairs/table.rs"]
mod table;

use std::path::Path;

const BEGIN: &str = "<!-- pairs:begin -->\n";
const END: &str = "<!-- pairs:end -->";

#[tokio::test]
async fn the_tables_of_pairs_say_what_the_stores_declare() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/stores.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    let mut lines = table::parse(written);
    for (name, opened) in declared::all().await {
        match opened {
            Some(line) => {
                lines.insert(name, line);
            }
            None => println!("SKIPPED: {name} is not there; its line in docs/stores.md stays as it is"),
        }
    }
    let calls = counted::calls().await;
    let rendered = table::render(&lines, calls);
    if std::env::var_os("HAPAX_WRITE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{rendered}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        written, rendered,
        "docs/stores.md is behind the stores: run `HAPAX_WRITE=1 cargo nextest run -p hapax-tests --features object --test pairs`"
    );
}
