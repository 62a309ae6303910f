//! Figures of a service that are no rate: how long it takes to come back, to wake up, to start, to sweep; what eviction
//! costs those who write meanwhile; whether memory stays.

mod evicting;
mod memory;
mod options;
mod recovery;
mod startup;
mod sweep;
mod wake;
mod worker;

use std::path::Path;

pub(crate) use options::{HELP, Options, parse};
pub(crate) use worker::{ROLE, run as work};

use crate::{
    AnyError, Scratch,
    measure::{Machine, Spread},
};

/// One figure over some rounds, and what it may be at most.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    at_most: Option<f64>,
    values: Vec<f64>,
}

impl Figure {
    fn new(name: impl Into<String>, unit: &'static str, at_most: Option<f64>, values: Vec<f64>) -> Self {
        Self { name: name.into(), unit, at_most, values }
    }

    /// By the median, as all bars are.
    fn is_met(&self) -> bool {
        let median = Spread::of(self.values.iter().copied()).map(|spread| spread.median);
        self.at_most.is_none_or(|most| median.is_some_and(|median| median <= most))
    }

    fn line(&self) -> String {
        let Some(Spread { median, min, max }) = Spread::of(self.values.iter().copied()) else {
            return format!("  {}: no figure", self.name);
        };
        let bar = match self.at_most {
            Some(most) if self.is_met() => format!("; must <= {most}: met"),
            Some(most) => format!("; must <= {most}: MISSED"),
            None => String::new(),
        };
        let Self { name, unit, .. } = self;
        format!("  {name}: {median:.2} [{min:.2}-{max:.2}] {unit}, {} rounds{bar}", self.values.len())
    }
}

/// Whether no bar is missed.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let machine = Machine::of_this_run();
    let scratch = Scratch::within(&options.dir)?;
    let mut figures = Vec::new();
    for name in &options.only {
        eprintln!("{name}");
        let found = measure(name, &scratch.0, options)?;
        found.iter().for_each(|figure| eprintln!("{}", figure.line()));
        figures.extend(found);
    }
    println!("{}", machine.line());
    figures.iter().for_each(|figure| println!("{}", figure.line()));
    if let Some(file) = &options.json {
        let json = serde_json::to_vec_pretty(&(&machine, &figures))?;
        std::fs::write(file, json).map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(figures.iter().all(Figure::is_met))
}

fn measure(name: &str, dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    match name {
        "recovery" => recovery::measure(dir, options),
        "wake" => wake::measure(dir, options),
        "startup" => startup::measure(dir, options),
        "sweep" => sweep::measure(dir, options),
        "evicting" => evicting::measure(dir, options),
        "memory" => memory::measure(dir, options),
        other => Err(format!("there is no figure named {other}").into()),
    }
}

fn millis(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
