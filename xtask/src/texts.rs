//! What must not stand in a file of the tree: a claim nobody can keep, a host, a machine's path, unfinished work.
//!
//! Every forbidden text is put together from parts here, so that this file passes its own checks.

use std::path::Path;

use crate::process;

/// A file longer than this is two files.
const RS_LINES_MAX: usize = 400;

/// How many words before the phrase may hold the "never" that forbids it.
const NEVER_WITHIN_WORDS: usize = 4;

/// Hosts of package registries: a file that names one ties the tree to one way of getting packages.
const REGISTRIES: [&str; 4] =
    [concat!("crates", ".io"), concat!("pypi", ".org"), concat!("npmjs", "."), concat!("deb.debian", ".org")];

/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/"), concat!("/", "Users/")];

/// Marks of unfinished work, in Rust files.
const UNFINISHED: [&str; 4] =
    [concat!("#[", "ignore"), concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("FIX", "ME")];

/// Looks through every file of the tree that git does not ignore.
///
/// # Errors
/// One line for each place: file, line and what is wrong with it.
pub(crate) fn check() -> Result<String, String> {
    let listed = process::output(&mut process::git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let names: Vec<&str> = listed.split_terminator('\0').collect();
    let mut wrong = Vec::new();
    let mut texts = 0;
    for name in &names {
        // What is not UTF-8 is no text; what is listed but gone is a removal not committed yet.
        let Ok(text) = std::fs::read_to_string(process::root().join(name)) else { continue };
        texts += 1;
        wrong.extend(faults(Path::new(name), &text).into_iter().map(|fault| format!("{name}:{fault}")));
    }
    if wrong.is_empty() { Ok(format!("{texts} files")) } else { Err(wrong.join("\n")) }
}

/// The lock file is committed, the changelog has a place for what comes next.
///
/// # Errors
/// The file that is missing or lacks it.
pub(crate) fn companions() -> Result<String, String> {
    process::output(&mut process::git(["ls-files", "--error-unmatch", "Cargo.lock"]))
        .map_err(|_| "Cargo.lock is not tracked: git add Cargo.lock".to_owned())?;
    let changelog = std::fs::read_to_string(process::root().join("CHANGELOG.md"))
        .map_err(|error| format!("CHANGELOG.md cannot be read: {error}"))?;
    let has_place = changelog.lines().any(|line| ["## Unreleased", "## [Unreleased]"].contains(&line.trim_end()));
    if has_place {
        Ok(String::new())
    } else {
        Err("CHANGELOG.md has no section `## Unreleased`: add it at the top".to_owned())
    }
}

/// Line number and reproach for everything wrong with one file.
fn faults(name: &Path, text: &str) -> Vec<String> {
    let mut faults: Vec<String> = claims(text)
        .into_iter()
        .map(|line| {
            format!("{line}: nobody delivers once: say that effects happen once, or forbid the phrase by \"never\"")
        })
        .collect();
    let is_lock = name.file_name().is_some_and(|name| name == "Cargo.lock");
    let is_rust = name.extension().is_some_and(|extension| extension == "rs");
    for (number, line) in (1..).zip(text.lines()) {
        let registry = REGISTRIES.iter().find(|host| line.contains(*host));
        if let Some(host) = registry.filter(|_| !is_lock) {
            faults.push(format!("{number}: names the registry host `{host}`: say \"the package registry\""));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| stands_alone(line, path)) {
            faults.push(format!("{number}: a path of one machine, `{path}`: name it from the root of the tree"));
        }
        if let Some(mark) = UNFINISHED.iter().find(|mark| is_rust && line.contains(*mark)) {
            faults.push(format!("{number}: unfinished, `{mark}`: finish it or file an issue"));
        }
    }
    let lines = text.lines().count();
    if is_rust && lines > RS_LINES_MAX {
        faults
            .push(format!("{lines}: more than {RS_LINES_MAX} lines: split it where a reader would look for the parts"));
    }
    faults
}

/// Whether the path begins here, and is not the middle of a longer one.
fn stands_alone(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "._-/}*".contains(c)))
    })
}

