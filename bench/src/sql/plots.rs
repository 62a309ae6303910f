//! How speed, latency and cost go with messages in flight and with entities: tables and plots for readers.

use std::{fmt::Write, fs, path::Path};

use super::{
    Kind, Load, Options, Place, anchor, candidate,
    cases::{in_place, load},
};
use crate::{
    AnyError,
    measure::{Machine, Sample, Spread},
    plot::{
        Corner::{LowerRight, UpperLeft, UpperRight},
        Line, Plot,
    },
    run::{Run, Shape},
};

/// In flight of hapax, and connections of the hand-written loops, which have one message in flight each.
const IN_FLIGHT: [usize; 6] = [1, 8, 32, 128, 512, 2048];
const CLIENTS: [usize; 4] = [1, 4, 16, 64];
const ENTITIES: [u32; 6] = [1, 10, 100, 1000, 10_000, 200_000];

const HAPAX: &str = "hapax";
const CLASSIC: &str = "transaction with a lock, by hand";
const SINGLE: &str = "message by message, by hand";

/// Who runs, and what is changed from the usual load.
#[derive(Debug, Clone, Copy)]
struct Point {
    series: &'static str,
    /// Messages in flight, or entities.
    x: f64,
    in_flight: usize,
    entities: u32,
}

/// What came of it in each round.
#[derive(Debug)]
struct Measured {
    point: Point,
    samples: Vec<Sample>,
}

/// Measures everything and writes the page and its plots into `dir`.
pub(super) fn write<P: Place>(dir: &Path, options: &Options, machine: &Machine, version: &str) -> Result<(), AnyError> {
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let usual = load(options, 1).shape;
    let flights = flights(&usual);
    let many = entities(P::KIND, &usual);
    let by_flight = measured::<P>(options, &flights)?;
    let by_entities = measured::<P>(options, &many)?;
    let plots = [
        ("throughput", "Messages a second", "in flight", "messages / s", LowerRight, &by_flight, rate as Of),
        ("entities", "Messages a second, saturated", "entities", "messages / s", LowerRight, &by_entities, rate),
        ("latency-p50", "Half of the messages took at most", "in flight", "ms", UpperLeft, &by_flight, p50),
        ("latency-p99", "99 % of the messages took at most", "in flight", "ms", UpperLeft, &by_flight, p99),
        ("cost", "CPU of client and server for a message", "in flight", "µs", UpperRight, &by_flight, cost),
    ];
    let mut page = head(P::KIND, options, machine, version);
    for (name, title, x, y, legend, measured, of) in plots {
        let file = format!("{}-{name}.svg", P::KIND.command);
        let plot = Plot { title: title.to_owned(), x, y, legend, lines: lines(measured, of) };
        save(&dir.join(&file), &plot.svg()?)?;
        write!(page, "\n## {title}\n\n![{title}]({file})\n\n{}", table(measured, x, y, of))?;
    }
    save(&dir.join(format!("{}.md", P::KIND.command)), &page)
}

fn save(path: &Path, text: &str) -> Result<(), AnyError> {
    eprintln!("writes {}", path.display());
    Ok(fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?)
}

fn flights(usual: &Shape) -> Vec<Point> {
    let point = |series, in_flight: usize| Point { series, x: in_flight as f64, in_flight, entities: usual.entities };
    let mut points: Vec<Point> = IN_FLIGHT.map(|in_flight| point(HAPAX, in_flight)).to_vec();
    points.extend([CLASSIC, SINGLE].iter().flat_map(|series| CLIENTS.map(|clients| point(series, clients))));
    points
}

fn entities(kind: &Kind, usual: &Shape) -> Vec<Point> {
    let point = |series, entities| Point { series, x: f64::from(entities), in_flight: usual.in_flight, entities };
    [HAPAX, kind.batched].iter().flat_map(|series| ENTITIES.map(|entities| point(series, entities))).collect()
}

/// All points once in each round, so that each meets the same neighbours.
fn measured<P: Place>(options: &Options, points: &[Point]) -> Result<Vec<Measured>, AnyError> {
    let mut all: Vec<Measured> = points.iter().map(|point| Measured { point: *point, samples: Vec::new() }).collect();
    for round in 1..=options.rounds {
        for Measured { point, samples } in &mut all {
            let Run { sample, .. } = run::<P>(options, round as u64, point)?;
            let Point { series, x, .. } = point;
            eprintln!("  {round}/{} {series}, {x}: {:.0}/s {:.1} us", options.rounds, sample.rate(), sample.cpu_us());
            samples.push(sample);
        }
    }
    Ok(all)
}

