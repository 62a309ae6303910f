//! How values get into what is sent: bound where a statement is prepared; in a text of many statements written so that none can end its place.

use std::fmt::Write;

use sqlx::{Arguments, Encode, MySql, Type, mysql::MySqlArguments};

/// Binding that cannot fail, in a chain.
pub(super) trait Bind {
    fn bind<'t, T: Encode<'t, MySql> + Type<MySql>>(&mut self, value: T) -> &mut Self;
}

impl Bind for MySqlArguments {
    fn bind<'t, T: Encode<'t, MySql> + Type<MySql>>(&mut self, value: T) -> &mut Self {
        self.add(value).expect("numbers, text and bytes are bound as they are");
        self
    }
}

/// A text of statements with the values in it. What is prepared takes one round trip for each statement, a text one for all.
///
/// Values are written as numbers, as `x'..'` or as NULL, whatever they hold: none can end its place in the text.
#[derive(Debug, Clone)]
pub struct Text {
    text: String,
    /// Those that have ended.
    statements: usize,
}

impl Text {
    /// With room for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), statements: 0 }
    }

    /// Of the program's own, never of data.
    pub fn sql(&mut self, sql: &str) -> &mut Self {
        self.text.push_str(sql);
        self
    }

    /// A number.
    pub fn number(&mut self, number: i64) -> &mut Self {
        write!(self.text, "{number}").expect("a string takes whatever is written");
        self
    }

    /// A number, or NULL.
    pub fn number_or_null(&mut self, number: Option<i64>) -> &mut Self {
        match number {
            Some(number) => self.number(number),
            None => self.sql("NULL"),
        }
    }

    /// Bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        self.text.reserve(2 * bytes.len() + 3);
        self.text.push_str("x'");
        for byte in bytes {
            self.text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            self.text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        self.text.push('\'');
        self
    }

    /// Bytes, or NULL.
    pub fn bytes_or_null(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.sql("NULL"),
        }
    }

    /// Ends a statement, if one has begun.
    pub fn end(&mut self) -> &mut Self {
        if !self.text.is_empty() && !self.text.ends_with("; ") {
            self.text.push_str("; ");
            self.statements += 1;
        }
        self
    }

    /// How many statements have ended in it.
    #[must_use]
    pub const fn statements(&self) -> usize {
        self.statements
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// As the server gets it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn into_string(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn no_value_can_end_its_place_in_a_text() {
        let mut text = Text::with_capacity(0);
        text.sql("(").bytes(b"\\'; DROP--\0\xff").sql(",").bytes(b"").sql(",").number(i64::MIN).sql(",");
        text.bytes_or_null(None).sql(",").number_or_null(None).sql(")");
        let shown = "(x'5c273b2044524f502d2d00ff',x'',-9223372036854775808,NULL,NULL)";
        assert_eq!(text.into_string(), shown);
    }
}
