//! What long runs have shown, kept in `docs/campaign`, so that a page can be written without them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::process;

pub(crate) const FOLDER: &str = "docs/campaign";
const SECONDS_OF_A_DAY: u64 = 86_400;

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
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    day(since.as_secs() / SECONDS_OF_A_DAY)
}

/// The day that came so many days after the first of 1970.
///
/// # Source
/// H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn day(days: u64) -> String {
    let days = days + 719_468; // Since the first of March of the year 0: a leap day is the last of its year.
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_a_calendar_does() {
        let days = [(0, "1970-01-01"), (11_016, "2000-02-29"), (11_017, "2000-03-01"), (20_453, "2025-12-31")];
        for (days, told) in days {
            assert_eq!(day(days), told);
        }
    }

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
