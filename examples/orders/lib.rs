//! The main job of hapax as an example: a shop that charges each order once, whatever happens to its messages.
//!
//! Read on in this order: [`messages`], `order`, `payment`, `stock` (three sagas, written as if every message came once),
//! `card_service` (an outside service that keeps its promise by idempotency key), `shop` (one endpoint, and what goes
//! wrong on purpose), [`books`] (the proof, from the database file alone), `breaks` (the proof of the proof: one rule
//! broken, and what comes of it), `desk` (what becomes of dead letters). The rest is input and output.

mod apart;
mod backend;
pub mod books;
mod breaks;
mod broker;
mod card_number;
mod card_service;
#[cfg(test)]
mod checked;
mod crew;
mod desk;
mod disk;
mod door;
mod doubled;
pub mod input;
mod itself;
mod look;
pub mod messages;
mod options;
mod order;
mod payment;
mod place;
mod refusal;
mod rejects;
mod report;
mod services;
mod shop;
mod signals;
mod stock;
mod telemetry;
mod watch;
mod worker;
mod workers;

use std::{
    fmt,
    io::{self, Write},
};

use backend::{InFile, InMySql, InPostgres};
pub use breaks::Rule;
use breaks::Sabotage;
use broker::OnBroker;
use input::Input;
pub use options::Options;
pub use place::Database;
use place::{Kept, Place};
pub use refusal::Refusal;
pub use report::Report;
use signals::Interruptions;
use telemetry::Telemetry;

/// Takes the orders, opens the shop, closes it and checks the books.
///
/// # Errors
/// [`Refusal`] for input, a database or an interruption that allows no run. Books that do not balance are no error but
/// the result.
pub async fn run(options: &Options) -> Result<Report, Refusal> {
    options.check()?;
    let input = read(options)?;
    // Before anything is made that would be left behind, and after the input was read, which may be from a keyboard.
    let mut interruptions = Interruptions::listen()?;
    let mut place = Box::pin(Place::find(options)).await?;
    let report = tokio::select! {
        biased;
        interrupted = interruptions.next() => Err(interrupted),
        report = run_in(&mut place, &input, options) => report,
    };
    tokio::select! {
        () = place.leave() => {}
        _ = interruptions.next() => say(format_args!("interrupted again; {} may be left", place.database())),
    }
    report
}

async fn run_in(place: &mut Place, input: &Input, options: &Options) -> Result<Report, Refusal> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let sabotage = options.breaks.map(|rule| Sabotage::new(rule, options.mend));
    let telemetry = options.metrics.as_deref().map(Telemetry::begin).transpose()?;
    let measured = telemetry.as_ref();

    let database = place.database().clone();
    let own = place.own();
    let on_broker = database.broker.is_some();
    // In boxes: each is large, and a test thread's stack is not.
    let run = match &database.kept {
        Kept::File(file) if options.workers.is_none() && !on_broker && database.dedup.is_none() => {
            shop::run(file, input, options, seed, sabotage.as_ref(), measured).await?
        }
        Kept::File(file) if on_broker => {
            Box::pin(workers::run::<OnBroker<InFile>>(file, &database, own, input, options, seed, measured)).await?
        }
        Kept::File(file) => {
            Box::pin(workers::run::<InFile>(file, &database, own, input, options, seed, measured)).await?
        }
        Kept::Postgres(schema) if on_broker => {
            Box::pin(workers::run::<OnBroker<InPostgres>>(schema, &database, own, input, options, seed, measured))
                .await?
        }
        Kept::Postgres(schema) => {
            Box::pin(workers::run::<InPostgres>(schema, &database, own, input, options, seed, measured)).await?
        }
        Kept::MySql(tables) if on_broker => {
            Box::pin(workers::run::<OnBroker<InMySql>>(tables, &database, own, input, options, seed, measured)).await?
        }
        Kept::MySql(tables) => {
            Box::pin(workers::run::<InMySql>(tables, &database, own, input, options, seed, measured)).await?
        }
        Kept::Service(service) => {
            Box::pin(services::run(service, &database, own, input, options, seed, measured)).await?
        }
    };
    let mut books = books::check(&database, input).await?;
    if run.workers == 0 && sabotage.is_none() && options.crashes() == 0.0 {
        books.compare(&run.counted); // Who crashes has not always told the observer.
    }
    let metrics = telemetry.map(Telemetry::end).transpose()?.flatten();

    if options.keep || !books.findings.is_empty() {
        place.keep(); // Evidence is not thrown away.
    }
    let crashes = if run.workers == 0 { format!(", crashes {}", options.crashes()) } else { String::new() };
    Ok(Report {
        orders: input.orders.len(),
        faults: format!("seed {seed}, duplicates {}{crashes}", options.duplicates()),
        story: sabotage.map(|sabotage| sabotage.story(&books.findings)),
        books,
        run,
        kept: place.kept(),
        metrics,
    })
}

/// Works in a process that [`run`] has started.
///
/// # Errors
/// [`Refusal`] when the database cannot be used.
pub async fn work(options: &Options) -> Result<(), Refusal> {
    let Some(database) = Database::of_worker(options) else {
        return Err(Refusal::new("there is nothing to work on; leave the starting of workers to --workers"));
    };
    let on_broker = database.broker.is_some();
    match &database.kept {
        Kept::File(file) if on_broker => worker::run::<OnBroker<InFile>>(file, &database, options).await,
        Kept::File(file) => worker::run::<InFile>(file, &database, options).await,
        Kept::Postgres(schema) if on_broker => worker::run::<OnBroker<InPostgres>>(schema, &database, options).await,
        Kept::Postgres(schema) => worker::run::<InPostgres>(schema, &database, options).await,
        Kept::MySql(tables) if on_broker => worker::run::<OnBroker<InMySql>>(tables, &database, options).await,
        Kept::MySql(tables) => worker::run::<InMySql>(tables, &database, options).await,
        Kept::Service(service) => services::work(service, &database, options).await,
    }
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
