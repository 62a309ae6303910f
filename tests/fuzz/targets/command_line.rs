//! Command lines of `hapax`, the operator's: a word in each line.
#![no_main]

#[allow(dead_code)] // What commands read of them.
#[path = "../../../cli/src/args/mod.rs"]
mod args;
#[allow(dead_code)] // The same.
#[path = "../../../cli/src/ids.rs"]
mod ids;

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use clap::Parser;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let words = data.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
    drop(args::Args::try_parse_from(std::iter::once(OsStr::new("hapax")).chain(words)));
});
