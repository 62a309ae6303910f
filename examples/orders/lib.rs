//! The main job of hapax as an example: a shop that charges each order once, whatever happens to its messages.
//!
//! Read on in this order: [`messages`], `order`, `payment`, `stock` (three sagas, written as if every message came once),
//! `card_service` (an outside service that keeps its promise by idempotency key), `shop` (one endpoint, and what goes
//! wrong on purpose), [`books`] (the proof, from the database file alone), `breaks` (the proof of the proof: one rule
//! broken, and what comes of it). The rest is input and output.

pub mod books;
mod breaks;
mod card_service;
#[cfg(test)]
mod checked;
mod crew;
mod door;
mod doubled;
pub mod input;
pub mod messages;
mod options;
mod order;
mod payment;
mod place;
mod refusal;
mod rejects;
mod report;
mod shop;
mod stock;
mod watch;
mod worker;
mod workers;

use std::{
    fmt,
    io::{self, Write},
    path::Path,
};

pub use breaks::Rule;
use breaks::Sabotage;
use input::Input;
pub use options::Options;
use place::Place;
pub use refusal::Refusal;
pub use report::Report;

/// Takes the orders, opens the shop, closes it and checks the books.
///
/// # Errors
/// [`Refusal`] for input, a database or an interruption that allows no run. Books that do not balance are no error but
/// the result.
pub async fn run(options: &Options) -> Result<Report, Refusal> {
    let input = read(options)?;
    let mut place = Place::find(options.store.as_deref()).await?;
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));

    let sabotage = options.breaks.map(|rule| Sabotage::new(rule, options.mend));

    let run = match options.workers {
        Some(workers) => workers::run(place.database(), &input, options, workers, seed).await?,
        None => shop::run(place.database(), &input, options, seed, sabotage.as_ref()).await?,
    };
    let books = books::check(place.database(), &input).await?;

    if options.keep || !books.findings.is_empty() {
        place.keep(); // Evidence is not thrown away.
    }
    Ok(Report {
        orders: input.orders.len(),
        faults: format!("seed {seed}, duplicates {}, crashes {}", options.duplicates(), options.crashes()),
        story: sabotage.map(|sabotage| sabotage.story(&books.findings)),
        books,
        run,
        kept: place.is_kept().then(|| place.database().to_owned()),
    })
}

/// Works in a process that [`run`] has started.
///
/// # Errors
/// [`Refusal`] when the file cannot be used.
pub async fn work(options: &Options, database: &Path) -> Result<(), Refusal> {
    worker::run(database, options).await
}

fn read(options: &Options) -> Result<Input, Refusal> {
    let Some(path) = &options.input else {
        return Ok(Input::bundled(options.orders.or_else(|| options.breaks.map(|_| breaks::ORDERS))));
    };
    let input = Input::read(path, options.orders)?;
    rejects::set_aside(&input.rejects, path);
    if input.orders.is_empty() {
        return Err(Refusal::new(format!(
            "there is no order in {}; see --help for what one looks like",
            input::name_of(path)
        )));
    }
    Ok(input)
}

/// A line on standard error. Unlike `eprintln!` it does not panic when nobody reads it.
fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "orders: {what}");
}
