//! What messages that are not due cost those that are: the same run without them and with them, in turn.

use std::path::Path;

use hapax::{InProcess, Memory, ids::EndpointName, ports::Dispatcher};

use super::{balanced, options::Options, runtime};
use crate::{
    AnyError,
    candidate::{
        self,
        endpoint::{ENDPOINT, fed_by},
        in_books,
        queue::pending,
        schedule,
    },
    cases::Case,
    figure::Figure,
    measure::wait_for_threads,
    run::{Run, Shape},
    template::{template, with_file},
    workload::Ids,
};

/// CPU of a message beside them, as a multiple of that of one without.
const CPU_MAX: f64 = 1.05;
/// What a hub takes besides them: its default.
const ROOM: usize = hapax::transports::in_process::MESSAGES_MAX;
/// Messages of one call.
const CHUNK: usize = 1000;

/// In the queues of the process, handled in memory.
pub(super) fn in_process(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let found = rounds(options, Case::C5, |shape| {
        wait_for_threads();
        runtime()?.block_on(beside(shape))
    })?;
    Ok(found.figures("pending", options.pending, "in the process's queues"))
}

/// In a durable queue, handled with a store in the same file.
pub(super) fn in_sqlite(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let found = rounds(options, Case::Queue, |shape| {
        let prepare = |path: &Path| runtime()?.block_on(candidate::prepare(path, shape));
        on_a_copy(dir, shape, prepare, |path| runtime()?.block_on(candidate::sqlite(path, shape)))
    })?;
    Ok(found.figures("pending-queue", options.pending, "in a durable queue"))
}

/// In a schedule, kept by the store in its file; each message that is handled puts one more there. Ids are as hapax gives them, in the order of
/// time: of those in none, each has a page of its own in an index that is large enough.
pub(super) fn in_schedule(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let found = rounds(options, Case::S2, |shape| {
        let shape = &Shape { ids: Ids::Ordered, ..*shape };
        let prepare = |path: &Path| runtime()?.block_on(schedule::prepare(path, shape));
        on_a_copy(dir, shape, prepare, |path| runtime()?.block_on(schedule::run(path, shape)))
    })?;
    Ok(found.figures("pending-schedule", options.pending, "in a schedule"))
}

/// Runs on a copy of the file that `prepare` has made, with or without them.
fn on_a_copy(
    dir: &Path,
    shape: &Shape,
    prepare: impl FnOnce(&Path) -> Result<(), AnyError>,
    run: impl FnOnce(&Path) -> Result<Run, AnyError>,
) -> Result<Run, AnyError> {
    let name = if shape.pending > 0 { "with" } else { "without" };
    let made = template(dir, name, prepare)?;
    with_file(dir, Some(&made), |path| {
        wait_for_threads();
        run(path)
    })
}

/// CPU microseconds of each round.
#[derive(Debug, Default)]
struct Found {
    without: Vec<f64>,
    with: Vec<f64>,
    rate: Vec<f64>,
}

fn rounds(options: &Options, case: Case, run: impl Fn(&Shape) -> Result<Run, AnyError>) -> Result<Found, AnyError> {
    let settings = crate::options::Options { time: options.time(), ..crate::options::Options::default() };
    let mut found = Found::default();
    for number in 1..=options.rounds {
        let without = Shape { seed: number as u64, ..case.shape(&settings) };
        let with = Shape { pending: options.pending, ..without };
        // Now the one first, now the other: what the machine does meanwhile is not to favour either.
        let [first, second] = if number % 2 == 0 { [with, without] } else { [without, with] };
        let (first, second) = (run(&first)?, run(&second)?);
        let [without, with] = if number % 2 == 0 { [second, first] } else { [first, second] };
        balanced("without", &without)?;
        balanced("with", &with)?;
        found.add(&without, &with);
        let (without, with) = (without.sample.cpu_us(), with.sample.cpu_us());
        eprintln!("  {number}/{}: without {without:.2} us, with {with:.2} us", options.rounds);
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, without: &Run, with: &Run) {
        self.without.push(without.sample.cpu_us());
        self.with.push(with.sample.cpu_us());
        self.rate.push(with.sample.rate() / without.sample.rate());
    }

    fn figures(self, name: &str, pending: u64, place: &str) -> Vec<Figure> {
        let ratio = self.with.iter().zip(&self.without).map(|(with, without)| with / without);
        vec![
            Figure::of(
                format!("{name}: CPU of a message beside {pending} that are not due {place} / without"),
                "",
                ratio.collect(),
            )
            .median_at_most(CPU_MAX),
            Figure::of(format!("{name}: CPU of a message without"), "us", self.without),
            Figure::of(format!("{name}: CPU of a message beside them"), "us", self.with),
            Figure::of(format!("{name}: messages a second beside them / without"), "", self.rate),
        ]
    }
}

