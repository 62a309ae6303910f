//! `cargo xtask fuzz`: each decoder of bytes from outside is given bytes that find their way through it, for some time.

use std::process::{Command, ExitCode};

use crate::{args::Fuzz, process};

/// A workspace of its own, for a nightly compiler.
const FOLDER: &str = "tests/fuzz";
/// A decoder that takes more is one that allocates without bound. The library around it takes some.
const MEMORY_MIB: u32 = 512;
/// One input: far above what any takes.
const TIMEOUT_S: u32 = 10;

/// Every target, or those of these names. Ends with the first input that is one too many.
pub(crate) fn run(wanted: &Fuzz) -> ExitCode {
    if !process::has_cargo("fuzz") {
        eprintln!(
            "there is no cargo-fuzz: `cargo install cargo-fuzz --locked`; and a nightly compiler: `rustup toolchain install nightly`"
        );
        return ExitCode::FAILURE;
    }
    let known = match targets() {
        Ok(known) => known,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(unknown) = wanted.targets.iter().find(|name| !known.contains(name)) {
        eprintln!("`{unknown}` is no target: there are {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    for target in known.iter().filter(|name| wanted.targets.is_empty() || wanted.targets.contains(name)) {
        println!("{target}, for {} s", wanted.seconds);
        // By rustup: the cargo that runs this is of another toolchain.
        let mut command = Command::new("rustup");
        command
            .args(["run", "nightly", "cargo", "fuzz", "run", "--fuzz-dir", FOLDER, target])
            .current_dir(process::root())
            // SQLite's amalgamation defines a name twice in one file, which the address sanitizer takes for an error.
            .env("ASAN_OPTIONS", "detect_odr_violation=0");
        command.args(["--", &format!("-max_total_time={}", wanted.seconds), &format!("-timeout={TIMEOUT_S}")]);
        command.args([&format!("-rss_limit_mb={MEMORY_MIB}"), "-print_final_stats=1"]);
        if let Err(error) = process::run(&mut command) {
            eprintln!("{target}: {error}; the input is in {FOLDER}/artifacts/{target}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn targets() -> Result<Vec<String>, String> {
    let folder = process::root().join(FOLDER).join("targets");
    let files = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> =
        files.flatten().filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}
