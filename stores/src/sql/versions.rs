//! Which versions of a schema a program goes on with.

use std::fmt::Display;

use hapax_core::ports::ErrorKind;

/// Whether a program that knows `latest` may use `place`, which has `version` (0: nothing of ours) and says from which version on
/// a program may go on with it. What is wrong is told with its remedy.
pub(super) fn check(
    place: &impl Display,
    version: i64,
    usable_from: Option<i64>,
    latest: i64,
    remedy: &str,
) -> Result<(), (ErrorKind, String)> {
    if version > latest && usable_from.is_none_or(|from| from > latest) {
        let why =
            format!("{place} has schema {version} of a newer hapax, this one knows {latest}: update this program");
        return Err((ErrorKind::Malformed, why));
    }
    if version < latest {
        let (kind, has) = match version {
            0 => (ErrorKind::Absent, "no tables of hapax".to_owned()),
            older => (ErrorKind::Misconfigured, format!("schema {older}")),
        };
        return Err((kind, format!("{place} has {has}, this hapax needs {latest}: {remedy}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, check};

    #[test]
    fn a_newer_schema_is_used_if_it_says_so_and_an_older_one_is_never() {
        let told = |version, usable_from| check(&"it", version, usable_from, 3, "migrate").err();
        for (version, usable_from) in [(3, None), (3, Some(1)), (4, Some(3)), (9, Some(1))] {
            assert_eq!(told(version, usable_from), None, "{version} {usable_from:?}");
        }
        for usable_from in [None, Some(4)] {
            let (kind, why) = told(4, usable_from).unwrap_or((ErrorKind::Denied, String::new()));
            assert_eq!((kind, why.contains("update this program")), (ErrorKind::Malformed, true), "{why}");
        }
        for (version, kind, has) in
            [(0, ErrorKind::Absent, "it has no tables of hapax"), (2, ErrorKind::Misconfigured, "it has schema 2")]
        {
            let expected = format!("{has}, this hapax needs 3: migrate");
            assert_eq!(told(version, Some(1)), Some((kind, expected)));
        }
    }
}
