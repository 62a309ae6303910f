//! What an endpoint itself costs: CPU beside a loop by hand, time of a message where there is nothing else to do, memory for keys
//! that are not used any more, and what messages that are not due cost those that are.
//!
//! Every run is void, and an error, unless its books add up: as many effects, versions and outgoing messages as distinct ids.

mod keys;
mod latency;
mod options;
mod pending;
mod recent;

use std::path::Path;

pub(crate) use keys::{ROLE, work};
pub(crate) use options::{HELP, Options, parse};

use crate::{
    AnyError,
    cases::{Bar, Case, Round},
    figure::Figure,
    figures::{self, Asked},
    measure::Spread,
    run::Run,
};

/// Whether no bar is missed, or none is judged.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let Options { only, dir, json, .. } = options;
    figures::take(&Asked { only, dir, json: json.as_ref(), judged: options.judged() }, options, measure)
}

fn measure(name: &str, dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    match name {
        "overhead" => overhead(dir, options),
        "latency" => latency::measure(options),
        "keys" => keys::measure(options),
        "pending" => pending::in_process(options),
        "pending-queue" => pending::in_sqlite(dir, options),
        "pending-schedule" => pending::in_schedule(dir, options),
        other => Err(format!("there is no figure named {other}").into()),
    }
}

/// The case C5 of `sqlite`, which has no SQLite in it.
fn overhead(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let settings = crate::options::Options {
        rounds: options.rounds,
        time: options.time(),
        dir: options.dir.clone(),
        ..crate::options::Options::default()
    };
    let rounds = crate::rounds(Case::C5, &settings, dir)?;
    for round in &rounds {
        balanced("the loop by hand", &round.anchor.run)?;
        balanced("overhead", &round.hapax.run)?;
    }
    Ok(overhead_figures(&rounds))
}

fn overhead_figures(rounds: &[Round]) -> Vec<Figure> {
    let each = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
    let above = each(Round::overhead);
    let name = "overhead: CPU of a message above the loop by hand";
    let mut figure = Figure::of(name, "us", above.clone());
    let bar = Case::C5.bar();
    if let (Bar::Overhead { must, stretch }, Some(Spread { median, .. })) = (bar, Spread::of(above)) {
        let reached = if bar.is_stretch(median) { "reached" } else { "not reached" };
        figure = figure.median_at_most(must).notes([format!("stretch goal of {stretch} us: {reached}")]);
    }
    vec![
        figure,
        Figure::of("overhead: CPU of a message", "us", each(|round| round.hapax.run.sample.cpu_us())),
        Figure::of("overhead: the same in the loop by hand", "us", each(|round| round.anchor.run.sample.cpu_us())),
        Figure::of("overhead: messages a second", "", each(|round| round.hapax.run.sample.rate())),
    ]
}

/// An error where the books of `run` do not add up.
fn balanced(name: &str, run: &Run) -> Result<(), AnyError> {
    run.books.problem().map_or(Ok(()), |problem| Err(format!("void: {name}: {problem}").into()))
}

/// As applications have it: a current-thread runtime with everything on.
fn runtime() -> Result<tokio::runtime::Runtime, AnyError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        books::Books,
        cases::Side,
        measure::{Resident, Sample},
    };

    fn side(cpu_us: f64) -> Side {
        let sample = Sample { seconds: 1.0, deliveries: 1_000_000, cpu_seconds: cpu_us, ..Sample::default() };
        Side { run: Run { sample, books: Books::default() }, memory: Resident::default() }
    }

    fn round(by_hand: f64, hapax: f64) -> Round {
        Round { seed: 1, disk: None, anchor: side(by_hand), hapax: side(hapax), usual: None }
    }

    #[test]
    fn the_overhead_is_what_a_message_costs_more_than_by_hand_in_the_same_round() {
        let met = overhead_figures(&[round(1.0, 4.0), round(5.0, 7.5), round(1.0, 9.0)]);
        assert!(met[0].is_met(), "{}", met[0].line(true));
        assert!(met[0].line(true).contains("3.00 [2.50-8.00] us"), "{}", met[0].line(true));
        assert!(met[0].line(true).ends_with("stretch goal of 2 us: not reached"));
        assert!(!overhead_figures(&[round(1.0, 4.1)])[0].is_met());
        assert!(overhead_figures(&[round(1.0, 3.0)])[0].line(true).ends_with(": reached"));
    }

    #[test]
    fn a_run_whose_books_do_not_add_up_is_an_error() {
        let mut run = side(1.0).run;
        assert!(balanced("run", &run).is_ok());
        run.books.versions = Some(1);
        assert!(balanced("run", &run).is_err());
    }
}
