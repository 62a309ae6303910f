//! What a stranger reads first is true to the letter.

#[path = "door/shape.rs"]
mod shape;

/// Goal: the README's code is the example that runs. Method: compare the texts.
#[test]
fn the_readme_shows_hello_to_the_letter() {
    let readme = include_str!("../README.md");
    let hello = include_str!("../examples/hello/main.rs");
    assert!(readme.contains(hello), "README.md and examples/hello/main.rs differ: copy the example into the README");
}

/// Goal: a chapter that points at tests points at tests. Method: their names are looked for in the sources.
#[test]
fn every_test_that_the_chapter_on_complaints_names_is_there() {
    let names = named_tests(include_str!("../docs/complaints.md"));
    assert!(names.len() > 40, "{names:?}");
    let missing = missing(names);
    assert!(missing.is_empty(), "there is no test of these names: {missing:?}");
}

/// Goal: no format is said to be held still that no test holds. Method: the same; the files that are named are links, which are looked at
/// by `cargo xtask ci`.
#[test]
fn every_test_that_the_table_of_formats_names_is_there() {
    let table = include_str!("README.md").split_once("### What is read for ever\n");
    let table = table.and_then(|(_, table)| table.split_once("\n## "));
    let (table, _) = table.expect("the table is there, and a chapter behind it");
    let names = named_tests(table);
    assert!(names.len() > 20, "{names:?}");
    let missing = missing(names);
    assert!(missing.is_empty(), "there is no test of these names: {missing:?}");
}

/// What stands between backticks and is a sentence.
fn named_tests(page: &'static str) -> Vec<&'static str> {
    page.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() > 2).collect()
}

fn missing(names: Vec<&str>) -> Vec<&str> {
    let mut sources = String::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in ["core", "stores", "transports", "tests", "examples", "otel"] {
        read(&root.join(folder), &mut sources);
    }
    names.into_iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect()
}

/// Goal: no page remembers a count that the explorer does not have any more. Method: the count before "worlds" and the like has to stand on the
/// page that `cargo xtask verify` writes, where that has such counts, and all of it: not somewhere within another number.
#[test]
fn counts_of_worlds_are_those_that_were_printed() {
    let printed = include_str!("../VERIFICATION.md");
    let is_printed = |count: &str, of: &str| match of {
        "worlds" => printed.lines().any(|row| cell(row, 3) == count),
        "configurations" => printed.lines().any(|row| cell(row, 1) == format!("{count} configurations")),
        "claims" => count == printed.lines().filter(|row| row.starts_with("| `")).count().to_string(),
        _ => printed.lines().any(|line| line == format!("## Mutants: {count} of {count} killed")),
    };
    let pages = [include_str!("../README.md"), include_str!("../docs/tasks/why-it-is-right.md")];
    let mut counts = 0;
    for page in pages {
        let words: Vec<&str> = page.split_whitespace().collect();
        for pair in words.windows(2) {
            let (count, of) = (pair[0], pair[1].trim_end_matches(['.', ',', ':']));
            let is_count = count.starts_with(|c: char| c.is_ascii_digit());
            if is_count && ["worlds", "configurations", "claims", "mistakes"].contains(&of) {
                counts += 1;
                assert!(
                    is_printed(count, of),
                    "VERIFICATION.md has no {count} {of}: what the page says is of another day"
                );
            }
        }
    }
    assert!(counts > 4, "{counts} were found");
}

/// That one of a row of a table, free of emphasis.
fn cell(row: &str, at: usize) -> &str {
    row.split('|').nth(at).unwrap_or_default().trim().trim_matches('*')
}

/// Goal: a promise of a port is no promise without a check. Method: for `3. *Idempotent:* ..` a function `idempotent` is looked for
/// where the checks are: in the suites, beside the outbox's own tests, and beside the back-off, which has one implementation.
#[test]
fn every_promise_of_a_port_has_a_check_of_its_name() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut ports, mut checks) = (String::new(), String::new());
    read(&root.join("core/src/ports"), &mut ports);
    for folder in ["core/src/testing", "core/src/endpoint", "tests/outbox"] {
        read(&root.join(folder), &mut checks);
    }
    let promise = |line: &str| {
        let (number, promise) = line.trim_start().strip_prefix("/// ")?.split_once(". *")?;
        let (name, _) = promise.split_once(":*")?;
        number.bytes().all(|b| b.is_ascii_digit()).then(|| name.to_lowercase().replace([' ', '-'], "_"))
    };
    let promises: Vec<String> = ports.lines().filter_map(promise).collect();
    assert!(promises.len() > 70, "{promises:?}");
    let missing: Vec<&String> = promises.iter().filter(|name| !checks.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no check has these names: {missing:?}");
}

fn read(folder: &std::path::Path, sources: &mut String) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            read(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *sources += &std::fs::read_to_string(&path).unwrap_or_default();
        }
    }
}
