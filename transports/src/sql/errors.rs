//! Errors of a store as those of a transport.

use hapax_core::ports::{DispatchError, StoreError, TransportError};

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

/// One error for several messages. Whatever is wrong with the database can be put right, and then they can be sent.
pub(super) fn not_sent(operation: &'static str, error: &TransportError) -> DispatchError {
    let text = error.to_string();
    let message = text.strip_prefix(operation).and_then(|text| text.strip_prefix(": ")).unwrap_or(&text).to_owned();
    let told = TransportError::new(error.kind(), operation, message);
    let source = std::error::Error::source(error).map(ToString::to_string);
    let told = source.into_iter().fold(told, TransportError::caused_by);
    DispatchError::Transient(told)
}
