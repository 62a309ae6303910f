//! Patch files below `model/mutants/`: a header of `# key: value` lines, then a unified diff.

use std::path::Path;

/// Where patches may apply, and what stands there.
const PLACES: [(&str, &str); 3] =
    [("core/src/", "shipped code"), ("model/src/explore/", "world"), ("model/src/scenarios/", "configuration")];

/// One mutant: the shipped source with one mistake in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) name: String,
    /// The mistake, in a sentence.
    pub(crate) what: String,
    /// Where it comes from: a page and the name it has there.
    pub(crate) source: String,
    /// The claim that it must break.
    pub(crate) claim: String,
    /// Configurations that are tried, in this order, until one of them breaks.
    pub(crate) scenarios: Vec<String>,
    /// What a reader of the story should know beside it.
    pub(crate) note: Option<String>,
    /// What it changes: the shipped code, the world that it runs in, or both.
    pub(crate) places: Vec<&'static str>,
    /// The diff without the header.
    pub(crate) diff: String,
}

impl Patch {
    /// Reads a patch file.
    ///
    /// # Errors
    /// What its header lacks, or a file that it should not touch.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let at =
            text.find("diff --git ").ok_or_else(|| format!("{name}: there is no diff: begin it with `git diff`"))?;
        let (header, diff) = text.split_at(at);
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in header.lines().filter(|line| !line.trim().is_empty()) {
            let rest =
                line.strip_prefix('#').ok_or_else(|| format!("{name}: `{line}` is no header line: `# key: …`"))?;
            // A line that is set further in goes on with the one before.
            if let (true, Some((_, value))) = (rest.starts_with("   "), fields.last_mut()) {
                value.push(' ');
                value.push_str(rest.trim());
                continue;
            }
            let (key, value) =
                rest.split_once(':').ok_or_else(|| format!("{name}: `{line}` is no header line: `# key: …`"))?;
            fields.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        let mut field = |key: &str| {
            let at = fields.iter().position(|(of, value)| of == key && !value.is_empty())?;
            Some(fields.remove(at).1)
        };
        let mut needed = |key: &str| field(key).ok_or_else(|| format!("{name}: the header has no `# {key}: …`"));
        let (what, source, claim, scenarios) =
            (needed("what")?, needed("source")?, needed("claim")?, needed("scenario")?);
        let note = field("note");
        drop((field("soak"), field("soak-found"))); // For the runs on real backends: see `tested`.
        if let Some((key, _)) = fields.first() {
            return Err(format!(
                "{name}: `# {key}:` is not known: what, source, claim, scenario, soak, soak-found and note are"
            ));
        }
        let scenarios = scenarios.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let places = places(name, diff)?;
        Ok(Self { name: name.to_owned(), what, source, claim, scenarios, note, places, diff: diff.to_owned() })
    }

    /// Every patch of a folder, by name.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>, String> {
        let failed = |error| format!("{}: cannot be read: {error}", folder.display());
        let mut patches = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != "patch") {
                continue;
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: cannot be read: {error}"))?;
            patches.push(Self::parse(&name, &text)?);
        }
        patches.sort_by(|one, other| one.name.cmp(&other.name));
        if patches.is_empty() { Err(format!("{}: holds no patch", folder.display())) } else { Ok(patches) }
    }
}

/// What a diff changes; a file that no mutant may touch is an error.
fn places(name: &str, diff: &str) -> Result<Vec<&'static str>, String> {
    let mut places = Vec::new();
    for path in diff.lines().filter_map(|line| line.strip_prefix("+++ ")) {
        let path = path.strip_prefix("b/").unwrap_or(path);
        let place = PLACES.iter().find(|(folder, _)| path.starts_with(folder));
        let (_, place) = place.ok_or_else(|| {
            format!("{name}: changes {path}: a mutant is one of core/src, or of the world below model/src/explore")
        })?;
        if !places.contains(place) {
            places.push(place);
        }
    }
    if places.is_empty() { Err(format!("{name}: the diff names no file (`+++ b/…`)")) } else { Ok(places) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DIFF: &str = "diff --git a/core/src/deliver.rs b/core/src/deliver.rs\n--- a/core/src/deliver.rs\n\
                        +++ b/core/src/deliver.rs\n@@ -1 +1 @@\n-a: b\n+c: d\n";
    const HEADER: &str = "# what: acks before\n#    anything is done\n# source: protocol.md S06\n\
                          # claim: ack_implies_done\n# scenario: quiet, crash\n";

    #[test]
    fn a_header_is_read_and_the_diff_is_left_as_it_is() {
        let patch = Patch::parse("ack-first", &format!("{HEADER}# note: see deliver\n\n{DIFF}")).unwrap();
        assert_eq!(patch.what, "acks before anything is done");
        assert_eq!((patch.source.as_str(), patch.claim.as_str()), ("protocol.md S06", "ack_implies_done"));
        assert_eq!(patch.scenarios, ["quiet", "crash"]);
        assert_eq!(patch.note.as_deref(), Some("see deliver"));
        assert_eq!(patch.places, ["shipped code"]);
        assert_eq!(patch.diff, DIFF);
    }

    #[test]
    fn what_a_header_lacks_is_named() {
        for key in ["what", "source", "claim", "scenario"] {
            let header: String = HEADER.lines().filter(|line| !line.contains(&format!("# {key}:"))).collect();
            let error = Patch::parse("m", &format!("{header}\n{DIFF}")).unwrap_err();
            assert!(error.contains("m: "), "{error}");
        }
        let without_claim = HEADER.replace("# claim: ack_implies_done\n", "");
        let error = Patch::parse("m", &format!("{without_claim}{DIFF}")).unwrap_err();
        assert!(error.contains("no `# claim: …`"), "{error}");
    }

    #[test]
    fn what_is_no_header_and_what_is_no_mutant_is_refused() {
        let unknown = Patch::parse("m", &format!("{HEADER}# when: now\n{DIFF}")).unwrap_err();
        assert!(unknown.contains("`# when:` is not known"), "{unknown}");
        let loose = Patch::parse("m", &format!("a word\n{HEADER}{DIFF}")).unwrap_err();
        assert!(loose.contains("`a word`"), "{loose}");
        assert!(Patch::parse("m", HEADER).unwrap_err().contains("no diff"));
        let elsewhere = Patch::parse("m", &format!("{HEADER}{}", DIFF.replace("core/src", "xtask/src"))).unwrap_err();
        assert!(elsewhere.contains("xtask/src/deliver.rs"), "{elsewhere}");
    }
}
