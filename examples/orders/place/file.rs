//! A file: each run has one of its own, so that the books of one run are all there is in it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::Refusal;

/// The file that `store` names, unless it would mix two runs or two programs.
pub(super) async fn find(store: &str) -> Result<PathBuf, Refusal> {
    let database = path_of(store)?;
    check_file(&database)?;
    check_tables(&database).await?;
    Ok(database)
}

/// What makes a path of any name.
const PLAINLY: &str = "./";

/// Whether it is what URLs begin with. A single letter may be a disk.
fn is_scheme(word: &str) -> bool {
    let one_of = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '-';
    word.len() > 1 && word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(one_of)
}

fn path_of(store: &str) -> Result<PathBuf, Refusal> {
    let refuse = |why: &str| Err(Refusal::new(format!("--store {store}: {why}")));
    let path = match store.split_once(':') {
        Some(("sqlite", path)) => path.strip_prefix("//").unwrap_or(path),
        Some(("memory" | "", _)) => "",
        // Without the rest, which may hold a password.
        Some((scheme, rest)) if is_scheme(scheme) || rest.starts_with("//") => {
            return Err(Refusal::new(format!(
                "--store: {scheme}: is not supported; give sqlite:PATH, a path ({PLAINLY}{scheme}:.. for a file of that \
                 name), or {} with //USER@HOST:PORT/DATABASE",
                super::server::SCHEMES.join(", ")
            )));
        }
        _ => store,
    };
    if path.trim().is_empty() || path.starts_with(':') {
        return refuse("the books are checked from a file; give sqlite:PATH or a path");
    }
    if path.contains(['?', '\0']) {
        return refuse("a path is enough; leave out what begins with `?`");
    }
    Ok(path.into())
}

fn check_file(path: &Path) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::new(format!("{} {why}", path.display())));
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => refuse("is a directory; name a file in it".into()),
        Ok(found) if !found.is_file() => refuse("is not a file; name one, or a path where there is nothing".into()),
        Ok(found) if found.permissions().readonly() => refuse("is read-only; make it writable or name another".into()),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                refuse("is in a folder that does not exist; create it or name another file".into())
            }
            _ => Ok(()),
        },
        Err(e) => refuse(format!("cannot be used: {e}; name another file")),
    }
}

/// An existing file must be an empty database.
async fn check_tables(path: &Path) -> Result<(), Refusal> {
    if fs::metadata(path).map_or(0, |found| found.len()) == 0 {
        return Ok(());
    }
    let name = path.display();
    let unreadable = |e: sqlx::Error| Refusal::new(format!("{name} cannot be used: {}; name another file", short(&e)));
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut file = SqliteConnection::connect_with(&options).await.map_err(unreadable)?;
    let tables = sqlx::query_scalar::<_, String>("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'")
        .fetch_all(&mut file)
        .await;
    let closed = file.close().await;
    let tables = tables.map_err(unreadable)?;
    closed.map_err(unreadable)?;
    if tables.iter().any(|table| table == "orders_card_ledger") {
        return Err(Refusal::new(format!("{name} holds an earlier run; remove it or name another file")));
    }
    match tables.first() {
        Some(table) => {
            Err(Refusal::new(format!("{name} belongs to another program (it has {table}); name another file")))
        }
        None => Ok(()),
    }
}

/// What SQLite itself says.
fn short(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |e| e.message().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_store_is_a_path_with_or_without_a_scheme() {
        for store in ["sqlite:a/b.db", "sqlite://a/b.db", "a/b.db"] {
            assert_eq!(path_of(store).unwrap(), Path::new("a/b.db"), "{store}");
        }
        assert_eq!(path_of("sqlite:///a.db").unwrap(), Path::new("/a.db"));
    }

    #[test]
    fn a_store_without_a_file_is_refused() {
        for store in ["memory:", ":memory:", "sqlite::memory:", "sqlite:", "", "oracle://h/d", "sqlite:a?mode=ro"] {
            let said = path_of(store).unwrap_err().to_string();
            assert!(said.contains("give sqlite:PATH") || said.contains("leave out"), "{store}: {said}");
        }
    }
}
