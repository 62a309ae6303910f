//! What goes to the reader: JSON, or lines for a person.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

use hapax::operator::{printable, printable_json};
use serde::Serialize;

use crate::failure::Failure;

/// The standard output. `println!` would panic when the reader has gone.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// One object on a line, for who reads as it comes.
    pub(crate) json_lines: bool,
    /// Nobody reads any more, as behind `| head -1`. That is no error, and what was found or done decides how the program ends.
    pub(crate) is_unread: bool,
}

impl Out {
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_unread = true,
            Err(error) => {
                return Err(Failure::new(format!("the answer cannot be written: {error}; send it elsewhere")));
            }
            Ok(()) => {}
        }
        Ok(())
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.text(&format!("{line}\n"))
    }

    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let written = if self.json_lines { serde_json::to_string(value) } else { serde_json::to_string_pretty(value) };
        let text = written.map_err(|error| Failure::new(format!("the answer cannot be encoded: {error}")))?;
        self.line(&printable_json(&text))
    }

    pub(crate) fn is_terminal() -> bool {
        io::stdout().is_terminal()
    }
}

/// Columns, as wide as they have to be; the last one as long as it is.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', 2 + width.saturating_sub(cell.chars().count())));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// So many, and what they are called where there is one or more.
pub(crate) fn counted(count: impl Display, one: &str, more: &str) -> String {
    let count = count.to_string();
    let name = if count == "1" { one } else { more };
    format!("{count} {name}")
}

/// A time in milliseconds, as a person says it.
pub(crate) fn span(millis: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    match UNITS.iter().find(|(unit, _)| millis >= *unit) {
        Some((unit, name)) => format!("{} {name}", millis / unit),
        None => format!("{millis} ms"),
    }
}

/// The same, or a dash.
pub(crate) fn span_or_dash(millis: Option<u64>) -> String {
    millis.map_or_else(|| "-".to_owned(), span)
}

#[cfg(test)]
mod tests {
    use super::{Table, counted, span};

    #[test]
    fn one_is_called_by_its_own_name() {
        let told = ["0", "1", "11", "at least 1"].map(|count| counted(count, "letter", "letters"));
        assert_eq!(told, ["0 letters", "1 letter", "11 letters", "at least 1 letters"]);
    }

    #[test]
    fn spans_are_told_in_the_largest_unit() {
        let told = [0, 999, 1_000, 59_999, 60_000, 3_600_000, 90_000_000].map(span);
        assert_eq!(told, ["0 ms", "999 ms", "1 s", "59 s", "1 min", "1 h", "1 d"]);
    }

    #[test]
    fn columns_stand_below_each_other_and_nothing_moves_the_cursor() {
        let mut table = Table::new(&["id", "reason"]);
        table.row(["é".to_owned(), "a\u{1b}[2J\nb".to_owned()]);
        table.row(["long".to_owned(), "c".to_owned()]);
        assert_eq!(table.text(), "id    reason\né     a [2J b\nlong  c\n");
    }
}
