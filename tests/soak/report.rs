//! What a run has shown, for a reader: figures, pictures, and what was done when.

use std::{fmt::Write, fs, path::Path};

use serde::Serialize;

use crate::{
    AnyError,
    options::Options,
    plots::{Plot, plots},
    run::Outcome,
};

/// What a run has shown, as `cargo xtask campaign` keeps it.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    /// `soak` or `points`.
    pub(crate) kind: &'static str,
    pub(crate) store: String,
    pub(crate) transport: String,
    /// Names and what was counted, in the order in which they are shown.
    pub(crate) figures: Vec<(String, String)>,
    pub(crate) verdict: String,
}

/// Nothing was found that is wrong, and all was met that had to be.
pub(crate) const WELL: &str = "Nothing lost, nothing twice.";

impl Figures {
    /// To standard output, and into `folder` as `figures.json`.
    pub(crate) fn keep(&self, folder: &Path) -> Result<(), AnyError> {
        println!("{}", self.table());
        put(&folder.join("figures.json"), serde_json::to_string_pretty(self)? + "\n")
    }

    fn table(&self) -> String {
        let mut text = format!("| {} and {} | |\n| --- | ---: |\n", self.store, self.transport);
        for (name, figure) in &self.figures {
            // Writing to a string does not fail.
            let _ = writeln!(text, "| {name} | {figure} |");
        }
        text + "\n" + &self.verdict + "\n"
    }
}

fn unwritten(place: &Path, why: &std::io::Error) -> AnyError {
    format!("{}: {why}: name a folder that can be written to, with --report", place.display()).into()
}

/// Before a run: one that cannot be told of is not begun.
pub(crate) fn prepare(folder: &Path) -> Result<(), AnyError> {
    fs::create_dir_all(folder).map_err(|e| unwritten(folder, &e))
}

fn put(file: &Path, text: String) -> Result<(), AnyError> {
    fs::write(file, text).map_err(|e| unwritten(file, &e))
}

/// Writes `report.md`, `figures.json` and the plots into `folder`, and the figures to standard output.
pub(crate) fn write(options: &Options, outcome: &Outcome) -> Result<(), AnyError> {
    let (folder, title) = (options.report(), format!("{} and {}", options.store, options.transport));
    let figures = figures(options, outcome);
    figures.keep(&folder)?;
    let mut text = format!("# Soak: {title}\n\n{}\n", figures.table());
    for Plot { file, shows, svg } in plots(&title, outcome)? {
        writeln!(text, "![{shows}]({file})\n")?;
        put(&folder.join(file), svg)?;
    }
    text.push_str("## What was done\n\n");
    for event in &outcome.events {
        writeln!(text, "* {:.1} s: {}", event.at.as_secs_f64(), event.what)?;
    }
    put(&folder.join("report.md"), text)?;
    println!("report: {}", folder.join("report.md").display());
    Ok(())
}

fn figures(options: &Options, outcome: &Outcome) -> Figures {
    let Outcome { books, counts, done, .. } = outcome;
    let mut rows = vec![
        ("seed".to_owned(), outcome.seed.to_string()),
        ("seconds".to_owned(), format!("{:.0}", outcome.lasted.as_secs_f64())),
    ];
    rows.extend(books.named().map(|(name, count)| (name.to_owned(), count.to_string())));
    rows.extend([
        ("workers killed".to_owned(), done.kills.to_string()),
        ("workers that stood still".to_owned(), done.stalls.to_string()),
        ("workers replaced by the other version".to_owned(), done.replaced.to_string()),
        ("steps of the clock".to_owned(), outcome.clock_steps.to_string()),
    ]);
    rows.extend(counts.named().into_iter().map(|(name, count)| (name.to_owned(), count.to_string())));
    rows.extend(outcome.server_kills.iter().map(|(side, kills)| (format!("{side} killed"), kills.to_string())));
    for (side, troubles) in &outcome.met {
        rows.extend(troubles.iter().map(|(kind, count)| (format!("{kind}, to the {side}"), count.to_string())));
    }
    let verdict = match (&*books.faults, &*outcome.unmet) {
        ([], []) => WELL.to_owned(),
        ([], unmet) => format!("Void: there were no {}.", unmet.join(", ")),
        (faults, _) => format!("**Wrong**: {}", faults.join("; ")),
    };
    let (store, transport) = (options.store.to_string(), options.transport.to_string());
    Figures { kind: "soak", store, transport, figures: rows, verdict }
}
