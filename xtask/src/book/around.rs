//! What stands around the book: files of the tree that its pages link to, brought beside it, so that it can be read alone.

use std::collections::BTreeSet;
use std::path::Path;

use super::links;
use crate::process;

/// Brings every file, and every folder's files, that a page of the book links to and that is not in `docs`, to where the link leads. How many.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn bring(folder: &Path) -> Result<usize, String> {
    let listed = process::output(&mut process::git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let names: Vec<&str> = listed.split_terminator('\0').collect();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for page in names.iter().filter(|name| name.starts_with("docs/") && name.ends_with(".md")) {
        let text = super::read(page)?;
        let linked = links::of(&text).into_iter().filter_map(|link| links::file(page, &link.to));
        wanted.extend(linked.filter(|name| !name.starts_with("docs/")));
    }
    let is_wanted = |name: &str| wanted.iter().any(|want| Path::new(name).starts_with(want));
    let brought: Vec<&str> = names.into_iter().filter(|name| is_wanted(name)).collect();
    for name in &brought {
        let (from, to) = (process::root().join(name), folder.join(name));
        let failed = |error| format!("{name}: {error}");
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        match name.ends_with(".md") {
            // Links to pages lead to their HTML, and these are no pages of the book: they are shown as they are.
            true => {
                let text = std::fs::read_to_string(&from).map_err(failed)?;
                std::fs::write(to.with_extension("html"), as_it_is(name, &text)).map_err(failed)?;
                std::fs::copy(&from, &to).map(drop).map_err(failed)?;
            }
            false => std::fs::copy(&from, &to).map(drop).map_err(failed)?,
        }
    }
    Ok(brought.len())
}

fn as_it_is(name: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{name}</title>\
         <pre style=\"max-width:100ch;margin:2em auto;white-space:pre-wrap\">{text}</pre>\n"
    )
}

/// No page of the book loads anything from a network, and what it links to is there. How many pages there are.
///
/// # Errors
/// The pages that would, and the links that lead nowhere.
pub(super) fn is_whole(place: &Path) -> Result<usize, String> {
    let (mut pages, mut wrong) = (0, Vec::new());
    let mut folders = vec![place.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                pages += 1;
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                wrong.extend(loads(&text).map(|load| format!("{}: loads {load}", path.display())));
                let here = path.parent().unwrap_or(place);
                let dead = local(&text).filter(|link| !here.join(link).exists());
                wrong.extend(dead.map(|link| format!("{}: there is no {link}", path.display())));
            }
        }
    }
    if wrong.is_empty() { Ok(pages) } else { Err(wrong.join("\n")) }
}

/// Addresses elsewhere from which a page takes a script, a style, a font or a picture.
fn loads(html: &str) -> impl Iterator<Item = &str> {
    let tags =
        html.split('<').filter(|tag| ["script", "link", "img", "iframe"].iter().any(|name| tag.starts_with(name)));
    let tags = tags.filter_map(|tag| tag.split_once('>').map(|(tag, _)| tag));
    let values = tags.flat_map(|tag| tag.split('"').skip(1).step_by(2));
    values.filter(|value| value.starts_with("http:") || value.starts_with("https:") || value.starts_with("//"))
}

/// Files beside the page that it links to or shows.
fn local(html: &str) -> impl Iterator<Item = &str> {
    let values = ["href=\"", "src=\""].into_iter().flat_map(|name| html.split(name).skip(1));
    let values = values.filter_map(|rest| rest.split(['"', '#', '?']).next());
    values.filter(|value| !value.is_empty() && !value.starts_with('/') && !value.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_a_network_is_seen_and_a_link_for_the_reader_is_not() {
        let html = r#"<a href="https://a.a">a</a><script src="b.js"></script><link href="https://c.c/x.css"><img src="//d.d/e.png">"#;
        assert_eq!(loads(html).collect::<Vec<_>>(), ["https://c.c/x.css", "//d.d/e.png"]);
        assert_eq!(local(html).collect::<Vec<_>>(), ["b.js"]);
    }
}
