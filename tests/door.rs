//! What a stranger reads first is true to the letter.

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
    let chapter = include_str!("../docs/complaints.md");
    let names: Vec<&str> = chapter.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() > 2).collect();
    assert!(names.len() > 40, "{names:?}");
    let mut sources = String::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in ["core", "stores", "transports", "tests", "examples", "otel"] {
        read(&root.join(folder), &mut sources);
    }
    let missing: Vec<&str> = names.into_iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "there is no test of these names: {missing:?}");
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
