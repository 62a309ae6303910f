//! Time of one message on an endpoint that has nothing else to do, in memory: from before it is sent until it is settled, or until its
//! sender has the answer. Whoever sends is on another thread and rests between two messages, so that both sides have gone to sleep
//! and are woken, as on an endpoint that is idle.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use hapax::{
    InProcess, Memory, Message, RequestClient,
    ids::{EndpointName, TypeName},
    ports::Dispatcher,
};

use super::{balanced, options::Options, runtime};
use crate::{
    AnyError,
    candidate::{
        endpoint::{ENDPOINT, outgoing, run},
        in_books,
    },
    cases::Case,
    figure::{Figure, percentile},
    measure::{Sample, Window, wait_for_threads},
    run::{Run, Shape},
    workload::{Asked, Changed, Deposit, Workload},
};

/// Half of the messages may take so long.
const MEDIAN_MAX_US: f64 = 200.0;
/// Between two messages.
const REST: Duration = Duration::from_millis(1);
/// Messages before the first that is timed.
const WARM_UP: usize = 100;
/// Far beyond any answer here.
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub(super) fn measure(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let [mut settled, mut answered] = [Times::default(), Times::default()];
    for number in 1..=options.rounds {
        let settings = crate::options::Options { time: options.time(), ..crate::options::Options::default() };
        let shape = Shape { seed: number as u64, in_flight: 1, repeats: 0.0, ..Case::C5.shape(&settings) };
        wait_for_threads();
        settled.add("settled", idle(shape, by_message)?)?;
        wait_for_threads();
        answered.add("answered", idle(shape, by_request)?)?;
        let last = |times: &[f64]| times.last().copied().unwrap_or(f64::NAN);
        let (s, a) = (last(&settled.median), last(&answered.median));
        eprintln!("  {number}/{}: settled after {s:.0} us, answered after {a:.0} us", options.rounds);
    }
    Ok([settled.figures("settled"), answered.figures("answered")].into_iter().flatten().collect())
}

/// Microseconds, of each round.
#[derive(Default)]
struct Times {
    median: Vec<f64>,
    p99: Vec<f64>,
}

impl Times {
    fn add(&mut self, name: &str, run: Run) -> Result<(), AnyError> {
        balanced(name, &run)?;
        let us = |seconds: Option<f64>| seconds.map_or(f64::NAN, |seconds| seconds * 1e6);
        self.median.push(us(run.sample.median_seconds));
        self.p99.push(us(run.sample.p99_seconds));
        Ok(())
    }

    fn figures(self, until: &str) -> [Figure; 2] {
        [
            Figure::of(format!("latency: half of the messages are {until} within"), "us", self.median)
                .median_at_most(MEDIAN_MAX_US),
            Figure::of(format!("latency: 99 in a hundred are {until} within"), "us", self.p99),
        ]
    }
}

/// Runs an endpoint while `send` sends from another thread.
fn idle<F>(shape: Shape, send: fn(InProcess, Shape) -> F) -> Result<Run, AnyError>
where
    F: Future<Output = Result<(Sample, u64), AnyError>> + 'static,
{
    runtime()?.block_on(async {
        let (hub, store) = (InProcess::new(ENDPOINT), Memory::new());
        let transport = std::sync::Arc::new(hub.clone());
        let done = run(store.clone(), transport, &shape, async move |_| {
            tokio::task::spawn_blocking(move || runtime()?.block_on(send(hub, shape))).await?
        });
        in_books(&store, done.await?)
    })
}

/// Sends a message, and waits until the queue is empty.
async fn by_message(hub: InProcess, shape: Shape) -> Result<(Sample, u64), AnyError> {
    let (queue, message_type) = (EndpointName::parse(ENDPOINT)?, TypeName::parse(Deposit::TYPE)?);
    one_at_a_time(shape, async |workload: &mut Workload| {
        let message = [outgoing(&queue, &message_type, workload.next())];
        let begun = Instant::now();
        for result in hub.dispatch(&message).await {
            result?;
        }
        hub.idle().await;
        Ok(begun.elapsed())
    })
    .await
}

/// Asks, and waits for the answer.
async fn by_request(hub: InProcess, shape: Shape) -> Result<(Sample, u64), AnyError> {
    let client = RequestClient::builder("bench-client").transport(hub).start().await?;
    let done = one_at_a_time(shape, async |workload: &mut Workload| {
        let asked = Asked::of(&workload.next())?;
        let begun = Instant::now();
        let _: Changed = client.request(ENDPOINT, &asked, ANSWER_MAX).await?;
        Ok(begun.elapsed())
    })
    .await;
    client.stop().await;
    done
}

async fn one_at_a_time(
    shape: Shape,
    mut send: impl AsyncFnMut(&mut Workload) -> Result<Duration, AnyError>,
) -> Result<(Sample, u64), AnyError> {
    let mut workload = shape.workload();
    for _ in 0..WARM_UP {
        send(&mut workload).await?;
    }
    let (mut times, window, end) = (Vec::new(), Window::open(), Instant::now() + shape.time);
    while Instant::now() < end {
        tokio::time::sleep(REST).await;
        times.push(send(&mut workload).await?.as_secs_f64());
    }
    let mut sample = window.close(times.len() as u64);
    (sample.median_seconds, sample.p99_seconds) = (percentile(&mut times, 50), percentile(&mut times, 99));
    Ok((sample, workload.distinct))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shape() -> Shape {
        let settings =
            crate::options::Options { time: Duration::from_millis(50), ..crate::options::Options::default() };
        Shape { in_flight: 1, repeats: 0.0, ..Case::C5.shape(&settings) }
    }

    #[test]
    fn messages_and_requests_are_timed_and_have_their_effect_once() {
        for run in [idle(shape(), by_message).unwrap(), idle(shape(), by_request).unwrap()] {
            let mut times = Times::default();
            times.add("run", run).unwrap();
            assert!(times.median[0] > 0.0 && times.p99[0] >= times.median[0], "{run:?}");
            assert_eq!(run.books.distinct, run.sample.deliveries + WARM_UP as u64);
        }
    }

    #[test]
    fn a_median_beyond_the_bar_is_missed_whatever_the_rest_is() {
        let figures = |median| Times { median, p99: vec![1e6] }.figures("settled");
        assert!(figures(vec![20.0, 200.0, 900.0])[0].is_met());
        assert!(!figures(vec![20.0, 201.0, 900.0])[0].is_met());
        assert!(figures(vec![201.0])[1].is_met(), "only shown");
    }
}
