//! `hapax`: what is done to a database of hapax by hand. Begin reading in `args.rs`.

mod args;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use args::{Command, Print};

/// Bad arguments, or settings that make no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let args: Result<Vec<String>, _> = std::env::args_os().skip(1).map(std::ffi::OsString::into_string).collect();
    let Ok(args) = args else {
        return refused("an argument is not UTF-8: write it in UTF-8");
    };
    match args::parse(&args) {
        Ok(Command::Help(page)) => printed(page),
        Ok(Command::Debezium(connector, print)) => {
            let text = match print {
                Print::Json => connector.to_json().map(|json| json + "\n"),
                Print::Sql => connector.sql(),
            };
            text.map_or_else(|error| refused(&error.to_string()), |text| printed(&text))
        }
        Err(why) => refused(&why),
    }
}

fn refused(why: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "hapax: {why}"); // There is nowhere else to say it.
    ExitCode::from(USAGE)
}

/// `println!` would panic when the reader has gone, as in `hapax --help | head -1`, which is no error.
fn printed(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "hapax: the answer cannot be written: {error}; send it elsewhere");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
