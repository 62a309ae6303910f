//! How values get into what is sent: bound where a statement is prepared; in a text of many statements written so that none can leave its place.

use std::fmt::{Display, Write};

use hapax_stores::sql::mysql::wire::{Answer, Server, Text};
use sqlx::{
    Arguments, Encode, MySql, Type,
    mysql::{MySqlArguments, MySqlRow},
};

/// Binding that cannot fail, in a chain.
pub(super) trait Bind {
    fn bind<'t, T: Encode<'t, MySql> + Type<MySql>>(&mut self, value: T) -> &mut Self;
}

impl Bind for MySqlArguments {
    fn bind<'t, T: Encode<'t, MySql> + Type<MySql>>(&mut self, value: T) -> &mut Self {
        self.add(value).expect("numbers, text and bytes of less than a gigabyte are bound as they are");
        self
    }
}

pub(super) fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// `values` with commas between them.
pub(super) fn list<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    for value in values {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = write!(text, "{value}"); // Writing into a text cannot fail.
    }
    text
}

/// Bytes as a literal. Whatever they are, nothing of them can leave its place.
pub(super) fn bytes(bytes: impl AsRef<[u8]>) -> String {
    let mut text = "x'".to_owned();
    for byte in bytes.as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

/// `statements` with the names in them.
pub(super) fn text(server: &Server, statements: &[String]) -> Text {
    let mut text = Text::with_capacity(0);
    for statement in statements {
        text.end().sql(&server.text(statement));
    }
    text
}

/// Those of all statements. Each tells by its first column what it is about.
pub(super) fn rows(answers: Vec<Answer>) -> Vec<MySqlRow> {
    answers.into_iter().flat_map(|answer| answer.rows).collect()
}
