//! Memory that keys leave behind which are not used any more: in a process of its own, which does nothing else, with a store that
//! keeps nothing of them.
//!
//! Each message is for a key of its own and for two sagas; one sends, one has nothing to send. One handler in a hundred fails at first
//! and is tried again later, and some messages are not due at once. So they go through all that an endpoint remembers anything in.

use std::{
    io::Read,
    ops::Range,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Message, MessageId, Saga,
    deliver::{Recoverability, Tries},
    endpoint::Settings,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    metrics::{Ending, Event, Metrics},
    ports::Dispatcher,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{
    options::Options,
    recent::{Counts, Recent},
    runtime,
};
use crate::{AnyError, figure::Figure, measure::resident, program::Program};

/// The argument that makes this program the process in question.
pub(crate) const ROLE: &str = "endpoint-keys";
/// So many messages come before what is judged begins, as a part of the keys that follow: whatever has a limit is at it.
const BEFORE: u64 = 10;
/// A byte for each key: what keeps anything at all of each keeps more.
const BYTES_MAX: f64 = 1.0;
/// Messages that are sent at a time; the next when these are over.
const CHUNK: u64 = 2048;
/// One handler in so many fails at first.
const FAILS: u64 = 100;
/// One message in so many is not due at once.
const DELAYED: u64 = 16;
const DELAY: Duration = Duration::from_millis(2);
const ENDPOINT: &str = "keys";

/// To be handled by both sagas.
#[derive(Debug, Serialize, Deserialize)]
struct Touch {
    key: String,
}

impl Message for Touch {
    const TYPE: &'static str = "bench.touch";
}

/// Nobody subscribes to it.
#[derive(Debug, Serialize, Deserialize)]
struct Touched {
    key: String,
}

impl Message for Touched {
    const TYPE: &'static str = "bench.touched";
}

/// One that sends.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Loud {
    touched: u64,
}

/// One that does not.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Still {
    touched: u64,
}

impl Saga for Loud {
    const NAME: &'static str = "loud";
}

impl Saga for Still {
    const NAME: &'static str = "still";
}

impl Handle<Touch> for Loud {
    fn correlate(touch: &Touch) -> Correlation<'_> {
        (&touch.key).into()
    }

    async fn handle(&mut self, touch: Touch, cx: &mut Context) -> Result<(), HandlerError> {
        let calls = cx.get::<Arc<Calls>>()?;
        if calls.begun.fetch_add(1, Ordering::Relaxed).is_multiple_of(FAILS) {
            return Err(HandlerError::transient("it fails now and then"));
        }
        calls.done.fetch_add(1, Ordering::Relaxed);
        self.touched += 1;
        cx.publish(Touched { key: touch.key })
    }
}

impl Handle<Touch> for Still {
    fn correlate(touch: &Touch) -> Correlation<'_> {
        (&touch.key).into()
    }

    async fn handle(&mut self, _: Touch, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Arc<Calls>>()?.done.fetch_add(1, Ordering::Relaxed);
        self.touched += 1;
        Ok(())
    }
}

/// How often handlers were called, and what became of it.
#[derive(Debug, Default)]
struct Calls {
    begun: AtomicU64,
    /// Those that had their effect.
    done: AtomicU64,
    retried: AtomicU64,
    sent: AtomicU64,
}

