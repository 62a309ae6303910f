//! Tables of the documentation that tests write.

use std::path::{Path, PathBuf};

/// Set, the tables are written; otherwise a test fails where they are behind.
const WRITE: &str = "HAPAX_WRITE";

/// What stands between the marks of a file: `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
#[derive(Debug)]
pub struct Written {
    path: PathBuf,
    text: String,
    begin: String,
    /// What is there now.
    pub tables: String,
}

impl Written {
    /// The part `name` of a file of the workspace.
    ///
    /// # Panics
    /// When there is no such file, or it has no such marks.
    #[must_use]
    pub fn read(file: &str, name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
        let tables = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).map(|(tables, _)| tables);
        let tables = tables.unwrap_or_else(|| panic!("{} has no part {name}", path.display())).to_owned();
        Self { path, text, begin, tables }
    }

    /// Writes `tables`, or fails where they differ from what is there; `test` is the one that writes them.
    ///
    /// # Panics
    /// When they differ, or cannot be written.
    pub fn is_or_becomes(&self, tables: &str, test: &str) {
        let Self { path, text, begin, tables: written } = self;
        if is_to_be_written() {
            let text = text.replacen(&format!("{begin}{written}"), &format!("{begin}{tables}"), 1);
            std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            return;
        }
        let how = format!("`{WRITE}=1 cargo nextest run -p hapax-tests {test}`");
        assert_eq!(written, tables, "{} is behind: run {how}", path.display());
    }
}

/// Whether tables are written, and not compared.
#[must_use]
pub fn is_to_be_written() -> bool {
    std::env::var_os(WRITE).is_some()
}
