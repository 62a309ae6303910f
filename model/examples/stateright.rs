//! Goes through a configuration with stateright, or shows it in stateright's web explorer.
//!
//! ```text
//! cargo run -p hapax-model --example stateright -- crash
//! cargo run -p hapax-model --example stateright -- crash --web localhost:3000
//! ```

#[path = "../tests/second/engine.rs"]
mod engine;

use std::{io::stdout, process::ExitCode};

use engine::Second;
use hapax_model::scenarios::{ALL, named};
use stateright::{Checker, Model, report::WriteReporter};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (name, web) = match args[..] {
        [name] => (name, None),
        [name, "--web", address] => (name, Some(address)),
        _ => ("", None),
    };
    let Some(scenario) = named(name) else {
        eprintln!("say NAME, or NAME --web ADDRESS (localhost:3000); the names are:");
        ALL.iter().for_each(|named| eprintln!("  {:24} {}", named.name, named.about));
        return ExitCode::from(2);
    };
    let checker = Second::new((scenario.make)()).checker();
    if let Some(address) = web {
        println!("open http://{address}/ in a browser; end with Ctrl-C");
        checker.serve(address);
    } else {
        checker.spawn_bfs().join_and_report(&mut WriteReporter::new(&mut stdout()));
    }
    ExitCode::SUCCESS
}
