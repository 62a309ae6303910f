//! The shop: thousands of orders, each charged once, while messages are duplicated and reordered and passes crash.
//! `cargo run --release --example orders` (then `-- --help`). Begin reading in `lib.rs`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

#[tokio::main]
async fn main() -> ExitCode {
    let options = match orders::Options::from_command_line() {
        Ok(options) => options,
        Err(answered) => return answered,
    };
    if options.worker_of.is_some() {
        return match orders::work(&options).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(refusal) => refused(&refusal),
        };
    }
    match orders::run(&options).await {
        Ok(report) => {
            // `println!` would panic when the reader has gone, as in `orders | head -1`, which is no error of the run.
            match io::stdout().write_all(report.to_string().as_bytes()) {
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                    let _ = writeln!(io::stderr(), "orders: the report cannot be written: {e}; send it elsewhere");
                    ExitCode::from(2)
                }
                _ => ExitCode::from(u8::from(!report.is_balanced())),
            }
        }
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &orders::Refusal) -> ExitCode {
    let _ = writeln!(io::stderr(), "orders: {refusal}");
    ExitCode::from(refusal.exit_code())
}
