//! Rust that a page shows and the doctests leave out stands to the letter in a file that is compiled.

use std::{
    fs::read_to_string,
    path::{Path, PathBuf},
};

/// Whose text a page may show.
const COMPILED: [&str; 2] = ["examples/template", "tests/book"];

#[test]
fn what_the_pages_show_and_the_doctests_leave_out_is_compiled_elsewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut compiled = Vec::new();
    for folder in COMPILED {
        texts(&root.join(folder), "rs", &mut compiled);
    }
    let mut pages = Vec::new();
    texts(&root.join("docs/tasks"), "md", &mut pages);
    let (mut shown, mut strange) = (0, Vec::new());
    for (page, text) in &pages {
        for block in text.split("```rust,ignore\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
            shown += 1;
            if !compiled.iter().any(|(_, text)| text.contains(block)) {
                strange.push(format!("{}:\n{block}\n", page.display()));
            }
        }
    }
    assert!(shown > 3, "{shown} blocks in {} pages", pages.len());
    assert!(strange.is_empty(), "no compiled file has this to the letter:\n{}", strange.join("\n"));
}

fn texts(folder: &Path, extension: &str, texts_in: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, extension, texts_in);
        } else if path.extension().is_some_and(|is| is == extension) {
            texts_in.push((path.clone(), read_to_string(path).unwrap()));
        }
    }
}
