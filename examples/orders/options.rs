//! The command line.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, error::ErrorKind};

use crate::{input::ORDERS_MAX, refusal::EXIT_REFUSED};

/// Takes thousands of orders through three sagas on SQLite while messages are duplicated and reordered and passes crash,
/// then checks the books from the database file alone.
///
/// A line of input is an order or an arrival of goods:
///   {"order":"A-1","customer":"Zoë","card":"good","lines":[{"article":"mug","quantity":2,"price_cents":890}]}
///   {"stock":"mug","quantity":40}
/// The card says how the card company behaves: good, refused, slow, silent or lost.
///
/// Exit codes: 0 every order was charged exactly once, 1 the books do not balance, 2 the run was refused,
/// 130 it was interrupted.
#[derive(Debug, Clone, Parser)]
#[command(name = "orders", verbatim_doc_comment)]
pub struct Options {
    /// Orders, one JSON object a line; `-` is standard input [default: 3000 orders that come with the example]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Take this many orders; of those that come with the example there are as many as you like
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(ORDERS_MAX)))]
    pub orders: Option<u32>,

    /// Share of messages that are queued twice; as many are held back, so that later ones overtake them
    #[arg(long, value_name = "0..1", default_value = "0.2", allow_negative_numbers = true, value_parser = probability)]
    pub duplicates: f64,

    /// Share of passes that may be dropped at a random await; half as many acks get lost
    #[arg(long, value_name = "0..1", default_value = "0.1", allow_negative_numbers = true, value_parser = probability)]
    pub crashes: f64,

    /// Draws the faults [default: random, printed]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// Database to create: `sqlite:PATH` or a path [default: a temporary file]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,

    /// Keep the temporary database and say where it is
    #[arg(long)]
    pub keep: bool,
}

fn probability(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number; give one from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&number) {
        return Ok(number);
    }
    Err("a share is a number from 0 to 1".into())
}

impl Options {
    /// The options of this process.
    ///
    /// # Errors
    /// The exit code, when there is nothing more to do: help was asked for and given, or an option is wrong and was
    /// explained in one line.
    pub fn from_command_line() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|e| {
            if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                let _ = write!(io::stdout(), "{e}");
                return ExitCode::SUCCESS;
            }
            let _ = writeln!(io::stderr(), "orders: {}", explain(&e));
            ExitCode::from(EXIT_REFUSED)
        })
    }
}

/// The first line of what the parser says, which is the one that matters.
fn explain(error: &clap::Error) -> String {
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default();
    format!("{}; see --help", first.strip_prefix("error: ").unwrap_or(first))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(arguments: &[&str]) -> String {
        let error = Options::try_parse_from([&["orders"], arguments].concat()).unwrap_err();
        explain(&error)
    }

    #[test]
    fn a_wrong_option_is_explained_in_one_line() {
        for (arguments, expected) in [
            (&["--duplicates", "1.5"][..], "a share is a number from 0 to 1"),
            (&["--duplicates", "-0.1"], "a share is a number from 0 to 1"),
            (&["--crashes", "nan"], "a share is a number from 0 to 1"),
            (&["--crashes", "often"], "not a number"),
            (&["--orders", "0"], "0 is not in 1..=100000"),
            (&["--orders", "-3"], "-3 is not in"),
            (&["--seed", "x"], "invalid digit"),
            (&["--sede", "1"], "unexpected argument '--sede'"),
            (&["--store"], "a value is required"),
            (&["orders.jsonl"], "unexpected argument"),
        ] {
            let said = refused(arguments);
            assert!(said.contains(expected), "{arguments:?}: {said:?} does not say {expected:?}");
            assert!(!said.contains('\n') && said.ends_with("see --help"), "{said:?}");
        }
    }
}
