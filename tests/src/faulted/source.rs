//! What could be asked for, read in the source: so that a call or a request that comes later is not forgotten here.

use std::{collections::BTreeSet, path::Path};

/// The methods that a port makes its stores answer for, out of the file that declares it: those that wait for something.
///
/// # Panics
/// When there is no such file.
#[must_use]
pub fn methods(port: &str) -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src/ports").join(port).with_extension("rs");
    let source = std::fs::read_to_string(&file).expect("the file of a port");
    let declared = source.lines().filter_map(|line| line.trim_start().strip_prefix("async fn "));
    declared.filter_map(|rest| rest.split('(').next().map(str::to_owned)).collect()
}

/// The methods of a client library that the source of a store calls: `client` stands for `.client.get_item()` and the like, as
/// in `self.client`. Those in `others` ask for nothing.
///
/// # Panics
/// When there is no such folder.
#[must_use]
pub fn asked_for(store: &str, clients: &[&str], others: &[&str]) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stores/src").join(store);
    let mut methods = BTreeSet::new();
    for source in sources(&folder) {
        for client in clients {
            for rest in source.split(client).skip(1) {
                let Some(call) = rest.trim_start().strip_prefix('.') else { continue };
                let end = call.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(call.len());
                let is_call = call[end..].starts_with(['(', ':']);
                if is_call && !others.contains(&&call[..end]) {
                    methods.insert(call[..end].to_owned());
                }
            }
        }
    }
    methods
}

/// All files below `folder`.
fn sources(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder of a store");
    let paths = entries.map(|entry| entry.expect("a file of it").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![std::fs::read_to_string(path).expect("a file of it")],
        })
        .collect()
}
