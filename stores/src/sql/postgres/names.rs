//! Schema and prefix become part of statements, where nothing can be bound. So they are checked first, and what could leave its quotes is refused.

use std::fmt;

use hapax_core::ports::{ErrorKind, StoreError};

use super::PostgresOptions;

/// PostgreSQL cuts longer names off; the longest of ours needs the rest.
const PART_BYTES_MAX: usize = 30;

/// The schema and the prefix of all tables' names, checked: they become part of statements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Names {
    schema: String,
    prefix: String,
}

impl Names {
    /// Those of `options`, for what is being opened.
    pub(super) fn new(options: &PostgresOptions, opening: &'static str) -> Result<Self, StoreError> {
        let PostgresOptions { schema, table_prefix, .. } = options;
        check("schema", schema, false)
            .and_then(|()| check("table prefix", table_prefix, true))
            .map_err(|why| StoreError::new(ErrorKind::Misconfigured, opening, why))?;
        Ok(Self { schema: schema.clone(), prefix: table_prefix.clone() })
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// A table's name as the server lists it.
    pub(super) fn table(&self, table: &str) -> String {
        format!("{}{table}", self.prefix)
    }

    /// `text` with these names in it: `hapax.` becomes the schema and the prefix, `hapax_` in the name of an index the
    /// prefix.
    pub(super) fn put_into(&self, text: &str) -> String {
        let Self { schema, prefix } = self;
        text.replace("EXISTS hapax_", &format!("EXISTS {prefix}hapax_"))
            .replace("hapax.", &format!("\"{schema}\".{prefix}"))
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}*", self.schema, self.prefix)
    }
}

fn check(what: &str, name: &str, may_be_empty: bool) -> Result<(), String> {
    let usual = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let begins_well = name.bytes().next().map_or(may_be_empty, |b| !b.is_ascii_digit());
    if begins_well && name.len() <= PART_BYTES_MAX && name.bytes().all(usual) && !name.starts_with("pg_") {
        return Ok(());
    }
    Err(format!(
        "{what} `{name}`: use lower-case ASCII letters, digits and _ only, at most {PART_BYTES_MAX}, no digit first, not \
         `pg_`"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::Postgres, Names};

    fn names(schema: &str, prefix: &str) -> Result<Names, String> {
        let options = Postgres::options("postgres://host/db").schema(schema).table_prefix(prefix);
        Names::new(&options, "opening").map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_put_into_texts() {
        let names = names("own", "app_").unwrap();
        let text = names.put_into("CREATE INDEX IF NOT EXISTS hapax_entity_x ON hapax.entity (key)");
        assert_eq!(text, "CREATE INDEX IF NOT EXISTS app_hapax_entity_x ON \"own\".app_entity (key)");
    }

    #[test]
    fn what_could_leave_its_quotes_is_refused() {
        for (schema, prefix) in
            [("", ""), ("a\"b", ""), ("a b", ""), ("A", ""), ("1a", ""), ("ü", ""), ("pg_x", ""), ("a", "b;")]
        {
            assert!(names(schema, prefix).is_err(), "{schema} {prefix}");
        }
        assert!(names(&"a".repeat(31), "").is_err());
        assert!(names("hapax", "").is_ok());
    }
}
