//! Links of a page, and whether they lead anywhere.

use std::path::{Component, Path, PathBuf};

use crate::process;

/// One link or picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The line it begins in, from 1.
    pub(super) line: usize,
    /// Where to: as it is written.
    pub(super) to: String,
}

/// The links of a page that lead into the tree. What stands in listings, between backticks or begins with a scheme is none, nor is a path of Rust,
/// which rustdoc looks at.
pub(super) fn of(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, said) in prose(text) {
        let mut rest = &*without_code(said);
        while let Some((_, after)) = rest.split_once("](") {
            let Some((to, behind)) = after.split_once(')') else { break };
            let to = to.split(' ').next().unwrap_or_default(); // A title may follow.
            if !to.contains("://") && !to.starts_with("mailto:") && !to.contains("::") && (to.contains(['.', '#', '/']))
            {
                links.push(Link { line, to: to.to_owned() });
            }
            rest = behind;
        }
    }
    links
}

/// What is wrong with a link of `page`, if anything is.
pub(super) fn fault(page: &str, link: &Link) -> Option<String> {
    let Link { line, to } = link;
    let anchor = to.split_once('#').map(|(_, anchor)| anchor);
    let Some(name) = file(page, to) else {
        return Some(format!("{page}:{line}: `{to}` leads out of the tree"));
    };
    let target = process::root().join(&name);
    if !target.exists() {
        return Some(format!("{page}:{line}: `{to}`: there is no {name}"));
    }
    let anchor = anchor.filter(|_| name.ends_with(".md"))?;
    let text = std::fs::read_to_string(&target).unwrap_or_default();
    let is_there = anchors(&text).iter().any(|there| there == anchor);
    (!is_there).then(|| format!("{page}:{line}: `{to}`: {name} has no heading `#{anchor}`"))
}

/// The file that a link of `page` names, from the root of the tree; `None`: it is outside.
pub(super) fn file(page: &str, to: &str) -> Option<String> {
    let path = to.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return Some(page.to_owned());
    }
    let folder = Path::new(page).parent().unwrap_or_else(|| Path::new(""));
    let mut plain = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir if plain.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
            Component::CurDir => {}
            Component::Normal(name) => plain.push(name),
        }
    }
    plain.to_str().map(str::to_owned)
}

/// What headings are called in links: by mdBook and by those who show repositories alike.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let Some(heading) = line.get(level..).and_then(|rest| rest.strip_prefix(' ')).filter(|_| level > 0) else {
            continue;
        };
        let shown = shown(heading);
        let kept = shown.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect();
        let again = anchors.iter().filter(|there| **there == name).count();
        anchors.push(if again == 0 { name } else { format!("{name}-{again}") });
    }
    anchors
}

/// A heading as it is shown: of a link its text alone.
fn shown(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading.trim();
    while let Some((text, after)) = rest.split_once("](") {
        shown.push_str(text);
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    shown.push_str(rest);
    shown
}

/// Lines outside of listings, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let begun = line.trim_start();
        let marks = ["```", "~~~"].into_iter().find(|marks| begun.starts_with(marks));
        match (fence, marks) {
            (None, Some(marks)) => fence = Some(marks),
            (Some(open), Some(marks)) if open == marks => fence = None,
            (None, None) => return true,
            _ => {}
        }
        false
    })
}

/// The line without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<String> {
        of(text).into_iter().map(|link| link.to).collect()
    }

    #[test]
    fn links_are_found_in_prose_and_not_in_listings() {
        let text = "[a](a.md) and ![b](b.svg \"title\"), [`c`](../c.rs#L1)\n```rust\n[d](d.md)\n```\n`[e](e.md)` [f](https://f.f)\n\
                    [g](Check::g) [h](#h)\n";
        assert_eq!(targets(text), ["a.md", "b.svg", "../c.rs#L1", "#h"]);
        assert_eq!(of(text)[3].line, 6);
    }

    #[test]
    fn a_link_is_read_from_the_folder_of_its_page() {
        assert_eq!(file("docs/tasks/one.md", "../two.md#three").as_deref(), Some("docs/two.md"));
        assert_eq!(file("docs/one.md", "#here").as_deref(), Some("docs/one.md"));
        assert_eq!(file("README.md", "../elsewhere.md"), None);
    }

    #[test]
    fn headings_are_called_as_readers_find_them() {
        let text = "# What is promised, what is not\n## `Sqs` and [links](a.md)\n```text\n# no heading\n```\n### Twice\n### Twice\n";
        assert_eq!(anchors(text), ["what-is-promised-what-is-not", "sqs-and-links", "twice", "twice-1"]);
    }
}
