//! A Rust file that is no module of anything is never built, and a test in it never runs: nothing else would tell.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::process;
use crate::workspace::Workspace;

/// Workspaces of their own, whose targets the graph of this one does not have.
const APART: [&str; 3] = ["bench/peers", "servers/emulators", "tests/fuzz"];

/// Every Rust file that git knows is a target, or is named by one that is built: as a module, or by its path.
///
/// # Errors
/// One line for each file that is neither.
pub(crate) fn check(workspace: &Workspace) -> Result<String, String> {
    let listed = process::output(&mut process::git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let files: BTreeSet<PathBuf> = listed
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|file| file.extension().is_some_and(|e| e == "rs"))
        .collect();
    let root = process::root();
    let targets = workspace.targets.iter().filter_map(|target| Some(target.strip_prefix(&root).ok()?.to_owned()));
    let read = |file: &Path| std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let apart =
        files.iter().filter(|file| APART.iter().any(|folder| file.starts_with(folder)) && is_target(file)).cloned();
    let said =
        APART.iter().map(|folder| Path::new(folder).join("Cargo.toml")).flat_map(|file| quoted(&file, &read(&file)));
    let roots: Vec<PathBuf> = targets.chain(apart).chain(said).collect();
    let orphans = orphans(&files, roots, read);
    if orphans.is_empty() { Ok(format!("{} files", files.len())) } else { Err(orphans.join("\n")) }
}

/// Where cargo looks for targets by itself.
fn is_target(file: &Path) -> bool {
    let folder = file.parent().and_then(Path::file_name).unwrap_or_default();
    file.ends_with("src/main.rs")
        || file.ends_with("src/lib.rs")
        || folder == "bin"
        || folder == "tests"
        || file.ends_with("build.rs")
}

fn orphans(files: &BTreeSet<PathBuf>, roots: Vec<PathBuf>, read: impl Fn(&Path) -> String) -> Vec<String> {
    let mut built: BTreeSet<PathBuf> = BTreeSet::new();
    let mut next: Vec<(PathBuf, bool)> = roots.into_iter().map(|file| (file, true)).collect();
    while let Some((file, is_root)) = next.pop() {
        if file.ends_with("*.rs") {
            let all = files.iter().filter(|other| other.parent() == file.parent());
            next.extend(all.map(|file| (file.clone(), true)));
        } else if files.contains(&file) && built.insert(file.clone()) {
            next.extend(named(&file, is_root, &read(&file)));
        }
    }
    let orphan = |file: &PathBuf| {
        format!("{}: no module of anything, so it is never built: name it with `mod`, or delete it", file.display())
    };
    files.difference(&built).map(orphan).collect()
}

/// The files that `text`, which stands in `file`, may name, and whether their own modules are beside them. What is not there is no file, and does no
/// harm.
fn named(file: &Path, is_root: bool, text: &str) -> Vec<(PathBuf, bool)> {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let own = if is_root || file.ends_with("mod.rs") { folder.to_owned() } else { file.with_extension("") };
    let modules = text.lines().filter_map(|line| module(line.trim_start()));
    let modules = modules.flat_map(|name| [own.join(format!("{name}.rs")), own.join(name).join("mod.rs")]);
    modules.map(|file| (file, false)).chain(quoted(file, text).into_iter().map(|file| (file, true))).collect()
}

/// Files that stand there between quotes, from the folder of `file`: in an attribute, an `include`, or what a test gives to the compiler. `*.rs`: all
/// that are in its folder.
fn quoted(file: &Path, text: &str) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.flat_map(|line| line.split('"').skip(1).step_by(2)).filter(|name| name.ends_with(".rs"));
    // A test gives paths from the folder of its package, which is above its own.
    let above = folder.parent().unwrap_or(folder);
    names.flat_map(|name| [folder.join(name), above.join(name)]).map(|path| plain(&path)).collect()
}

/// The name in `mod name;`, whatever its visibility.
fn module(line: &str) -> Option<&str> {
    let (before, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
    let is_visibility = before.is_empty() || before.starts_with("pub");
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_visibility && is_name).then_some(name)
}

/// The path without its `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_that_nothing_names_is_told() {
        let text = |file: &Path| {
            match file.to_str().unwrap() {
                "src/lib.rs" => "mod a;\n#[path = \"deep/odd.rs\"]\nmod even;\n// mod told;\n",
                "src/a.rs" => "pub(crate) mod b;\ninclude!(\"../shared.rs\");\n",
                _ => "",
            }
            .to_owned()
        };
        let files = ["src/lib.rs", "src/a.rs", "src/a/b.rs", "src/b.rs", "src/deep/odd.rs", "shared.rs", "src/told.rs"];
        let orphans = orphans(&files.iter().map(PathBuf::from).collect(), vec!["src/lib.rs".into()], text);
        let found: Vec<_> = orphans.iter().filter_map(|told| told.split(':').next()).collect();
        assert_eq!(found, ["src/b.rs", "src/told.rs"]);
    }
}
