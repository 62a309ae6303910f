//! Stories of the explorer as pictures: each step of `model/stories/NAME.md` as a call of one of two workers.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::process;

/// Those that a page shows.
const DRAWN: [&str; 9] = [
    "ack-first",
    "add-before-dispatch",
    "assume-saved",
    "clean-up-before-add",
    "dedup-first",
    "dispatch-before-save",
    "drops-entries-of-others",
    "no-compare-and-set",
    "rerun-with-entry",
];
/// Where they are.
const PLACE: &str = "docs/tasks/stories";
/// How they are made anew.
const REMEDY: &str = "cargo xtask book --draw";

const WIDTH: u32 = 940;
const HEAD: u32 = 44;
const STEP: u32 = 46;
const NOTE: u32 = 28;
/// Where the lines of the first worker, of stores and broker, and of the second worker are.
const LINES: [u32; 3] = [24, WIDTH / 2, WIDTH - 24];
/// Letters that have room between two of them.
const ROOM: usize = 70;

/// One step of a story.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    /// A worker calls, and is answered unless it dies.
    Call { second: bool, call: &'a str, answer: Option<&'a str> },
    /// Something happens to a worker.
    Happens { second: bool, what: &'a str },
    /// Something happens beside both.
    Beside(&'a str),
}

/// Draws all of them anew.
///
/// # Errors
/// A story that is not there, or a file that cannot be written.
pub(super) fn write() -> Result<String, String> {
    std::fs::create_dir_all(process::root().join(PLACE)).map_err(|error| format!("{PLACE}: {error}"))?;
    for name in DRAWN {
        let path = picture(name);
        std::fs::write(&path, figure(&steps(&story(name)?))).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(format!("{} stories", DRAWN.len()))
}

/// Pictures that are not what would be drawn now.
///
/// # Errors
/// A story that is not there.
pub(super) fn stale() -> Result<Vec<String>, String> {
    let mut stale = Vec::new();
    for name in DRAWN {
        let is = std::fs::read_to_string(picture(name)).unwrap_or_default();
        if is != figure(&steps(&story(name)?)) {
            stale.push(format!("{PLACE}/{name}.svg: not the story as it is told now: `{REMEDY}`"));
        }
    }
    Ok(stale)
}

fn picture(name: &str) -> PathBuf {
    process::root().join(PLACE).join(name).with_extension("svg")
}

fn story(name: &str) -> Result<String, String> {
    super::read(&format!("model/stories/{name}.md"))
}

/// The numbered lines.
fn steps(story: &str) -> Vec<Step<'_>> {
    let numbered = story.lines().filter_map(|line| {
        let (number, step) = line.split_once(". ")?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(step)
    });
    numbered.map(step).collect()
}

fn step(said: &str) -> Step<'_> {
    let worker = |name: &str| match name {
        "w1" => Some(false),
        "w2" => Some(true),
        _ => None,
    };
    if let Some((name, what)) = said.strip_prefix("worker ").and_then(|rest| rest.split_once(' '))
        && let Some(second) = worker(name)
    {
        return Step::Happens { second, what };
    }
    let called = said.split_once(' ').and_then(|(name, rest)| Some((worker(name)?, rest.split_once(": ")?.1)));
    match called {
        Some((second, call)) => match call.split_once(" -> ") {
            Some((call, answer)) => Step::Call { second, call, answer: Some(answer) },
            None => Step::Call { second, call, answer: None },
        },
        None => Step::Beside(said),
    }
}

fn figure(steps: &[Step<'_>]) -> String {
    let height = steps.iter().map(|step| if matches!(step, Step::Call { .. }) { STEP } else { NOTE }).sum::<u32>();
    let (height, bottom) = (HEAD + height + 12, HEAD + height);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (x, name, anchor) in
        [(LINES[0], "worker 1", "start"), (LINES[1], "stores, broker", "middle"), (LINES[2], "worker 2", "end")]
    {
        let at = if anchor == "middle" {
            x
        } else if anchor == "start" {
            x - 12
        } else {
            x + 12
        };
        line(&mut svg, [x, 28, x, bottom], "#bbb", "");
        text(&mut svg, at, 18, anchor, "#222", true, name);
    }
    let mut y = HEAD;
    for (number, step) in (1..).zip(steps) {
        let is_last = number == steps.len();
        let tall = if matches!(step, Step::Call { .. }) { STEP } else { NOTE };
        if is_last {
            let _ = writeln!(svg, "<rect y=\"{}\" width=\"{WIDTH}\" height=\"{tall}\" fill=\"#fde8e8\"/>", y - 6);
        }
        match *step {
            Step::Happens { second, what } => {
                let (x, anchor) = side(second);
                text(&mut svg, x, y + 10, anchor, "#555", false, &format!("{number}. {what}"));
            }
            Step::Beside(what) => {
                text(&mut svg, LINES[1], y + 10, "middle", "#555", false, &format!("{number}. {what}"))
            }
            Step::Call { second, call, answer } => {
                let (x, anchor) = side(second);
                let from = if second { LINES[2] } else { LINES[0] };
                text(&mut svg, x, y + 8, anchor, "#111", false, &format!("{number}. {call}"));
                arrow(&mut svg, from, LINES[1], y + 13, "#333", "");
                if let Some(answer) = answer {
                    let failed = ["fails", "not all", "conflict"].iter().any(|word| answer.starts_with(word));
                    let colour = if failed { "#b00" } else { "#06c" };
                    text(&mut svg, x, y + 28, anchor, colour, false, answer);
                    arrow(&mut svg, LINES[1], from, y + 33, colour, " stroke-dasharray=\"4 3\"");
                }
            }
        }
        y += tall;
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where a worker's words begin, and in which direction they go.
const fn side(second: bool) -> (u32, &'static str) {
    if second { (LINES[2] - 12, "end") } else { (LINES[0] + 12, "start") }
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [u32; 4], colour: &str, more: &str) {
    let _ = writeln!(svg, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{colour}\"{more}/>");
}

fn arrow(svg: &mut String, from: u32, to: u32, y: u32, colour: &str, more: &str) {
    line(svg, [from, y, to, y], colour, more);
    let back = if from < to { to - 7 } else { to + 7 };
    let _ =
        writeln!(svg, "<path d=\"M{back} {} L{to} {y} L{back} {}\" fill=\"none\" stroke=\"{colour}\"/>", y - 4, y + 4);
}

fn text(svg: &mut String, x: u32, y: u32, anchor: &str, colour: &str, bold: bool, said: &str) {
    let said = match said.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}…", said[..end].trim_end()),
        None => said.to_owned(),
    };
    let said = said.replace('&', "&amp;").replace('<', "&lt;");
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{colour}\"{weight}>{said}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_is_read_step_by_step() {
        let story = "# name\n\n1. worker w1 is given m0\n2. w1 m0: load -> nothing; seen []\n3. w2 m1 crash\n4. the dedup store forgets m0\n\n\
                     Written by\n";
        assert_eq!(
            steps(story),
            [
                Step::Happens { second: false, what: "is given m0" },
                Step::Call { second: false, call: "load", answer: Some("nothing; seen []") },
                Step::Beside("w2 m1 crash"),
                Step::Beside("the dedup store forgets m0"),
            ]
        );
    }

    #[test]
    fn what_a_story_says_cannot_break_its_picture() {
        let svg = figure(&[Step::Call { second: true, call: "a < b & c", answer: None }]);
        assert!(svg.contains("1. a &lt; b &amp; c") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
