//! A prefix becomes part of statements, where nothing can be bound. So it is checked first, and what could end a name is refused.

use std::fmt;

use hapax_core::ports::{ErrorKind, StoreError};

/// The server takes names of 64; the longest of ours needs the rest.
const PREFIX_BYTES_MAX: usize = 30;

/// The prefix of all tables' names, checked: it becomes part of statements. What other servers call a schema is a database
/// here, and that is the connection's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str, opening: &'static str) -> Result<Self, StoreError> {
        let usual = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let begins_well = prefix.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        if begins_well && prefix.len() <= PREFIX_BYTES_MAX && prefix.bytes().all(usual) {
            return Ok(Self { prefix: prefix.to_owned() });
        }
        let why = format!(
            "table prefix `{prefix}`: use lower-case ASCII letters, digits and _ only, 1 to {PREFIX_BYTES_MAX}, no digit \
             first"
        );
        Err(StoreError::new(ErrorKind::Misconfigured, opening, why))
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A table's name as the server lists it.
    pub(super) fn table(&self, table: &str) -> String {
        format!("{}{table}", self.prefix)
    }

    /// `text` with these names in it: `hapax.` becomes the prefix.
    pub(super) fn put_into(&self, text: &str) -> String {
        text.replace("hapax.", &self.prefix)
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Names;

    #[test]
    fn names_are_put_into_texts() {
        let names = Names::new("app_", "a test").unwrap();
        assert_eq!(names.put_into("SELECT 1 FROM hapax.entity AS e"), "SELECT 1 FROM app_entity AS e");
    }

    #[test]
    fn what_could_end_a_name_is_refused() {
        for prefix in ["", "a`b", "a b", "A", "1a", "ü", "b;", "a.b", "a-b"] {
            assert!(Names::new(prefix, "a test").is_err(), "{prefix}");
        }
        assert!(Names::new(&"a".repeat(31), "a test").is_err());
        assert!(Names::new("hapax_", "a test").is_ok());
    }
}
