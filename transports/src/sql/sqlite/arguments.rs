use hapax_core::ports::{StoreError, TransportError};
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

/// The same error as a transport's.
pub(super) fn transport_error(operation: &'static str, error: StoreError) -> TransportError {
    let text = error.to_string();
    let message = text.strip_prefix(operation).and_then(|text| text.strip_prefix(": ")).unwrap_or(&text);
    let told = TransportError::new(error.kind(), operation, message);
    if std::error::Error::source(&error).is_some() { told.caused_by(Cause(error)) } else { told }
}

/// What caused an error whose own words have been said.
#[derive(Debug)]
struct Cause(StoreError);

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match std::error::Error::source(&self.0) {
            Some(source) => write!(f, "{source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)?.source()
    }
}
