//! How much is taken from the broker: messages and bytes that are held at a time, and messages in a time.

use std::{sync::PoisonError, time::Duration};

use tokio::time::Instant;

use crate::sync::{Mutex, MutexGuard};

/// How large messages are taken to be before any has come: what the defaults allow for each.
const BYTES_EACH_AT_FIRST: f64 = (64 << 10) as f64;
/// How much of what is known of sizes is left by a receive of smaller ones; larger ones count at once, for there must be room for them.
const REMEMBERED: f64 = 0.9;
/// What may come at once, of what a rate grants in a second: less would be a wake-up for each message, more is no even flow.
const BURST_SECONDS: f64 = 0.1;

/// The part of all that may be held which one lane may have while others want room: three stuck ones leave a quarter. Of the default it is one
/// full pass.
const LANE_SHARE: usize = 4;

/// So many messages in a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    messages: u32,
    per: Duration,
}

impl Rate {
    /// At most `messages` in each `per`, evenly: what comes at once is a tenth of what a second grants, or one. Zero of them pause
    /// an endpoint.
    #[must_use]
    pub const fn new(messages: u32, per: Duration) -> Self {
        Self { messages, per }
    }

    /// At most `messages` in a second.
    #[must_use]
    pub const fn per_second(messages: u32) -> Self {
        Self::new(messages, Duration::from_secs(1))
    }

    fn a_second(self) -> f64 {
        f64::from(self.messages) / self.per.as_secs_f64().max(1e-9)
    }
}

/// Bounds, which may change, and what is known about what comes.
#[derive(Debug)]
pub(super) struct Flow(Mutex<State>);

#[derive(Debug)]
struct State {
    messages_max: usize,
    bytes_max: usize,
    rate: Option<Rate>,
    /// Messages that the rate grants now, as of `at`.
    granted: f64,
    at: Instant,
    /// Of a message, as far as is known.
    bytes_each: Option<f64>,
}

/// What is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// Whether more may be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// So many, at least one.
    For(usize),
    /// Not before then.
    Later(Instant),
    /// Not before something is settled, or a bound is raised.
    None,
}

impl Held {
    /// Beyond `share`, in messages or in bytes; one message alone never is.
    pub(super) const fn exceeds(self, share: Self) -> bool {
        self.messages > share.messages || (self.messages > 1 && self.bytes > share.bytes)
    }

    pub(super) const fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes;
    }

    pub(super) const fn sub(&mut self, other: Self) {
        self.messages -= other.messages;
        self.bytes -= other.bytes;
    }
}

