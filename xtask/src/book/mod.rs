//! `cargo xtask book`: the pages below `docs` as a book that is read offline.
//!
//! What a reader would stumble over is looked at without mdBook too, by `cargo xtask ci`: links that lead nowhere, in every page of the tree; pages
//! that the book does not list; Rust that nobody compiles; examples that the index lacks; drawings that are not of the stories any more.

mod around;
mod draw;
mod links;

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::process;
use crate::report::{Report, Verdict};

/// What builds the book: without what serves it, and without what asks a network.
const INSTALL: &str = "cargo install mdbook --locked --no-default-features --features search";
/// Where the book goes, below the root. Beside it lies what its pages link to in the tree.
const PLACE: &str = "target/book/docs";
/// The list of its pages, in their order.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Where chapters are given to the doctests.
const DOCTESTS: [&str; 2] = ["src/lib.rs", "tests/src/lib.rs"];
/// The list of the examples.
const EXAMPLES: &str = "examples/README.md";

/// Looks, builds, and says where the book is. With `draw`, the stories are drawn anew first.
pub(crate) fn run(draw: bool) -> ExitCode {
    let mut report = Report::default();
    if draw {
        report.step("drawings", draw::write);
    }
    report.step("pages", check);
    report.step("book", || match is_installed() {
        true => build(),
        false => Err(format!("mdBook is not installed: `{INSTALL}`")),
    });
    println!("\n{report}");
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The book as one step of others, left out aloud where it cannot be built.
pub(crate) fn step() -> Verdict {
    match is_installed() {
        true => build().into(),
        false => Verdict::Skipped(format!("mdBook is not installed: `{INSTALL}`")),
    }
}

/// What can be seen without building it.
///
/// # Errors
/// One line for each fault.
pub(crate) fn check() -> Result<String, String> {
    let listed = process::output(&mut process::git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let names: Vec<&str> = listed.split_terminator('\0').filter(|name| process::root().join(name).is_file()).collect();
    let pages: Vec<&str> = names.iter().copied().filter(|name| name.ends_with(".md")).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in &pages {
        let text = read(page)?;
        let found = links::of(&text);
        count += found.len();
        wrong.extend(found.iter().filter_map(|link| links::fault(page, link)));
        wrong.extend(uncompiled(page, &text)?);
    }
    let of_the_book: Vec<&str> = pages.iter().copied().filter(|page| page.starts_with("docs/")).collect();
    wrong.extend(unlisted(&of_the_book, &read(SUMMARY)?));
    wrong.extend(without_a_line(&names, &read(EXAMPLES)?));
    wrong.extend(draw::stale()?);
    if wrong.is_empty() {
        Ok(format!("{} pages, {} of them in the book, {count} links", pages.len(), of_the_book.len() - 1))
    } else {
        Err(wrong.join("\n"))
    }
}

fn read(name: &str) -> Result<String, String> {
    std::fs::read_to_string(process::root().join(name)).map_err(|error| format!("{name}: {error}"))
}

/// Pages below `docs` that the summary does not list.
fn unlisted(pages: &[&str], summary: &str) -> Vec<String> {
    let listed: Vec<String> = links::of(summary).iter().filter_map(|link| links::file(SUMMARY, &link.to)).collect();
    let of_the_book = pages.iter().filter(|page| **page != SUMMARY);
    of_the_book
        .filter_map(|page| match listed.iter().filter(|name| name == page).count() {
            1 => None,
            0 => Some(format!("{page}: not in {SUMMARY}, so nobody finds it")),
            _ => Some(format!("{page}: more than once in {SUMMARY}")),
        })
        .collect()
}

/// Rust of a chapter is compiled as doctests, and so the chapter has to be given to them.
fn uncompiled(page: &str, text: &str) -> Result<Option<String>, String> {
    let has_rust = text.lines().any(|line| {
        let says = line.strip_prefix("```rust");
        says.is_some_and(|says| !says.contains("ignore"))
    });
    if !has_rust || !page.starts_with("docs/") {
        return Ok(None);
    }
    for doctests in DOCTESTS {
        if read(doctests)?.contains(&format!("{page}\")")) {
            return Ok(None);
        }
    }
    Ok(Some(format!("{page}: its Rust is not compiled: give it to the doctests in {}", DOCTESTS[1])))
}

/// Folders of examples that the index does not name.
fn without_a_line(names: &[&str], index: &str) -> Vec<String> {
    let below = names.iter().filter_map(|name| name.strip_prefix("examples/")?.split_once('/'));
    let folders: std::collections::BTreeSet<&str> = below.map(|(folder, _)| folder).collect();
    let missing = folders.iter().filter(|folder| !index.contains(&format!("]({folder}/")));
    missing.map(|folder| format!("examples/{folder}: not in {EXAMPLES}: one line, with its command")).collect()
}

fn is_installed() -> bool {
    Command::new("mdbook").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// # Errors
/// What mdBook says, or a page that would ask a network.
fn build() -> Result<String, String> {
    let place = process::root().join(PLACE);
    let folder = place.parent().unwrap_or_else(|| Path::new("."));
    let _ = std::fs::remove_dir_all(folder); // It may not be there; anything worse shows in the next line.
    let mut mdbook = Command::new("mdbook");
    mdbook.args(["build", "docs", "--dest-dir"]).arg(&place).current_dir(process::root());
    process::run(&mut mdbook)?;
    // mdBook calls the first page `index.html`, and leaves links to it as they were written.
    let first = std::fs::copy(place.join("index.html"), place.join("README.html"));
    first.map_err(|error| format!("{PLACE}/index.html: {error}"))?;
    let beside = around::bring(folder)?;
    let pages = around::is_whole(&place)?;
    Ok(format!("{PLACE}/index.html: {pages} pages, and {beside} files of the tree beside them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_listed_is_told() {
        let summary = "# Summary\n\n- [One](one.md)\n- [Two](tasks/two.md)\n- [Two](tasks/two.md)\n";
        let told = unlisted(&[SUMMARY, "docs/one.md", "docs/tasks/two.md", "docs/three.md"], summary);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("docs/tasks/two.md: more than once") && told[1].starts_with("docs/three.md: not in")
        );
    }

    #[test]
    fn an_example_without_a_line_is_told() {
        let names = ["examples/README.md", "examples/hello/main.rs", "examples/new/main.rs", "examples/new/lib.rs"];
        let told = without_a_line(&names, "| [`hello`](hello/main.rs) | a saga |");
        assert_eq!(told, ["examples/new: not in examples/README.md: one line, with its command"]);
    }
}
