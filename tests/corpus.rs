//! What `cargo xtask fuzz` has found and kept is given to the decoders once more, on each push, and every shortening of it and some changes.
#![allow(clippy::unwrap_used)]

#[path = "fuzz/decoders.rs"]
mod decoders;

use std::{fs, path::Path};

/// Of each file: more than that is cut in steps.
const CUTS: usize = 64;
/// Changed bytes of each file.
const CHANGES: usize = 64;

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
