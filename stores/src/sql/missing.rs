//! What of a schema is gone although its migrations are on record. Its statements would fail, or find nothing, again and
//! again, which looks like a store that is slow: so whoever opens it is told.

/// Asks for the first of `rows` that there is not: its name, or null. A name stands in the text between single quotes.
pub(super) fn row_question(rows: &[(&str, &str)]) -> Option<String> {
    let when = |(name, select): &(&str, &str)| format!("WHEN NOT EXISTS ({select}) THEN '{name}' ");
    let cases: String = rows.iter().map(when).collect();
    (!cases.is_empty()).then(|| format!("SELECT CASE {cases}END"))
}

/// Of tables, by a list of their names.
pub(super) fn tables(list: &str) -> String {
    format!(
        "missing although the schema was applied: {list}; restore it from a backup, or apply the schema by hand again if what \
         it held may be forgotten"
    )
}

/// Of rows, by what they are called. The schema's own would say that nothing has happened yet.
pub(super) fn row(name: &str) -> String {
    format!("{name} is missing although the schema was applied: restore it from a backup")
}

#[cfg(test)]
mod tests {
    use super::row_question;

    #[test]
    fn no_rows_are_no_question() {
        assert_eq!(row_question(&[]), None);
        let asked = row_question(&[("a", "SELECT 1"), ("b", "SELECT 2")]);
        let expected = "SELECT CASE WHEN NOT EXISTS (SELECT 1) THEN 'a' WHEN NOT EXISTS (SELECT 2) THEN 'b' END";
        assert_eq!(asked.as_deref(), Some(expected));
    }
}
