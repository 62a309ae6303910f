//! The shop: thousands of orders, each charged once, while messages are duplicated and reordered and passes crash.
//! `cargo run --release --example orders` (then `-- --help`). Begin reading in `lib.rs`.
// The future of a run holds those of every store and broker.
#![recursion_limit = "256"]

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
        let ended = orders::work(&options).await;
        // By itself the process would wait for standard input, which does not end before the parent knows of this.
        std::process::exit(ended.map_or_else(|refusal| i32::from(refused(&refusal)), |()| 0));
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
        Err(refusal) => refused(&refusal).into(),
    }
}

fn refused(refusal: &orders::Refusal) -> u8 {
    let _ = writeln!(io::stderr(), "orders: {refusal}");
    refusal.exit_code()
}
