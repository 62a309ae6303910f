//! How the number of worlds grows with each thing that there may be one more of: a plot in text.

use std::fmt::Write as _;

use hapax_model::{
    explore::{Budgets, Scenario, explore_at_most},
    scenarios::book::{note, scenario},
};

/// Beyond it a row says that there are more: a plot needs no more than its slope.
const WORLDS_MAX: usize = 3_000_000;
/// Bars are this long for each power of ten.
const BAR: f64 = 5.0;

/// One point: how many messages and workers, and what may go wrong.
#[derive(Debug, Clone, Copy)]
struct Point {
    messages: u8,
    workers: usize,
    budgets: Budgets,
}

/// What the others differ from in one thing.
const BASE: Point = Point { messages: 2, workers: 2, budgets: Budgets::NONE };

/// A name, how many at most, and the point with so many.
type Axis = (&'static str, std::ops::RangeInclusive<u8>, fn(u8) -> Point);

const AXES: [Axis; 6] = [
    ("messages", 1..=4, |messages| Point { messages, ..BASE }),
    ("workers", 1..=4, |workers| Point { workers: workers.into(), ..BASE }),
    ("crashes", 0..=4, |crashes| Point { budgets: Budgets { crashes, ..Budgets::NONE }, ..BASE }),
    ("unknown outcomes", 0..=4, |unknown| Point { budgets: Budgets { unknown, ..Budgets::NONE }, ..BASE }),
    ("copies", 0..=4, |duplicates| Point { budgets: Budgets { duplicates, ..Budgets::NONE }, ..BASE }),
    ("of each fault", 0..=2, |each| Point {
        budgets: Budgets { crashes: each, unknown: each, refused: each, duplicates: each, ..Budgets::NONE },
        ..BASE
    }),
];

/// The plot, as Markdown.
///
/// # Errors
/// When the code under test cannot be explored.
pub(crate) fn plot() -> Result<String, String> {
    let mut plot = String::from(
        "Two messages of one entity and two workers, and one thing more or less of. Bars are logarithmic.\n\n```text\n",
    );
    for (name, range, point) in AXES {
        let _ = writeln!(plot, "{name}");
        for number in range {
            let Point { messages, workers, budgets } = point(number);
            let notes = (0..messages).map(|message| note("b", message, 1)).collect();
            let report = explore_at_most(Scenario { budgets, ..scenario(notes, workers) }, WORLDS_MAX)?;
            if let Some(story) = &report.story {
                return Err(format!("{number} {name}: {story}"));
            }
            let more = if report.cut_short { "more than " } else { "" };
            // Worlds are counted in millions at most: no digit that is seen is lost.
            let bar = "#".repeat(((report.states as f64).log10() * BAR).round() as usize);
            let _ = writeln!(plot, "{number:3} {bar} {more}{}", report.states);
        }
    }
    plot.push_str("```\n");
    Ok(plot)
}