impl Flow {
    pub(super) fn new(messages_max: usize, bytes_max: usize, rate: Option<Rate>) -> Self {
        Self(Mutex::new(State {
            messages_max,
            bytes_max,
            rate,
            granted: rate.map_or(0.0, burst),
            at: Instant::now(),
            bytes_each: None,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was another one; so the others.
    pub(super) fn set_messages_max(&self, messages: usize) -> bool {
        std::mem::replace(&mut self.state().messages_max, messages) != messages
    }

    pub(super) fn set_bytes_max(&self, bytes: usize) -> bool {
        std::mem::replace(&mut self.state().bytes_max, bytes) != bytes
    }

    pub(super) fn set_rate(&self, rate: Option<Rate>) -> bool {
        let mut state = self.state();
        if state.rate == rate {
            return false;
        }
        state.grant();
        let before = state.rate.is_some().then_some(state.granted);
        state.rate = rate;
        state.granted = rate.map_or(0.0, |rate| before.unwrap_or(f64::INFINITY).min(burst(rate)));
        true
    }

    pub(super) fn room(&self, held: Held) -> Room {
        let mut state = self.state();
        let each = state.bytes_each.unwrap_or(BYTES_EACH_AT_FIRST);
        let mut room = state.messages_max.saturating_sub(held.messages);
        if held.messages > 0 {
            let left = state.bytes_max.saturating_sub(held.bytes) as f64;
            room = room.min((left / each).ceil() as usize);
        } else {
            // One that is larger than the bound alone is handled alone.
            room = room.min(((state.bytes_max as f64 / each) as usize).max(1));
        }
        if room == 0 {
            return Room::None;
        }
        state.grant();
        match state.rate {
            None => Room::For(room),
            Some(_) if state.granted >= 1.0 => Room::For(room.min(state.granted as usize)),
            Some(rate) if rate.messages == 0 => Room::None,
            Some(rate) => {
                let missing = (1.0 - state.granted) / rate.a_second();
                // What is rounded down would be asked for in vain.
                Room::Later(state.at + Duration::from_secs_f64(missing.min(3600.0)) + Duration::from_millis(1))
            }
        }
    }

    /// What one lane may hold while others want room.
    pub(super) fn share(&self) -> Held {
        let state = self.state();
        Held { messages: (state.messages_max / LANE_SHARE).max(1), bytes: state.bytes_max / LANE_SHARE }
    }

    /// Whether most of what may be held is held.
    pub(super) fn is_crowded(&self, held: Held) -> bool {
        let state = self.state();
        held.messages > state.messages_max / 2 || held.bytes > state.bytes_max / 2
    }

    /// What has come, with all its bytes.
    pub(super) fn received(&self, messages: usize, bytes: usize) {
        if messages == 0 {
            return;
        }
        let mut state = self.state();
        if state.rate.is_some() {
            // What was asked for before there was this rate is not held against it.
            state.granted = (state.granted - messages as f64).max(0.0);
        }
        let each = bytes as f64 / messages as f64;
        let before = state.bytes_each.unwrap_or(each);
        state.bytes_each = Some(each.max(before.mul_add(REMEMBERED, each * (1.0 - REMEMBERED))).max(1.0));
    }
}

impl State {
    /// Adds what the rate has granted since it was looked at last.
    fn grant(&mut self) {
        let now = Instant::now();
        if let Some(rate) = self.rate {
            let granted = now.duration_since(self.at).as_secs_f64() * rate.a_second();
            self.granted = (self.granted + granted).min(burst(rate));
        }
        self.at = now;
    }
}

fn burst(rate: Rate) -> f64 {
    if rate.messages == 0 { 0.0 } else { (rate.a_second() * BURST_SECONDS).max(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn held(messages: usize, bytes: usize) -> Held {
        Held { messages, bytes }
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_bounded_by_messages_and_by_bytes_and_never_none_while_nothing_is_held() {
        let flow = Flow::new(100, 1 << 20, None);
        assert_eq!(flow.room(held(0, 0)), Room::For(16)); // Of 64 KiB each, as long as nothing is known.
        flow.received(10, 10 * 1024);
        assert_eq!(flow.room(held(0, 0)), Room::For(100));
        assert_eq!(flow.room(held(90, 90 * 1024)), Room::For(10));
        assert_eq!(flow.room(held(50, (1 << 20) - 2048)), Room::For(2));
        assert_eq!(flow.room(held(50, 1 << 20)), Room::None);
        assert_eq!(flow.room(held(100, 0)), Room::None);
        flow.received(1, 2 << 20);
        assert_eq!(flow.room(held(1, 2 << 20)), Room::None);
        assert_eq!(flow.room(held(0, 0)), Room::For(1));
        flow.set_bytes_max(8 << 20);
        assert_eq!(flow.room(held(1, 2 << 20)), Room::For(3));
        assert_eq!(flow.share(), held(25, 2 << 20));
        assert!(held(26, 0).exceeds(flow.share()) && held(2, (2 << 20) + 1).exceeds(flow.share()));
        assert!(!held(25, 2 << 20).exceeds(flow.share()) && !held(1, 8 << 20).exceeds(flow.share()));
        assert!(
            flow.is_crowded(held(51, 0)) && flow.is_crowded(held(1, 5 << 20)) && !flow.is_crowded(held(50, 4 << 20))
        );
        flow.set_messages_max(0);
        assert_eq!(flow.room(held(0, 0)), Room::None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_grants_evenly_and_a_tenth_of_a_second_at_once() {
        let flow = Flow::new(1000, usize::MAX, Some(Rate::per_second(50)));
        assert_eq!(flow.room(held(0, 0)), Room::For(5));
        flow.received(5, 5000);
        let Room::Later(at) = flow.room(held(0, 0)) else { panic!("nothing is granted") };
        let wait = at - Instant::now();
        assert!(wait >= SECOND / 50 && wait < SECOND / 40, "{wait:?}");
        tokio::time::advance(wait).await;
        assert_eq!(flow.room(held(0, 0)), Room::For(1));
        tokio::time::advance(100 * SECOND).await;
        assert_eq!(flow.room(held(0, 0)), Room::For(5)); // What was not taken is not saved up.

        flow.set_rate(Some(Rate::new(6, 60 * SECOND)));
        assert_eq!(flow.room(held(0, 0)), Room::For(1));
        flow.received(1, 1000);
        tokio::time::advance(9 * SECOND).await;
        assert!(matches!(flow.room(held(0, 0)), Room::Later(_)));
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(flow.room(held(0, 0)), Room::For(1));
        flow.set_rate(Some(Rate::per_second(0)));
        tokio::time::advance(100 * SECOND).await;
        assert_eq!(flow.room(held(0, 0)), Room::None);
        flow.set_rate(None);
        assert!(matches!(flow.room(held(0, 0)), Room::For(_)));
        // What came without a rate is not held against one.
        flow.received(100_000, 1000);
        flow.set_rate(Some(Rate::per_second(50)));
        assert_eq!(flow.room(held(0, 0)), Room::For(5));
    }
}
