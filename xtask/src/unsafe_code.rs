//! No unsafe code: each package has its compiler forbid it, by the lints of the workspace or by its own, and nothing else would tell of one that has not.

use crate::process;

/// What a manifest has to say where it has lints of its own.
const FORBIDDEN: &str = "unsafe_code = \"forbid\"";
/// The same by the workspace, whose manifest has to say it then.
const BY_WORKSPACE: [&str; 2] = ["[lints]", "workspace = true"];
/// Folders whose packages cannot forbid it, and so must not have the word: two are there to be copied, and the fuzzer's macro makes a symbol.
const APART: [&str; 3] = ["examples/hello/", "examples/template/", "tests/fuzz/"];

/// Every package of the tree.
///
/// # Errors
/// One line for each manifest that does not forbid it, and for each file in the place of that.
pub(crate) fn check() -> Result<String, String> {
    let listed = process::output(&mut process::git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let read = |file: &str| std::fs::read_to_string(process::root().join(file)).unwrap_or_default();
    let files: Vec<&str> = listed.split_terminator('\0').collect();
    let wrong: Vec<String> = files.iter().filter_map(|file| fault(file, &read(file))).collect();
    let manifests = files.iter().filter(|file| is_manifest(file)).count();
    if wrong.is_empty() { Ok(format!("{manifests} packages")) } else { Err(wrong.join("\n")) }
}

fn is_manifest(file: &str) -> bool {
    file == "Cargo.toml" || file.ends_with("/Cargo.toml")
}

fn fault(file: &str, text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_apart = APART.iter().any(|folder| file.starts_with(folder));
    if is_manifest(file) && !is_apart {
        let forbids = lines.contains(&FORBIDDEN) || lines.windows(2).any(|two| *two == BY_WORKSPACE);
        let is_root = file == "Cargo.toml";
        let is_well = forbids && (!is_root || lines.contains(&FORBIDDEN));
        return (!is_well).then(|| format!("{file}: it does not forbid unsafe code: {BY_WORKSPACE:?}, or {FORBIDDEN}"));
    }
    let is_unsafe = is_apart && file.ends_with(".rs") && text.contains("unsafe");
    is_unsafe.then(|| format!("{file}: it has unsafe code, which its package does not forbid: do without"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_does_not_forbid_it_is_told() {
        let by_workspace = "[package]\n[lints]\nworkspace = true\n";
        assert_eq!(fault("a/Cargo.toml", by_workspace), None);
        assert_eq!(fault("a/Cargo.toml", &format!("[lints.rust]\n{FORBIDDEN}\n")), None);
        assert_eq!(fault("Cargo.toml", &format!("{FORBIDDEN}\n{by_workspace}")), None);
        for (file, text) in [
            ("a/Cargo.toml", "[package]\n"),
            ("a/Cargo.toml", "[dependencies]\nworkspace = true\n[lints]\n"),
            ("Cargo.toml", by_workspace),
            ("examples/hello/src/main.rs", "fn main() { unsafe { a() } }"),
        ] {
            assert!(fault(file, text).is_some(), "{file}: {text}");
        }
        assert_eq!(fault("examples/hello/Cargo.toml", "[package]\n"), None);
        assert_eq!(fault("a/main.rs", "unsafe"), None, "its compiler tells");
    }
}
