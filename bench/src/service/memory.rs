//! Resident memory over a great many messages.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::{Figure, Options};
use crate::{
    AnyError, candidate, cases::Case, measure::resident, options::Options as Rates, run::Shape, template::with_file,
};

/// What may come on top of a tenth more: the allocator's and the page caches' share that fills late.
const SLACK_MIB: f64 = 16.0;
/// Bytes of a filter for each dedup entry, which the store's documentation says.
const FILTER_BYTES: f64 = 2.0;

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    with_file(dir, None, |path| {
        let samples = Sampler::start();
        let run = runtime.block_on(candidate::sqlite(path, &shape(options.messages)))?;
        let samples = samples.stop();
        if let Some(problem) = run.books.problem() {
            return Err(problem.into());
        }
        let (early, late) = (samples.get(samples.len() / 10).copied(), samples.last().copied());
        let (Some(early), Some(late)) = (early, late) else { return Err("there were no messages".into()) };
        let filters = options.messages as f64 * FILTER_BYTES / f64::from(1 << 20);
        let excess = late - early * 1.1 - SLACK_MIB - filters;
        let size = std::fs::metadata(path)?.len() as f64 / f64::from(1 << 20);
        let of = format!("of {} messages", options.messages);
        Ok(vec![
            Figure::new(format!("memory after a tenth {of}"), "MiB", None, vec![early]),
            Figure::new(format!("memory after all {of}"), "MiB", None, vec![late]),
            Figure::new("memory beyond a tenth more, 16 MiB and the filters", "MiB", Some(0.0), vec![excess]),
            Figure::new("size of the file", "MiB", None, vec![size]),
        ])
    })
}

/// The saturated workload, until so many deliveries are done.
fn shape(messages: u64) -> Shape {
    const FOR_EVER: Duration = Duration::from_secs(24 * 3600);
    Shape { time: FOR_EVER, deliveries_max: messages, ..Case::S2.shape(&Rates::default()) }
}

/// Looks at the memory again and again.
struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Sampler {
    fn start() -> Self {
        const EVERY: Duration = Duration::from_millis(200);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                samples.push(resident().now_mib);
                std::thread::sleep(EVERY);
            }
            samples
        });
        Self { stop, thread }
    }

    fn stop(self) -> Vec<f64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
