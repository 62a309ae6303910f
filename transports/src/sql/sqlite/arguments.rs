//! How values get into what is sent: bound, in a chain that cannot fail; lists as JSON, so that a statement is the same for any number of them.

use sqlx::{Arguments, Encode, Sqlite, Type, sqlite::SqliteArguments};

/// Binding that cannot fail, in a chain.
pub(super) trait Bind {
    fn bind<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self;
}

impl Bind for SqliteArguments {
    fn bind<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        self.add(value).expect("numbers, text and bytes are bound as they are");
        self
    }
}

pub(super) fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A JSON array of texts.
pub(super) fn json<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    serde_json::Value::from_iter(texts).to_string()
}
