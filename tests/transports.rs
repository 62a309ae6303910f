//! The table of transports in the README says what they declare, what becomes of a message that is sent three times, with order
//! asked for too, and on what it was seen: a server is asked what it is. That messages come in order where that is declared is seen beside.
//!
//! `HAPAX_WRITE=1` writes it. A transport whose server is not there keeps its line, aloud.

#![allow(clippy::unwrap_used)]

#[path = "transports/asked.rs"]
mod asked;
#[path = "transports/declared.rs"]
mod declared;
#[path = "transports/seen.rs"]
mod seen;
#[cfg(feature = "servicebus")]
#[allow(dead_code, reason = "the rig of its own tests")]
#[path = "servicebus/rig.rs"]
mod servicebus;
#[path = "transports/table.rs"]
mod table;

use std::time::Duration;

use hapax_tests::written::{Written, is_to_be_written};
use seen::Seen;
use table::Line;

/// Writes the table.
const HOW: &str = "--test transports";
/// For some messages on one transport.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_table_of_transports_says_what_they_declare_and_what_becomes_of_copies() {
    let readme = Written::read("README.md", "transports");
    let mut lines = table::parse(&readme.tables);
    for (name, opened) in declared::all().await {
        let Some(opened) = opened else {
            println!("SKIPPED: the server of {name} is not there; its line in the README stays as it is");
            continue;
        };
        let seen = tokio::time::timeout(PATIENCE, Seen::of(&*opened.usual, opened.ordered.as_deref())).await;
        let seen = seen.unwrap_or_else(|_| panic!("{name}: what was sent has not come"));
        let mut line = Line::of(&opened, &seen);
        if let Some(written) = lines.get(name).filter(|_| !is_to_be_written())
            && written.seen_on != line.seen_on
        {
            println!("NOTE: {name} was seen on {}; here is {}", written.seen_on, line.seen_on);
            line.seen_on.clone_from(&written.seen_on);
        }
        lines.insert(name.to_owned(), line);
    }
    readme.is_or_becomes(&table::render(&lines), HOW);
}
