//! What `cargo xtask fuzz` begins with, and what it has found and was kept, is given to the decoders on each push, with shortenings of it and some changes.
#![allow(clippy::unwrap_used)]

#[path = "fuzz/decoders.rs"]
mod decoders;

use std::{fs, path::Path};

/// Of each file: more than that is cut in steps.
const CUTS: usize = 64;
/// Changed bytes of each file.
const CHANGES: usize = 64;

/// Command lines are given to their parser by the tests of `hapax-cli`: it is a program's own source.
const NOT_HERE: [&str; 1] = ["command_line"];

#[test]
fn whatever_was_kept_is_given_to_somebody() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut known: Vec<&str> = decoders::ALL.iter().map(|(name, _)| *name).chain(NOT_HERE).collect();
    known.sort_unstable();
    for below in ["corpus", "targets"] {
        let files = fs::read_dir(folder.join(below)).unwrap().map(|file| file.unwrap().path());
        let mut names: Vec<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        assert_eq!(names, known, "{below}: what was found for one that is not here is given to no decoder");
    }
}

#[test]
fn what_was_found_trips_no_decoder() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for (name, decode) in decoders::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let files: Vec<_> = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).collect();
        assert!(!files.is_empty(), "{} is empty: it has shown nothing", folder.display());
        for file in files {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            decode(&bytes);
            for cut in (0..bytes.len()).step_by(bytes.len() / CUTS + 1) {
                decode(&bytes[..cut]);
            }
            for _ in 0..CHANGES.min(bytes.len()) {
                let mut changed = bytes.clone();
                changed[random.usize(..bytes.len())] = random.u8(..);
                decode(&changed);
            }
        }
    }
}