impl Metrics for Calls {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Ended(_, _, Ending::Retried) => drop(self.retried.fetch_add(1, Ordering::Relaxed)),
            Event::Sent(_, _, results, _) => {
                let sent = results.iter().filter(|result| result.is_ok()).count();
                self.sent.fetch_add(sent as u64, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// What such a process tells: MiB of resident memory.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    /// Before the first message.
    idle: f64,
    /// After messages for few keys: what messages cost, and keys do not.
    start: f64,
    /// After the first of the keys, as many as there were messages before.
    first: f64,
    /// After all of them.
    after: f64,
}

pub(super) fn measure(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let mut found = Vec::new();
    for number in 1..=options.rounds {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([ROLE, &options.keys.to_string()]);
        let mut process = Program::start(&mut command)?;
        process.ready()?;
        let found_now: Found = process.measured()?;
        let Found { idle, start, first, after } = found_now;
        eprintln!("  {number}/{}: {idle:.2} MiB, {start:.2} MiB, {first:.2} MiB, {after:.2} MiB", options.rounds);
        found.push(found_now);
    }
    Ok(figures(&found, options.keys))
}

fn figures(found: &[Found], keys: u64) -> Vec<Figure> {
    let each = |of: fn(&Found) -> f64| found.iter().map(of).collect::<Vec<f64>>();
    let bytes = |found: &Found| (found.after - found.start) * f64::from(1 << 20) / keys as f64;
    let first = keys / BEFORE;
    vec![
        Figure::of(
            format!("keys: memory that each of {keys} keys leaves behind, after {first} messages for {CHUNK} others"),
            "bytes",
            found.iter().map(bytes).collect(),
        )
        .all_at_most(BYTES_MAX),
        Figure::of("keys: resident memory before the first message", "MiB", each(|found| found.idle)),
        Figure::of("keys: resident memory at the start, after these", "MiB", each(|found| found.start)),
        Figure::of(format!("keys: resident memory after {first} keys"), "MiB", each(|found| found.first)),
        Figure::of(format!("keys: resident memory after {keys} keys"), "MiB", each(|found| found.after)),
    ]
}

/// The process: handles so many keys, and tells how much memory it has.
pub(crate) fn work(mut args: impl Iterator<Item = String>) -> Result<(), AnyError> {
    let keys: u64 = args.next().ok_or("this process needs a number of keys")?.parse()?;
    println!("ready");
    std::io::stdin().read_exact(&mut [0; 3])?; // `go`
    let found = runtime()?.block_on(handled(keys))?;
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

async fn handled(keys: u64) -> Result<Found, AnyError> {
    let (store, hub, calls) = (Recent::default(), InProcess::new(ENDPOINT), Arc::new(Calls::default()));
    let settings = Settings {
        // Not in place: it is to be given back, and to come again.
        recoverability: Recoverability { in_place: Tries::NONE, retry_delay: DELAY, ..Recoverability::default() },
        ..Settings::default()
    };
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(store.clone())
        .transport(hub.clone())
        .saga::<Loud>(|loud| loud.starts::<Touch>())
        .saga::<Still>(|still| still.starts::<Touch>())
        .with(calls.clone())
        .metrics(calls.clone())
        .settings(settings)
        .start()
        .await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let sending = tokio::spawn(async move {
        let found = sent(&hub, keys).await;
        drop(stop);
        found
    });
    endpoint.run_until(stopped).await?;
    let found = sending.await??;
    add_up(&calls, store.counts(), keys / BEFORE + keys)?;
    Ok(found)
}

async fn sent(hub: &InProcess, keys: u64) -> Result<Found, AnyError> {
    tokio::task::yield_now().await; // The endpoint runs by then.
    let idle = resident().now_mib;
    let messages = keys / BEFORE;
    touch(hub, 0..messages, |number| number % CHUNK).await?;
    let start = resident().now_mib;
    touch(hub, 0..messages, |number| CHUNK + number).await?;
    let first = resident().now_mib;
    touch(hub, messages..keys, |number| CHUNK + number).await?;
    Ok(Found { idle, start, first, after: resident().now_mib })
}

/// Sends these messages, each for the key that this says, and waits until all are settled.
async fn touch(hub: &InProcess, messages: Range<u64>, key: impl Fn(u64) -> u64) -> Result<(), AnyError> {
    let Range { start: mut number, end } = messages;
    let destination = Destination::Endpoint(EndpointName::parse(ENDPOINT)?);
    let message_type = TypeName::parse(Touch::TYPE)?;
    while number < end {
        let last = end.min(number + CHUNK);
        let mut chunk = Vec::new();
        for number in number..last {
            let body = serde_json::to_vec(&Touch { key: format!("key-{:012}", key(number)) })?;
            let due = number.is_multiple_of(DELAYED).then(|| Timestamp::now().after(DELAY));
            let envelope = Envelope { due, ..Envelope::new(MessageId::random(), message_type.clone(), body) };
            chunk.push(Outgoing { destination: destination.clone(), envelope: Arc::new(envelope) });
        }
        for result in hub.dispatch(&chunk).await {
            result?;
        }
        hub.idle().await;
        number = last;
    }
    Ok(())
}

/// Each message had its effect on both sagas once, and the one that sends has sent once for each.
fn add_up(calls: &Calls, counts: Counts, keys: u64) -> Result<(), AnyError> {
    let [done, sent, retried] = [&calls.done, &calls.sent, &calls.retried].map(|count| count.load(Ordering::Relaxed));
    let expected = Counts { versions: 2 * keys, dedup_entries: 2 * keys, letters: 0 };
    if (done, sent, counts) != (2 * keys, keys, expected) || retried == 0 {
        return Err(format!(
            "void: of {keys} messages for two sagas there were {done} effects, {sent} messages sent, {retried} tries again, {counts:?}"
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_key_leaves_behind_is_the_growth_after_as_many_messages_for_few_keys() {
        let mib = 1_000_000.0 / f64::from(1 << 20);
        let found = |growth: f64| Found { idle: 5.0, start: 20.0, first: 20.0, after: 20.0 + growth * mib };
        let line = |growths: &[f64]| {
            let found: Vec<Found> = growths.iter().copied().map(found).collect();
            figures(&found, 1_000_000)[0].line(true)
        };
        assert!(
            line(&[-0.5, 0.0, 1.0]).ends_with("0.00 [-0.50-1.00] bytes; all must be <= 1: met"),
            "{}",
            line(&[0.0])
        );
        assert!(line(&[0.0, 1.1]).ends_with("MISSED"));
    }

    /// Goal: the books of this case add up, and with one message more they would not.
    #[test]
    fn each_message_has_its_effect_once_although_some_are_tried_again() {
        const KEYS: u64 = 3000;
        runtime().unwrap().block_on(handled(KEYS)).unwrap();
        let calls = Calls::default();
        assert!(add_up(&calls, Counts::default(), 1).is_err());
    }
}