/// hapax on the reference store, with `shape.pending` in its queue.
async fn beside(shape: &Shape) -> Result<Run, AnyError> {
    let waiting = usize::try_from(shape.pending)?;
    let (hub, store) = (InProcess::new(ENDPOINT).messages_max(ROOM + waiting), Memory::new());
    let mut messages = pending(shape)?;
    loop {
        let chunk: Vec<_> = messages.by_ref().take(CHUNK).collect();
        if chunk.is_empty() {
            break;
        }
        for result in hub.dispatch(&chunk).await {
            result?;
        }
    }
    let done = fed_by(hub.clone(), store.clone(), Box::new(|| None), shape, true).await?;
    let left = hub.backlog(&EndpointName::parse(ENDPOINT)?);
    if left != waiting {
        return Err(format!("void: of {waiting} messages that are not due, {left} are left").into());
    }
    in_books(&store, done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::{Scratch, books::Books, measure::Sample};

    fn options() -> Options {
        Options { rounds: 2, pending: 3000, seconds: 1, ..Options::default() }
    }

    fn run(cpu_seconds: f64) -> Run {
        let sample = Sample { seconds: 1.0, deliveries: 1_000_000, cpu_seconds, ..Sample::default() };
        Run { sample, books: Books::default() }
    }

    #[test]
    fn the_ratio_is_taken_within_a_round_whichever_side_was_first() {
        let begun = std::cell::RefCell::new(Vec::new());
        let found = rounds(&options(), Case::C5, |shape| {
            begun.borrow_mut().push(shape.pending);
            Ok(run(shape.seed as f64 * if shape.pending > 0 { 3.0 } else { 2.0 }))
        })
        .unwrap();
        assert_eq!(begun.into_inner(), [0, 3000, 3000, 0]);
        assert_eq!((&found.without, &found.with), (&vec![2.0, 4.0], &vec![3.0, 6.0]));
        let figures = found.figures("pending", 3000, "here");
        assert!(figures[0].line(true).contains("1.50 [1.50-1.50]"), "{}", figures[0].line(true));
        assert!(!figures[0].is_met());
    }

    #[test]
    fn a_cost_of_a_twentieth_is_met_and_more_is_not() {
        let figures = |with| Found { without: vec![100.0], with: vec![with], rate: vec![1.0] }.figures("p", 1, "");
        assert!(figures(105.0)[0].is_met() && !figures(105.1)[0].is_met());
    }

    #[test]
    fn what_is_not_due_stays_and_the_rest_is_handled_once() {
        let settings =
            crate::options::Options { time: Duration::from_millis(100), ..crate::options::Options::default() };
        let shape = Shape { pending: 3000, ..Case::C5.shape(&settings) };
        let run = runtime().unwrap().block_on(beside(&shape)).unwrap();
        assert_eq!(run.books.problem(), None);
        assert!(run.sample.deliveries > 0);
    }

    #[test]
    fn what_is_not_due_stays_in_a_durable_queue_or_the_run_is_void() {
        let settings =
            crate::options::Options { time: Duration::from_millis(100), ..crate::options::Options::default() };
        let shape = Shape { pending: 3000, ..Case::Queue.shape(&settings) };
        let dir = Scratch::create(std::env::temp_dir().join(format!("hapax-bench-pending-{}", std::process::id())));
        let path = dir.as_ref().unwrap().0.join("bench.db");
        runtime().unwrap().block_on(async {
            candidate::prepare(&path, &shape).await.unwrap();
            let run = candidate::sqlite(&path, &shape).await.unwrap();
            assert_eq!(run.books.problem(), None);
            let problem = candidate::sqlite(&path, &Shape { pending: 3001, ..shape }).await.unwrap_err().to_string();
            assert!(problem.ends_with("3000 are left"), "{problem}");
        });
    }

    #[test]
    fn what_is_not_due_stays_in_a_schedule_with_one_more_for_each_message_or_the_run_is_void() {
        let settings =
            crate::options::Options { time: Duration::from_millis(100), ..crate::options::Options::default() };
        let shape = Shape { pending: 3000, ..Case::S2.shape(&settings) };
        let dir = Scratch::create(std::env::temp_dir().join(format!("hapax-bench-schedule-{}", std::process::id())));
        let path = dir.as_ref().unwrap().0.join("bench.db");
        runtime().unwrap().block_on(async {
            schedule::prepare(&path, &shape).await.unwrap();
            let run = schedule::run(&path, &shape).await.unwrap();
            assert_eq!(run.books.problem(), None);
            assert!(run.books.effects > 0);
            let more = Shape { pending: 3001, ..shape };
            let problem = schedule::run(&path, &more).await.unwrap_err().to_string();
            assert!(problem.starts_with("void: of "), "{problem}");
        });
    }
}
