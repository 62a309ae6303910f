//! What `deny.toml` allows, so that the lists stand in one place, for cargo-deny and for us.
//!
//! Only two lists are read, and only as they are written there: one entry a line. A TOML parser would cost more to
//! compile than the rest of this crate; a list that cannot be found is an error, never "nothing is forbidden".

use crate::process;

/// The lists we check ourselves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Accepted licence terms.
    pub(crate) licences: Vec<String>,
    /// Crates that must not be there at all.
    pub(crate) banned: Vec<String>,
    /// Crates that may be there in one version only.
    pub(crate) single: Vec<String>,
}

impl Policy {
    /// Reads `deny.toml` at the root.
    ///
    /// # Errors
    /// The file or one of its lists is missing or empty.
    pub(crate) fn load() -> Result<Self, String> {
        let path = process::root().join("deny.toml");
        let text = std::fs::read_to_string(path).map_err(|error| format!("deny.toml cannot be read: {error}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let denied = entries(text, "bans", "deny")?;
        let (single, banned): (Vec<&str>, Vec<&str>) =
            denied.iter().partition(|entry| entry.contains("deny-multiple-versions = true"));
        Ok(Self {
            licences: quoted(&entries(text, "licenses", "allow")?, "")?,
            banned: quoted(&banned, "crate = ")?,
            single: quoted(&single, "crate = ")?,
        })
    }
}

/// The lines between `key = [` and `]` of one section, without comments.
fn entries<'a>(text: &'a str, section: &str, key: &str) -> Result<Vec<&'a str>, String> {
    let found: Vec<&str> = text
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != format!("[{section}]"))
        .skip(1)
        .take_while(|line| !(line.starts_with('[') && line.ends_with(']')))
        .skip_while(|line| *line != format!("{key} = ["))
        .skip(1)
        .take_while(|line| *line != "]")
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    if found.is_empty() {
        return Err(format!("deny.toml: [{section}] has no list `{key} = [` with one entry a line"));
    }
    Ok(found)
}

/// The quoted text that stands behind `before` in each entry.
fn quoted(entries: &[&str], before: &str) -> Result<Vec<String>, String> {
    let one = |entry: &&str| {
        let behind = entry.split_once(&format!("{before}\""))?.1;
        Some(behind.split_once('"')?.0.to_owned())
    };
    let read = |entry| one(entry).ok_or_else(|| format!("deny.toml: `{entry}` has no {before}\"...\" on its line"));
    entries.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WRITTEN: &str = "
[licenses]
# a \"comment\"
allow = [
    \"MIT\",
    \"Apache-2.0 WITH LLVM-exception\",
]
[bans]
multiple-versions = \"allow\"
deny = [
    { crate = \"openssl\", reason = \"why\" },
    { crate = \"sqlx\", deny-multiple-versions = true },
]
";

    #[test]
    fn the_lists_are_read_as_they_are_written() {
        let policy = Policy::parse(WRITTEN).unwrap();
        assert_eq!(policy.licences, ["MIT", "Apache-2.0 WITH LLVM-exception"]);
        assert_eq!((policy.banned, policy.single), (vec!["openssl".to_owned()], vec!["sqlx".to_owned()]));
    }

    #[test]
    fn a_list_that_cannot_be_found_is_no_permission() {
        for (written, other) in [("deny = [", "denied = ["), ("[licenses]", "[licences]"), ("\"MIT\"", "MIT")] {
            assert!(Policy::parse(&WRITTEN.replace(written, other)).is_err(), "{other}");
        }
    }

    #[test]
    fn each_exception_has_its_reason() {
        let text = std::fs::read_to_string(process::root().join("deny.toml")).unwrap();
        for (section, key) in [("advisories", "ignore"), ("bans", "deny")] {
            for entry in entries(&text, section, key).unwrap() {
                assert!(entry.contains("reason = \""), "[{section}] {key}: {entry}");
            }
        }
    }

    #[test]
    fn our_own_file_can_be_read() {
        let policy = Policy::load().unwrap();
        assert!(policy.banned.contains(&"openssl".to_owned()) && policy.single.contains(&"sqlx".to_owned()));
    }
}