/// Lines that claim what no broker and no framework can promise, also across a line break and with emphasis.
/// A "never" shortly before makes it a rule instead of a claim.
fn claims(text: &str) -> Vec<usize> {
    let marks = ['*', '_', '`', '"', '\'', '“', '”', '(', '['];
    let is_sign = |word: &&str| !word.chars().any(char::is_alphanumeric);
    let lines = (1..).zip(text.lines());
    let words: Vec<(usize, String)> = lines
        .flat_map(|(number, line)| line.split_whitespace().map(move |word| (number, word)))
        .filter(|(_, word)| !is_sign(word))
        .map(|(number, word)| (number, word.trim_matches(marks).to_lowercase().replace(['\u{2010}', '\u{2011}'], "-")))
        .collect();
    let word = |at: usize| words.get(at).map_or("", |(_, word)| word.as_str());
    let mut found = Vec::new();
    for (at, (number, first)) in words.iter().enumerate() {
        let object = match (first.as_str(), word(at + 1)) {
            ("exactly", "once") => word(at + 2),
            (joined, next) if joined == ["exactly", "once"].join("-") => next,
            _ => continue,
        };
        let is_forbidden = words[at.saturating_sub(NEVER_WITHIN_WORDS)..at].iter().any(|(_, word)| word == "never");
        if object.starts_with("deliver") && !is_forbidden {
            found.push(*number);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phrase, which may not stand here in one piece.
    fn phrase(join: &str) -> String {
        format!("exactly{join}once delivery")
    }

    #[test]
    fn the_claim_is_found_however_it_is_written() {
        let broken = phrase("-").replace(' ', "\n/// ");
        let emphasised = phrase("-").replace("once", "once**");
        for text in [phrase("-"), phrase(" "), phrase("-").to_uppercase(), broken, emphasised, phrase("\u{2011}")] {
            assert_eq!(claims(&format!("//! hapax:\n/// **{text}, at last")), [2], "{text}");
        }
    }

    #[test]
    fn what_forbids_the_claim_may_name_it() {
        assert!(claims(&format!("Never write \"{}\".", phrase("-"))).is_empty());
        assert!(claims(&format!("It never promises you {} of anything", phrase(" "))).is_empty());
        assert_eq!(claims(&format!("Never mind the brokers, this one gives you {}", phrase("-"))), [1]);
    }

    #[test]
    fn what_we_do_promise_may_be_said() {
        let effects =
            format!("effects happen exactly{}once; deliveries repeat. Handled exactly once, delivered often.", "-");
        assert!(claims(&effects).is_empty());
    }

    #[test]
    fn hosts_and_paths_of_one_machine_are_named_with_their_line() {
        let host = faults(Path::new("a.md"), &format!("one\nsee https://{}/x", REGISTRIES[0]));
        assert!(host.len() == 1 && host[0].starts_with("2: names the registry host"), "{host:?}");
        assert!(faults(Path::new("peers/Cargo.lock"), REGISTRIES[0]).is_empty());
        assert_eq!(faults(Path::new("a.md"), &format!("in `{}main`", MACHINE_PATHS[0])).len(), 1);
        assert!(faults(Path::new("a.md"), &format!("docs{0}a and /srv{0}b", MACHINE_PATHS[0])).is_empty());
    }

    #[test]
    fn unfinished_marks_count_in_rust_files_only() {
        for mark in UNFINISHED {
            assert_eq!(faults(Path::new("a.rs"), &format!("fn a() {{ {mark}) }}")).len(), 1, "{mark}");
            assert!(faults(Path::new("a.md"), mark).is_empty(), "{mark}");
        }
    }

    #[test]
    fn a_file_may_have_so_many_lines_and_no_more() {
        let full = "//\n".repeat(RS_LINES_MAX);
        assert!(faults(Path::new("a.rs"), &full).is_empty());
        assert_eq!(faults(Path::new("a.rs"), &format!("{full}//\n")).len(), 1);
    }
}
