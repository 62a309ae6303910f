//! What long runs have shown, kept in `docs/campaign`, so that a page can be written without them.

use std::process::Command;

use serde_json::Value;

use crate::process;

pub(crate) const FOLDER: &str = "docs/campaign";

/// What is kept in the file of this name; nothing where there is none.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(name: &str) -> Result<Vec<Value>, String> {
    let file = process::root().join(FOLDER).join(format!("{name}.json"));
    if !file.exists() {
        return Ok(Vec::new());
    }
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

/// Puts `all` in the place of what is there.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(name: &str, all: &[Value]) -> Result<(), String> {
    let folder = process::root().join(FOLDER);
    let file = folder.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(all).map_err(|error| error.to_string())?;
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, text + "\n"));
    written.map_err(|error| format!("{}: {error}", file.display()))
}

/// Puts `shown` in the place of what is there of `of`, by which `key` says what each is of; `None`: what was there does not hold any more.
///
/// # Errors
/// It cannot be read or written.
pub(crate) fn replace(name: &str, key: &str, of: &str, shown: Option<Value>) -> Result<(), String> {
    write(name, &replaced(read(name)?, key, of, shown))
}

fn replaced(mut all: Vec<Value>, key: &str, of: &str, shown: Option<Value>) -> Vec<Value> {
    all.retain(|one| one[key] != of);
    all.extend(shown);
    all.sort_by(|one, other| one[key].as_str().cmp(&other[key].as_str()));
    all
}

/// What the source is, before anything is kept of it.
///
/// # Errors
/// git's own words.
pub(crate) fn commit() -> Result<String, String> {
    let args = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    process::output(&mut process::git(args)).map(|commit| commit.trim().to_owned())
}

/// Which day it is, in UTC.
///
/// # Errors
/// There is no `date`.
pub(crate) fn today() -> Result<String, String> {
    process::output(Command::new("date").args(["-u", "+%F"])).map(|day| day.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_anew_takes_the_place_of_what_was_kept_of_it_alone() {
        let of = |name: &str, seconds: u64| serde_json::json!({ "target": name, "seconds": seconds });
        let all = replaced(vec![of("b", 1), of("c", 1)], "target", "b", Some(of("b", 2)));
        assert_eq!(all, [of("b", 2), of("c", 1)]);
        let all = replaced(all, "target", "a", Some(of("a", 3)));
        assert_eq!(all, [of("a", 3), of("b", 2), of("c", 1)]);
        assert_eq!(replaced(all, "target", "b", None), [of("a", 3), of("c", 1)]);
    }
}
