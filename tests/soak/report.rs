//! What a run has shown, for a reader: figures, a picture, and what was done when.

use std::{fmt::Write, fs, path::Path};

use serde::Serialize;

use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, RGBColor, Rectangle, SVGBackend, TRANSPARENT,
};

use crate::{AnyError, options::Options, run::Outcome};

const SIZE: (u32, u32) = (900, 320);
const LINE: RGBColor = RGBColor(0x22, 0x8b, 0xe6);
const INK: RGBColor = RGBColor(0x6b, 0x74, 0x7e);
const AWAY: RGBColor = RGBColor(0xd6, 0x33, 0x6c);

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

/// Writes `report.md`, `figures.json` and `throughput.svg` into `folder`, and the figures to standard output.
pub(crate) fn write(options: &Options, outcome: &Outcome) -> Result<(), AnyError> {
    let (folder, title) = (options.report(), format!("{} and {}", options.store, options.transport));
    let figures = figures(options, outcome);
    figures.keep(&folder)?;
    let mut text =
        format!("# Soak: {title}\n\n{}\n![messages a second](throughput.svg)\n\n## What was done\n\n", figures.table());
    for event in &outcome.events {
        writeln!(text, "* {:.1} s: {}", event.at.as_secs_f64(), event.what)?;
    }
    put(&folder.join("report.md"), text)?;
    put(&folder.join("throughput.svg"), plot(&title, outcome)?)?;
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

/// Messages that came out in each second; red where a server was away.
fn plot(title: &str, outcome: &Outcome) -> Result<String, AnyError> {
    let pairs = outcome.samples.windows(2);
    let points: Vec<(f64, f64)> = pairs
        .map(|pair| {
            let seconds = (pair[1].at - pair[0].at).as_secs_f64().max(f64::EPSILON);
            (pair[1].at.as_secs_f64(), (pair[1].out - pair[0].out) as f64 / seconds)
        })
        .collect();
    let end = outcome.samples.last().map_or(1.0, |sample| sample.at.as_secs_f64());
    let most = points.iter().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let failed = |e: &dyn std::fmt::Display| AnyError::from(e.to_string());
        let label = ("sans-serif", 13).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&area)
            .caption(format!("{title}: messages a second"), ("sans-serif", 18).into_font().color(&INK))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, 0.0..most)
            .map_err(|e| failed(&e))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.2))
            .axis_style(INK)
            .label_style(label)
            .x_desc("seconds")
            .draw()
            .map_err(|e| failed(&e))?;
        let away = away(outcome)
            .into_iter()
            .map(|(from, to)| Rectangle::new([(from, 0.0), (to.min(end), most)], AWAY.mix(0.15).filled()));
        chart.draw_series(away).map_err(|e| failed(&e))?;
        chart.draw_series(LineSeries::new(points, LINE.stroke_width(1))).map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(text)
}

/// When a server was away, from and to, in seconds.
fn away(outcome: &Outcome) -> Vec<(f64, f64)> {
    let mut spans = Vec::new();
    for side in ["store", "transport"] {
        let (killed, back) = (format!("the {side} is killed"), format!("the {side} answers again"));
        let mut since = None;
        for event in &outcome.events {
            if event.what == killed {
                since = Some(event.at.as_secs_f64());
            } else if event.what == back {
                spans.extend(since.take().map(|from| (from, event.at.as_secs_f64())));
            }
        }
    }
    spans
}
