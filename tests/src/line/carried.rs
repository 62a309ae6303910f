//! One connection.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    Ends,
    weather::{Trouble, Weather},
};

/// What is taken at a time, at most.
const PART: usize = 64 << 10;
/// A piece of what is sliced, at most, in bytes.
const SLICE_MAX: usize = 7;
/// As many pieces; what is left goes as one.
const SLICES_MAX: usize = 500;
/// An answer that does not come within this does not come.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// What the directions of a connection tell each other.
#[derive(Default)]
struct Between {
    /// Answers are read and not passed on.
    is_deaf: AtomicBool,
    /// The client is told that it is over; answers are read until then.
    leaves: Notify,
    /// It has been told.
    has_left: Notify,
    /// Something was read that is not passed on.
    answered: Notify,
}

/// Until it ends, for whatever reason.
pub(super) async fn carry(client: TcpStream, server: TcpStream, ends: &Ends, mut random: Rng) {
    // Without: what is sliced would be put together again.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let between = Between::default();
    let (up, down) = (Sky::new(ends, random.fork()), Sky::new(ends, random));
    tokio::select! {
        () = requests(from_client, to_server, up, &between) => {}
        () = answers(from_server, to_client, down, &between) => {}
    }
}

/// When the next trouble of a direction is due.
struct Sky<'e> {
    ends: &'e Ends,
    weather: watch::Receiver<Option<Weather>>,
    due: Option<Instant>,
    random: Rng,
}

impl<'e> Sky<'e> {
    fn new(ends: &'e Ends, random: Rng) -> Self {
        let mut weather = ends.weather.subscribe();
        weather.mark_changed();
        Self { ends, weather, due: None, random }
    }

    /// What befalls what has just come, and how long that lasts.
    fn falls(&mut self, is_answer: bool) -> Option<(Trouble, Duration)> {
        let is_new = self.weather.has_changed().unwrap_or(false);
        let weather = self.weather.borrow_and_update().clone()?;
        let now = Instant::now();
        let is_due = !is_new && self.due.is_some_and(|due| due <= now);
        if is_new || is_due || self.due.is_none() {
            self.due = Some(now + weather.pause(&mut self.random));
        }
        if !is_due {
            return None;
        }
        let trouble = weather.trouble(&mut self.random, is_answer)?;
        Some((trouble, weather.length(&mut self.random)))
    }

    /// It has taken effect.
    fn meets(&self, trouble: Trouble) {
        self.ends.meets(trouble);
    }
}

async fn requests(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, mut sky: Sky<'_>, between: &Between) {
    let mut part = vec![0; PART];
    while let Ok(read @ 1..) = client.read(&mut part).await {
        let part = &part[..read];
        let done = match sky.falls(false) {
            Some((Trouble::Swallow, _)) => {
                between.is_deaf.store(true, Ordering::SeqCst);
                if server.write_all(part).await.is_ok() {
                    sky.meets(Trouble::Swallow);
                    drop(timeout(ANSWER_LIMIT, between.answered.notified()).await);
                }
                return;
            }
            Some((Trouble::Late, after)) => {
                between.is_deaf.store(true, Ordering::SeqCst);
                between.leaves.notify_one();
                drop(client);
                // Its other half may be with an answer that is held up.
                between.has_left.notified().await;
                sleep(after).await;
                if server.write_all(part).await.is_ok() {
                    sky.meets(Trouble::Late);
                    drop(timeout(ANSWER_LIMIT, between.answered.notified()).await);
                }
                return;
            }
            trouble => passed_on(part, &mut server, trouble, &mut sky).await,
        };
        if !done {
            return;
        }
    }
}

async fn answers(mut server: OwnedReadHalf, client: OwnedWriteHalf, mut sky: Sky<'_>, between: &Between) {
    let (mut part, mut client) = (vec![0; PART], Some(client));
    loop {
        let read = tokio::select! {
            read = server.read(&mut part) => read,
            () = between.leaves.notified() => {
                client = None;
                between.has_left.notify_one();
                continue;
            }
        };
        let Ok(read @ 1..) = read else { return };
        if between.is_deaf.load(Ordering::SeqCst) {
            between.answered.notify_one();
            continue;
        }
        let Some(to) = &mut client else { continue };
        let trouble = sky.falls(true);
        let goes_on = tokio::select! {
            goes_on = passed_on(&part[..read], to, trouble, &mut sky) => goes_on,
            () = between.leaves.notified() => {
                client = None;
                between.has_left.notify_one();
                continue;
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// Whether the connection goes on.
async fn passed_on(
    part: &[u8],
    to: &mut OwnedWriteHalf,
    trouble: Option<(Trouble, Duration)>,
    sky: &mut Sky<'_>,
) -> bool {
    let Some((trouble, lasts)) = trouble else { return to.write_all(part).await.is_ok() };
    match trouble {
        Trouble::Cut | Trouble::Swallow | Trouble::Late => {
            sky.meets(trouble);
            false
        }
        Trouble::BlackHole => {
            sleep(lasts).await;
            sky.meets(trouble);
            false
        }
        Trouble::Delay => {
            sleep(lasts).await;
            let passed = to.write_all(part).await.is_ok();
            if passed {
                sky.meets(trouble);
            }
            passed
        }
        Trouble::Slice => {
            let passed = sliced(part, to, &mut sky.random).await;
            if passed {
                sky.meets(trouble);
            }
            passed
        }
    }
}

async fn sliced(mut part: &[u8], to: &mut OwnedWriteHalf, random: &mut Rng) -> bool {
    for _ in 0..SLICES_MAX {
        let (piece, rest) = part.split_at(random.usize(1..=SLICE_MAX).min(part.len()));
        if to.write_all(piece).await.is_err() {
            return false;
        }
        // So that the other side sees it by itself.
        tokio::task::yield_now().await;
        part = rest;
        if part.is_empty() {
            return true;
        }
    }
    to.write_all(part).await.is_ok()
}
