//! Prints every world of a small configuration as a line of JSON, for `cargo xtask tla` to compare.
//!
//! ```text
//! cargo run -p hapax-model --example worlds -- messages=2 workers=2 crashes=1
//! ```

use std::{
    collections::{HashSet, VecDeque},
    error::Error,
    io::{BufWriter, Write, stdout},
};

use hapax_model::{
    explore::{Budgets, Graph, Scenario},
    scenarios::book::{note, scenario},
};

fn main() -> Result<(), Box<dyn Error>> {
    let graph = Graph::new(asked(std::env::args().skip(1))?)?;
    let mut out = BufWriter::new(stdout().lock());
    let initial = graph.initial();
    let mut seen = HashSet::from([initial.clone()]);
    let mut frontier = VecDeque::from([initial]);
    while let Some(vertex) = frontier.pop_front() {
        serde_json::to_writer(&mut out, &graph.snapshot(&vertex))?;
        writeln!(out)?;
        for step in graph.steps(&vertex)? {
            let after = step.to?; // A broken claim ends it: then there is something better to do than to compare.
            if seen.insert(after.clone()) {
                frontier.push_back(after);
            }
        }
    }
    Ok(out.flush()?)
}

/// Notes of one book, as many and with as many faults as the arguments say.
fn asked(args: impl Iterator<Item = String>) -> Result<Scenario, Box<dyn Error>> {
    let (mut messages, mut silent, mut workers, mut together) = (1, 0, 1, true);
    let mut budgets = Budgets::NONE;
    for arg in args {
        let (name, value) = arg.split_once('=').ok_or_else(|| format!("`{arg}`: say NAME=NUMBER"))?;
        let value: u8 = value.parse().map_err(|_| format!("`{arg}`: {value} is no small number"))?;
        match name {
            "messages" => messages = value,
            "silent" => silent = value,
            "workers" => workers = usize::from(value),
            "together" => together = value > 0,
            "crashes" => budgets.crashes = value,
            "unknown" => budgets.unknown = value,
            "refused" => budgets.refused = value,
            "duplicates" => budgets.duplicates = value,
            _ => return Err(format!("`{name}` is not known: see the specification's constants").into()),
        }
    }
    let notes = (0..messages).map(|number| note("b", number, u8::from(number >= silent))).collect();
    Ok(Scenario { together, budgets, ..scenario(notes, workers) })
}
