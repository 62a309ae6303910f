//! A door for the tests of decoders: rows.

use hapax_core::ids::EndpointName;

use super::set_aside::{Columns, Row};
use crate::fuzzing::parts;

/// Rows of dead letters as a database may hold them, whoever has written them: the columns by their names, and the envelope.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(endpoint) = EndpointName::parse("shop") else { return };
    let (columns, envelope) = parts(data);
    let column = |name: &str| {
        let found = columns.iter().find(|(column, _)| column == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let (text, number) = (
        |name: &str| column(name).unwrap_or_default(),
        |name: &str| column(name).and_then(|text| text.parse::<i64>().ok()),
    );
    let (saga, destination) = (text("saga"), text("destination"));
    let row = Row {
        saga: &saga,
        destination: &destination,
        attempts: number("attempts").unwrap_or_default(),
        time: number("time").unwrap_or_default(),
        reason: text("reason"),
        envelope: &envelope,
        sent_at: number("sent_at"),
        first_given_at: number("first_given_at"),
    };
    let Some(read) = row.of(&endpoint) else { return };
    // What can be read can be written, and is read as the same.
    let written = Columns::of(&read.letter).expect("what was read can be written");
    let again = Row {
        saga: written.identity.saga,
        destination: &written.identity.destination,
        attempts: written.attempts,
        time: written.time,
        reason: read.letter.reason.clone(),
        envelope: &written.envelope,
        sent_at: number("sent_at"),
        first_given_at: number("first_given_at"),
    };
    assert_eq!(again.of(&endpoint).as_ref(), Some(&read));
}
