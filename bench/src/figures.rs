//! Figures that are taken one after the other, and how they are asked for.

use std::path::{Path, PathBuf};

use crate::{AnyError, Scratch, figure::Figure, measure::Machine};

/// Where the figures are taken, and where they go.
pub(crate) struct Asked<'o> {
    pub(crate) only: &'o [String],
    pub(crate) dir: &'o Path,
    pub(crate) json: Option<&'o PathBuf>,
    /// Whether bars are judged.
    pub(crate) judged: bool,
}

/// Takes each figure with `measure`. Whether no bar is missed, or none is judged.
pub(crate) fn take<O: serde::Serialize>(
    asked: &Asked<'_>,
    options: &O,
    measure: impl Fn(&str, &Path, &O) -> Result<Vec<Figure>, AnyError>,
) -> Result<bool, AnyError> {
    let machine = Machine::of_this_run();
    let scratch = Scratch::within(asked.dir)?;
    let judged = asked.judged;
    let mut figures = Vec::new();
    for name in asked.only {
        eprintln!("{name}");
        // Removed at once: the files of one may be in the way of the next.
        let dir = scratch.below(name)?;
        let found = measure(name, &dir.0, options)?;
        found.iter().for_each(|figure| eprintln!("{}", figure.line(judged)));
        figures.extend(found);
    }
    println!("{}", machine.line());
    figures.iter().for_each(|figure| println!("{}", figure.line(judged)));
    if let Some(file) = asked.json {
        let json = serde_json::json!({ "machine": machine, "settings": options, "judged": judged, "figures": figures });
        let json = serde_json::to_vec_pretty(&json)?;
        std::fs::write(file, json).map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!judged || figures.iter().all(Figure::is_met))
}

/// The number that `option` was given.
pub(crate) fn number(option: &str, text: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("{option} takes a whole number from {min} to {max}, not `{text}`"))
}

/// The figures that are listed, each one of `all`.
pub(crate) fn names(list: &str, all: &[&str]) -> Result<Vec<String>, String> {
    let known = |name: &str| {
        let known = all.contains(&name);
        if known { Ok(name.to_owned()) } else { Err(format!("unknown figure `{name}`; there are: {}", all.join(", "))) }
    };
    list.split(',').map(known).collect()
}
