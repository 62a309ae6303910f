//! What is put between a worker and the C library, see `shim.c`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Compiles it into `folder`. Any machine that builds SQLite has a C compiler.
pub(crate) fn shim(folder: &Path) -> PathBuf {
    let made = folder.join("shim.so");
    let source = folder.join("shim.c");
    fs::write(&source, include_str!("shim.c")).expect("a place for it");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled =
        Command::new(compiler).args(["-shared", "-fPIC", "-O1", "-o"]).arg(&made).arg(source).arg("-ldl").output();
    let compiled = compiled.expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    made
}

/// A file that says how far the clocks of those who read it are off.
#[allow(dead_code)] // Each test program uses a part of this file.
pub(crate) struct StepClock(PathBuf);

#[allow(dead_code)] // The same.
impl StepClock {
    pub(crate) fn new(folder: &Path) -> Self {
        let clock = Self(folder.join("clock"));
        clock.set(0);
        clock
    }

    /// The one that another process has made.
    pub(crate) const fn at(file: PathBuf) -> Self {
        Self(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// In place: the readers have it mapped.
    pub(crate) fn set(&self, ms: i64) {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&self.0);
        file.and_then(|file| file.write_all_at(&ms.to_ne_bytes(), 0)).expect("a clock");
    }
}
