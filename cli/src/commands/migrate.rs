//! Tables that are missing.

use hapax::operator::masked_url;
use serde::Serialize;

use crate::{
    args::{Common, Migrate},
    ask::Hand,
    failure::Failure,
    place::{OUTBOX, Place, QUEUES, STORE, Stood},
    print::Out,
    warnings::Warnings,
};

/// What is written down that was done. Others may do it at the same time, and whose tables they are then, no store tells.
const MADE_SURE: &str = "made sure of tables";

#[derive(Serialize)]
struct Migrated {
    place: String,
    store: bool,
    outbox: bool,
    queues: bool,
    tables: Vec<Tables>,
}

/// Those of a part.
#[derive(Serialize)]
struct Tables {
    of: &'static str,
    /// Left out where the store does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Stood>,
    names: Vec<String>,
}

pub(super) async fn run(asked: &Migrate, common: &Common, warnings: &Warnings, out: &mut Out) -> Result<(), Failure> {
    let parts = (!asked.no_store, asked.outbox, asked.queues);
    let named = [(parts.0, STORE), (parts.1, OUTBOX), (parts.2, QUEUES)];
    let named: Vec<&'static str> = named.iter().filter(|(is_asked, _)| *is_asked).map(|(_, name)| *name).collect();
    if named.is_empty() {
        return Err(Failure::usage("nothing is left to migrate: give --outbox or --queues, or leave --no-store out"));
    }
    let place = Place::of(common)?;
    if asked.sql {
        return out.text(&place.sql(parts)?);
    }
    let hand = Hand::new(&asked.changing, common);
    let url = masked_url(&common.store().unwrap_or_default());
    if !hand.asks(&format!("make or update the tables of {} in {url}", named.join(", ")), out)? {
        return Ok(());
    }
    hand.opens_log()?;
    let mut stood = place.stand(&named, asked.share_file).await?.into_iter();
    drop(warnings.take()); // What counts of it is warned of once more.
    let mut done = Vec::new();
    let made = place.migrate(parts, asked.share_file, &mut done).await;
    // What was made before something has failed stays.
    let written =
        if done.is_empty() { Ok(()) } else { hand.writes_down(MADE_SURE, &done.join(", "), done.len() as u64) };
    made.and(written)?;
    let told = |part: &'static str| Tables {
        of: part.rsplit(' ').next().unwrap_or(part), // Without its article.
        state: stood.next().flatten(),
        names: place.names_of(part),
    };
    let tables: Vec<Tables> = named.iter().copied().map(told).collect();
    if common.json {
        return out.json(&Migrated { place: url, store: parts.0, outbox: parts.1, queues: parts.2, tables });
    }
    let text: String = tables.iter().map(line).collect();
    out.text(&format!("{url}: the tables of {} are up to date\n{text}", named.join(", ")))
}

fn line(Tables { of, state, names }: &Tables) -> String {
    let was = state.map_or("made sure of", Stood::as_str);
    match names.join(", ") {
        none if none.is_empty() => format!("  {of}: {was}\n"),
        names => format!("  {of}: {was} {names}\n"),
    }
}
