//! What a stranger reads first is true to the letter.

/// Goal: the README's code is the example that runs. Method: compare the texts.
#[test]
fn the_readme_shows_hello_to_the_letter() {
    let readme = include_str!("../README.md");
    let hello = include_str!("../examples/hello/main.rs");
    assert!(readme.contains(hello), "README.md and examples/hello/main.rs differ: copy the example into the README");
}
