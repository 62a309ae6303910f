//! The house's own commands: `cargo xtask` lists them.
//!
//! One promise: what `cargo xtask ci` accepts, the shared checks accept, on a machine with nothing but cargo, clippy,
//! rustfmt, git and a C compiler. Whatever is not there is either replaced or skipped aloud, with the command that would
//! provide it. Nothing here writes outside `target/`, but for the stories of `mutants`, the page of `verify`, what `campaign`, `soak-mutants`
//! and `fuzz` keep, those of `bench postgres --plots` and `bench mysql --plots`, and what `book --draw` draws.

mod api;
mod args;
mod backends;
mod bench;
mod book;
mod campaign;
mod ci;
mod dependencies;
mod features;
mod fuzz;
mod kept;
mod lines;
mod msrv;
mod mutants;
mod orphans;
mod pace;
mod policy;
mod process;
mod report;
mod shuttle;
mod soak;
mod spdx;
mod survivors;
mod test;
mod texts;
mod tla;
mod unsafe_code;
mod verify;
mod workspace;

use std::process::ExitCode;

use args::Command;

/// What a wrong command line exits with; a failed step exits with 1.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args::parse(&args) {
        Ok(Command::Help) => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        Ok(Command::Test(wanted)) => test::run(&wanted),
        Ok(Command::Ci { tests, all }) => ci::run(tests, all),
        Ok(Command::Bench(args)) => bench::run(&args),
        Ok(Command::Book { draw }) => book::run(draw),
        Ok(Command::Api) => api::bless(),
        Ok(Command::Fuzz(wanted)) => fuzz::run(&wanted),
        Ok(Command::Soak(args)) => soak::run(&args),
        Ok(Command::Campaign(wanted)) => campaign::run(&wanted),
        Ok(Command::Emulator(name)) => ended(backends::emulate(&name)),
        Ok(Command::Server(name)) => ended(backends::serve(&name)),
        Ok(Command::Shuttle(filters)) => shuttle::run(&filters),
        Ok(Command::Tla) => tla::run(),
        Ok(Command::Mutants(wanted)) => mutants::run(&wanted),
        Ok(Command::RelayMutants(names)) => mutants::tested::run(&mutants::tested::RELAY, &names),
        Ok(Command::StoreMutants(names)) => mutants::tested::run(&mutants::tested::STORES, &names),
        Ok(Command::EndpointMutants(names)) => mutants::tested::run(&mutants::tested::ENDPOINT, &names),
        Ok(Command::OtelMutants(names)) => mutants::tested::run(&mutants::tested::OTEL, &names),
        Ok(Command::OperatorMutants(names)) => mutants::tested::run(&mutants::tested::OPERATOR, &names),
        Ok(Command::SoakMutants(names)) => mutants::tested::run(&mutants::tested::SOAK, &names),
        Ok(Command::Survivors(parts)) => survivors::run(&parts),
        Ok(Command::Verify(extent)) => verify::run(extent),
        Err(remedy) => {
            eprintln!("{remedy}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn ended(how: Result<(), String>) -> ExitCode {
    match how {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
