//! `hapax`: what an operator sees of a store of hapax, and does to it. Begin reading in `args/mod.rs`; what is shown comes from
//! `hapax::operator`, and is only printed here.

mod args;
mod ask;
mod commands;
mod failure;
mod ids;
mod place;
mod print;
mod transport;
mod warnings;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, error::ErrorKind};

use args::Args;
use failure::Failure;
use hapax::operator::masked;
use print::Out;

/// All that was asked for is done.
const DONE: u8 = 0;
/// It could not be done, or something was found that is not as it should be.
const FAILED: u8 = 1;
/// What was asked makes no sense as it is.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut out = Out::default();
    let ended = match Args::try_parse_from(std::env::args_os()) {
        Ok(args) => run(args, &mut out),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            out.text(&error.to_string())
        }
        Err(error) => Err(Failure::usage(one_line(&error))),
    };
    match ended {
        Ok(()) => ExitCode::from(DONE),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code())
        }
    }
}

fn run(args: Args, out: &mut Out) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("the program cannot begin: {error}; try again")))?;
    let ended = runtime.block_on(commands::run(args, out));
    // Whatever a driver still does in the background is not waited for: all that counts is confirmed.
    runtime.shutdown_background();
    ended
}

/// What clap says in several lines, in one, with the remedy.
fn one_line(error: &clap::Error) -> String {
    if matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand) {
        let words: Vec<String> = std::env::args_os().skip(1).filter_map(word).collect();
        let command = std::iter::once("hapax".to_owned()).chain(words).collect::<Vec<_>>().join(" ");
        return format!("a command is missing: run `{command} --help`");
    }
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said: Vec<&str> = said.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    let said = said.join(" ").replace("error: ", "").replace(" tip: ", "; ");
    let said = said.strip_suffix('.').unwrap_or(&said);
    format!("{}: run `hapax --help`, or --help behind a command", without_long_words(&masked(said)))
}

/// A value that was a whole file would hide what is wrong with it. What is said of it stands behind it.
fn without_long_words(text: &str) -> String {
    const SHOWN_MAX: usize = 400;
    let word = |word: &str| match word.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…'", &word[..end]),
        None => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// A word of a command, as it may be shown.
fn word(argument: OsString) -> Option<String> {
    argument
        .into_string()
        .ok()
        .filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-'))
}
