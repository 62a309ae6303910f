//! What becomes of bad lines: said aloud, and kept beside the input, so that they can be mended and sent again.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::{input::Reject, say};

/// Bad lines that are said aloud; the rest is counted.
const SHOWN: usize = 5;

/// Reports `rejects` of the input at `path` (`-`: standard input) on standard error and writes them to a file.
pub(crate) fn set_aside(rejects: &[Reject], path: &Path) {
    for reject in rejects.iter().take(SHOWN) {
        say(format_args!("line {}: {}", reject.line, reject.reason));
    }
    if rejects.is_empty() {
        return;
    }
    let count = match rejects.len() {
        1 => "1 bad line is".to_owned(),
        count => format!("{count} bad lines are"),
    };
    let beside = (path != Path::new("-")).then(|| path.with_extension("rejects.jsonl"));
    let temporary = std::env::temp_dir().join(format!("hapax-orders-{}.rejects.jsonl", std::process::id()));
    // The input may lie where nothing can be written.
    match beside.into_iter().chain([temporary]).map(|place| keep(rejects, place)).find_map(Result::ok) {
        Some(kept) => say(format_args!("{count} kept in {}; the rest goes on", kept.display())),
        None => say(format_args!("{count} lost: neither the input's folder nor the temporary one can be written to")),
    }
}

fn keep(rejects: &[Reject], place: PathBuf) -> io::Result<PathBuf> {
    let mut file = BufWriter::new(File::create(&place)?);
    for reject in rejects {
        serde_json::to_writer(&mut file, reject)?;
        file.write_all(b"\n")?;
    }
    file.flush()?;
    Ok(place)
}
