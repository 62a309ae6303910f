//! The tables of `docs/stores.md` and of the README say what the stores declare.
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

#[tokio::test]
async fn the_tables_of_pairs_say_what_the_stores_declare() {
    let [chapter, readme] = ["docs/stores.md", "README.md"].map(Written::read);
    let mut lines = table::parse(&chapter.tables);
    for (name, opened) in declared::all().await {
        match opened {
            Some(line) => {
                lines.insert(name, line);
            }
            None => println!("SKIPPED: {name} is not there; its line in docs/stores.md stays as it is"),
        }
    }
    let calls = counted::calls().await;
    chapter.is_or_becomes(&table::render(&lines, calls));
    readme.is_or_becomes(&table::render_short(&lines, calls));
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
