//! A copy of the tree below `target/`, in which patches are tried. The tree itself is never touched.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process;

/// How the copy is built: half of the time of a mutant is its build, so little is optimised but what it runs on; and what
/// a patch does not change is not built again.
const BUILD: [(&str, &str); 4] = [
    ("CARGO_INCREMENTAL", "1"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "true"),
];
/// What no patch changes is built once, and well; the model is built as often as the rest.
pub(crate) const PROFILES: [&str; 2] =
    ["profile.dev.package.\"*\".opt-level=3", "profile.dev.package.hapax-model.opt-level=1"];

/// Lines of a failed build that are shown.
const ERROR_LINES_MAX: usize = 20;

/// The copy.
#[derive(Debug)]
pub(crate) struct Tree {
    folder: PathBuf,
}

impl Tree {
    /// Makes the copy equal to the tree as it stands, uncommitted changes included. Files that are equal already are left
    /// alone, so that they need not be built again.
    ///
    /// # Errors
    /// A file that cannot be copied.
    pub(crate) fn copy() -> Result<Self, String> {
        // Whoever works in the copy calls it by this name too.
        let folder = std::path::absolute(process::root().join("target/mutants/tree"))
            .map_err(|error| format!("target/mutants/tree: {error}"))?;
        let tree = Self { folder };
        tree.restore()?;
        Ok(tree)
    }

    /// Takes back whatever a patch has changed.
    ///
    /// # Errors
    /// A file that cannot be copied.
    pub(crate) fn restore(&self) -> Result<(), String> {
        let listed =
            process::output(&mut process::git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
        let mut names = BTreeSet::new();
        for name in listed.split_terminator('\0') {
            // What is listed but gone is a removal that is not committed yet.
            let Ok(bytes) = std::fs::read(process::root().join(name)) else { continue };
            names.insert(PathBuf::from(name));
            let path = self.folder.join(name);
            if std::fs::read(&path).is_ok_and(|copied| copied == bytes) {
                continue;
            }
            let folder = path.parent().unwrap_or(&self.folder);
            let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, bytes));
            written.map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
        }
        let stale = files_below(&self.folder)?.into_iter().filter(|path| !names.contains(path));
        for path in stale {
            let removed = std::fs::remove_file(self.folder.join(&path));
            removed.map_err(|error| format!("{}: cannot be removed: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Applies `patch`, all of it or nothing.
    ///
    /// # Errors
    /// git's own words, and the remedy: the source has moved on.
    pub(crate) fn apply(&self, patch: &Path) -> Result<(), String> {
        let patch = std::path::absolute(patch).map_err(|error| format!("{}: {error}", patch.display()))?;
        for check in [true, false] {
            let mut git = Command::new("git");
            git.arg("apply").args(check.then_some("--check")).arg(&patch).current_dir(&self.folder);
            // The copy is no repository, and the one around it is not meant: there all of this would be ignored.
            git.env("GIT_CEILING_DIRECTORIES", self.above()?);
            process::output(&mut git).map_err(|error| {
                format!("no longer applies: make the same mistake in the source as it is now, and diff again\n{error}")
            })?;
        }
        Ok(())
    }

    /// A name beside the copy, where what is found in it can be kept.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.with_file_name(name)
    }

    /// cargo in the copy, with the settings and the target folder of its builds.
    pub(crate) fn cargo<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut cargo = process::cargo(args);
        cargo.current_dir(&self.folder).env("CARGO_TARGET_DIR", self.beside("target")).envs(BUILD);
        cargo
    }

    /// cargo in the copy as it is used in the tree, with a target folder of its own: for the tests.
    pub(crate) fn usual_cargo<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut cargo = process::cargo(args);
        cargo.current_dir(&self.folder).env("CARGO_TARGET_DIR", self.beside("usual-target"));
        cargo
    }

    fn above(&self) -> Result<PathBuf, String> {
        let above = self.folder.parent().unwrap_or(&self.folder);
        above.canonicalize().map_err(|error| format!("{}: {error}", above.display()))
    }

    /// Builds the model in the copy.
    ///
    /// # Errors
    /// The compiler's first words.
    pub(crate) fn build(&self) -> Result<PathBuf, String> {
        let args = ["build", "--quiet", "--locked", "--package", "hapax-model", "--bin", "hapax-model"];
        let mut cargo = self.cargo(args);
        cargo.args(PROFILES.iter().flat_map(|profile| ["--config", profile]));
        let built =
            cargo.stdout(Stdio::null()).output().map_err(|error| format!("cargo cannot be started: {error}"))?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr);
            let errors = said.lines().skip_while(|line| !line.starts_with("error")).take(ERROR_LINES_MAX);
            return Err(format!("does not build\n{}", errors.collect::<Vec<_>>().join("\n")));
        }
        Ok(self.beside("target").join("debug").join(format!("hapax-model{}", std::env::consts::EXE_SUFFIX)))
    }
}

/// Every file below `folder`, by its path within.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(within) = folders.pop() {
        let failed = |error| format!("{}: cannot be read: {error}", folder.join(&within).display());
        for entry in std::fs::read_dir(folder.join(&within)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = within.join(entry.file_name());
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    Ok(files)
}
