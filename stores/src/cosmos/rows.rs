//! What a query has found, row by row: one that is damaged must not hold up the others.

use hapax_core::ports::StoreError;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error;

pub(super) fn row_in<T: DeserializeOwned>(doing: &'static str, row: Value) -> Result<T, StoreError> {
    let place = format!("a document in {}", row["pk"]);
    serde_json::from_value(row).map_err(|e| {
        // serde shows a value that is of the wrong kind, which may be somebody's body; of one that is missing, the name alone.
        let why = e.to_string();
        let why =
            if why.starts_with("missing field") { why } else { "a field has no value that it may have".to_owned() };
        error::malformed(doing, format!("{place}: {why}"))
    })
}

/// What is not readable is told of and left out.
pub(super) fn readable<T>(row: Result<T, StoreError>) -> Option<T> {
    let tell = |error: &StoreError| {
        tracing::warn!(%error, "a document is left out: nothing of it is sent or removed until a person repairs it");
    };
    row.inspect_err(tell).ok()
}