fn run<P: Place>(options: &Options, round: u64, point: &Point) -> Result<Run, AnyError> {
    let usual = load(options, round);
    let shape = Shape { entities: point.entities, in_flight: point.in_flight, ..usual.shape };
    let single = Load { shape: Shape { batch: 1, ..shape }, clients: point.in_flight, ..usual.clone() };
    match point.series {
        HAPAX => {
            let load = Load { shape: Shape { timed: true, ..shape }, ..usual };
            in_place(options, "hapax", async |place: &P| candidate::run(place, &load).await)
        }
        CLASSIC => in_place(options, "loop", async |place: &P| anchor::classic(place, &single).await),
        SINGLE => in_place(options, "loop", async |place: &P| anchor::unbatched(place, &single).await),
        _ => {
            // Each connection owns at least one entity.
            let load = Load { shape, clients: usual.clients.min(point.entities as usize), ..usual };
            in_place(options, "loop", async |place: &P| anchor::batched(place, &load).await)
        }
    }
}

type Of = fn(&Sample) -> Option<f64>;

fn rate(sample: &Sample) -> Option<f64> {
    Some(sample.rate())
}

fn p50(sample: &Sample) -> Option<f64> {
    sample.median_seconds.map(|seconds| seconds * 1e3)
}

fn p99(sample: &Sample) -> Option<f64> {
    sample.p99_seconds.map(|seconds| seconds * 1e3)
}

fn cost(sample: &Sample) -> Option<f64> {
    Some(sample.cpu_us())
}

fn spread(measured: &Measured, of: Of) -> Option<Spread> {
    Spread::of(measured.samples.iter().filter_map(of))
}

fn lines(measured: &[Measured], of: Of) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for each in measured {
        let Some(Spread { median, .. }) = spread(each, of) else { continue };
        let point = (each.point.x, median);
        match lines.iter_mut().find(|line| line.name == each.point.series) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name: each.point.series.to_owned(), points: vec![point] }),
        }
    }
    lines
}

fn table(measured: &[Measured], x: &str, y: &str, of: Of) -> String {
    let mut table = format!("| | {x} | {y}: median | smallest | largest |\n| --- | --: | --: | --: | --: |\n");
    for each in measured {
        let Some(Spread { median, min, max }) = spread(each, of) else { continue };
        let Point { series, x, .. } = each.point;
        let [median, min, max] = [median, min, max].map(figure);
        table.push_str(&format!("| {series} | {x} | {median} | {min} | {max} |\n"));
    }
    table
}

fn figure(value: f64) -> String {
    match value {
        large if large >= 1000.0 => format!("{large:.0}"),
        small if small < 10.0 => format!("{small:.2}"),
        value => format!("{value:.1}"),
    }
}

fn head(kind: &Kind, options: &Options, machine: &Machine, version: &str) -> String {
    let (rounds, seconds) = (options.rounds, options.time.as_secs_f64());
    let Kind { command, title, batches, .. } = kind;
    let many = batches.trim_end_matches(" of 100");
    format!(
        "# {title}: speed, latency and cost\n\n\
         Written by `cargo xtask bench {command} --plots --rounds {rounds} --seconds {seconds}` on {}, hapax {}, {}, \
         {title} {version}; client and server on the same machine. Medians over {rounds} rounds of {seconds} s; figures \
         of different pages are not comparable, since a machine has neighbours.\n\n\
         Workload: {} entities unless said otherwise, bodies and states of 200 bytes, one outgoing message for each, 5 % \
         repeats, durable when confirmed. After each run every id had its effect once, or there is no figure. hapax runs \
         with its defaults; its messages are timed from the receipt to the settlement. By hand: loops on the same driver, \
         one message in flight for each connection, or 100 where there are {many}; the transaction with a lock does not \
         send what it stores, the others do.\n",
        machine.date(),
        env!("CARGO_PKG_VERSION"),
        machine.line(),
        load(options, 1).shape.entities
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_medians_of_its_series_and_leaves_out_what_has_no_figure() {
        let sample =
            |deliveries, median| Sample { seconds: 1.0, deliveries, median_seconds: median, ..Sample::default() };
        let usual = Point { series: HAPAX, x: 8.0, in_flight: 8, entities: 1 };
        let measured = [
            Measured {
                point: usual,
                samples: vec![sample(3, Some(0.001)), sample(1, Some(0.003)), sample(2, Some(0.002))],
            },
            Measured { point: Point { series: "batches", ..usual }, samples: vec![sample(9, None)] },
        ];
        let rates = lines(&measured, rate);
        assert_eq!((rates.len(), rates[0].points[0], rates[1].points[0]), (2, (8.0, 2.0), (8.0, 9.0)));
        let times = lines(&measured, p50);
        assert_eq!((times.len(), times[0].points[0]), (1, (8.0, 2.0)));
        assert!(table(&measured, "in flight", "ms", p50).contains("| hapax | 8 | 2.00 | 1.00 | 3.00 |"));
    }
}
