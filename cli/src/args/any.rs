//! What `cargo xtask fuzz command_line` has kept is given to the parser once more, on each push, shortened and changed: it may refuse, and
//! must not panic.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

use clap::Parser;

use super::Args;

/// Changed bytes of each file.
const CHANGES: usize = 256;

fn parse(line: &[u8]) -> bool {
    let words = line.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
    Args::try_parse_from(std::iter::once(OsStr::new("hapax")).chain(words)).is_ok()
}

#[test]
fn any_command_line_is_taken_or_refused() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus/command_line");
    let mut taken = 0;
    for file in fs::read_dir(folder).unwrap() {
        let line = fs::read(file.unwrap().path()).unwrap();
        taken += u32::from(parse(&line));
        for end in 0..line.len() {
            parse(&line[..end]);
        }
        for _ in 0..CHANGES.min(line.len()) {
            let mut changed = line.clone();
            changed[random.usize(..line.len())] = random.u8(..);
            parse(&changed);
        }
    }
    assert!(taken > 0, "nothing that is kept is a command line");
}
