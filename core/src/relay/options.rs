//! Every bound and interval of a relay with its default, and the reason for that number.

use std::time::Duration;

/// Rows that were committed here and wait in memory to be sent. Default 10,000: some megabytes, a tenth of a second of what one
/// process sends. What finds no room is claimed from the table like any other row.
const PUSH_QUEUE: usize = 10_000;
/// Rows that were sent and whose status is not stored yet. Default 20,000: two full batches, one on its way and one that
/// gathers. Beyond it sending waits, so that a crash repeats no more than these.
const STATUS_QUEUE: usize = 20_000;
/// Rows whose status is stored in one call. Default 10,000: beyond it the call's own cost is nothing, and its transaction long.
const STATUS_BATCH: usize = 10_000;
/// How long a status waits for others. Default 1 s: one call a second, and a crash repeats no more than a second's messages.
const STATUS_WAIT: Duration = Duration::from_secs(1);
/// How often to look for rows that nobody has pushed. Default 1 s falling to 30 s while there are none: idle tables cost two
/// calls a minute; what other processes store is told by the server where it can.
const POLL: Duration = Duration::from_secs(1);
/// See [`POLL`].
const POLL_IDLE: Duration = Duration::from_secs(30);
/// The same where the server tells nobody what other processes have stored. Default 2 s: half a call a second, and no more than
/// that is waited for.
const POLL_UNTOLD: Duration = Duration::from_secs(2);
/// Rows of one claim. Default 100: its round trip is shared by enough, and what a crash keeps from others is little.
const CLAIM: usize = 100;
/// Bytes of bodies of one claim. Default 8 MiB: many usual messages, few of the largest.
const CLAIM_BYTES: usize = 8 << 20;
/// How long a claimed row belongs to its relay, renewed after a third. Default 5 min: far above any confirmation.
const LEASE: Duration = Duration::from_secs(5 * 60);
/// How long a row that is stored belongs to the relay of its own process. Default 10 s: longer than a usual transaction goes on
/// after it has stored its messages; after a crash others wait for as long.
const BIRTH_LEASE: Duration = Duration::from_secs(10);
/// A relay that was not heard of for so long is forgotten. Default 10 min: two leases.
const STALE: Duration = Duration::from_secs(10 * 60);
/// Attempts before a row has failed. Default 15: with the back-off almost an hour, in which a destination may be mended.
const ATTEMPTS_MAX: u32 = 15;
/// Before the second attempt; doubles with each. Default 30 s.
const BACKOFF: Duration = Duration::from_secs(30);
/// The longest time between attempts. Default 5 min.
const BACKOFF_MAX: Duration = Duration::from_secs(5 * 60);
/// Calls to the transport at once. Default 8: one waits for its confirmations while others are made.
const SENDERS: usize = 8;
/// Messages of one call to the transport. Default 256: beyond it a confirmation of many gains little.
const SEND_BATCH: usize = 256;
/// How long a call to the transport may take. Default 1 min: transports give up before that by themselves, and one that does not
/// would keep its messages for ever.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// How long a stop waits for confirmations and for their status. Default 10 s: below what an orchestrator grants.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How long rows that were sent are kept in the table. Default 7 days: somebody asks what was sent last week.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long they are kept in the archive after that. Default 30 days.
const ARCHIVE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Rows that one batch removes. Default 1000: a commit of some milliseconds.
const CARE_ROWS: usize = 1000;
/// How often to look for what is over, and at what waits. Default 1 min.
const CARE_EVERY: Duration = Duration::from_secs(60);

/// Longer than anything is waited for. Ten years.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How a [`Relay`](super::Relay) treats one table. Every number has a default.
#[derive(Debug, Clone)]
#[must_use]
pub struct RelayOptions {
    pub(super) push_queue: usize,
    pub(super) status_queue: usize,
    pub(super) status_batch: usize,
    pub(super) status_wait: Duration,
    pub(super) poll: Duration,
    /// `None`: see [`RelayOptions::idles`].
    pub(super) poll_idle: Option<Duration>,
    pub(super) claim: usize,
    pub(super) claim_bytes: usize,
    pub(super) lease: Duration,
    pub(super) birth_lease: Duration,
    pub(super) stale: Duration,
    pub(super) attempts_max: u32,
    pub(super) backoff: Duration,
    pub(super) backoff_max: Duration,
    pub(super) senders: usize,
    pub(super) send_batch: usize,
    pub(super) send_limit: Duration,
    pub(super) stop_limit: Duration,
    pub(super) keep: Duration,
    pub(super) archive: Option<Duration>,
    pub(super) care_rows: usize,
    pub(super) care_every: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            push_queue: PUSH_QUEUE,
            status_queue: STATUS_QUEUE,
            status_batch: STATUS_BATCH,
            status_wait: STATUS_WAIT,
            poll: POLL,
            poll_idle: None,
            claim: CLAIM,
            claim_bytes: CLAIM_BYTES,
            lease: LEASE,
            birth_lease: BIRTH_LEASE,
            stale: STALE,
            attempts_max: ATTEMPTS_MAX,
            backoff: BACKOFF,
            backoff_max: BACKOFF_MAX,
            senders: SENDERS,
            send_batch: SEND_BATCH,
            send_limit: SEND_LIMIT,
            stop_limit: STOP_LIMIT,
            keep: KEEP,
            archive: Some(ARCHIVE),
            care_rows: CARE_ROWS,
            care_every: CARE_EVERY,
        }
    }
}

impl RelayOptions {
    /// Committed rows that may wait in memory to be sent, at least 1. Default 10,000: some megabytes, a tenth of a second of what
    /// one process sends. What finds no room is dropped from memory and claimed from the table.
    pub fn push_queue(mut self, rows: usize) -> Self {
        self.push_queue = rows.max(1);
        self
    }

    /// Rows that were sent and whose status is not stored yet, at least 1. Default 20,000: two full batches, one on its way and
    /// one that gathers. Beyond it sending waits, so that a crash repeats no more than these.
    pub fn status_queue(mut self, rows: usize) -> Self {
        self.status_queue = rows.max(1);
        self
    }

    /// Statuses are stored when so many have gathered or the first has waited for so long, and always on stop. Default 10,000
    /// and 1 s: beyond so many the call's own cost is nothing, and it is one a second at most. What a crash finds unstored is sent again, under the same ids.
    pub fn status_batch(mut self, rows: usize, wait: Duration) -> Self {
        self.status_batch = rows.max(1);
        self.status_wait = wait;
        self
    }

    /// How often to look for rows that nobody has pushed: while there are some, and after a while in which there were none.
    /// Default 1 s, and 30 s where the server tells what other processes have stored, or else 2 s: an idle table costs two calls a
    /// minute, or half a call a second. The next due time is looked at when it comes, and so is what the server tells.
    pub fn polls(mut self, busy: Duration, idle: Duration) -> Self {
        self.poll = busy.max(Duration::from_millis(1));
        self.poll_idle = Some(idle.max(self.poll));
        self
    }

    /// The longest time between looks.
    pub(super) fn idles(&self, is_told: bool) -> Duration {
        let usual = if is_told { POLL_IDLE } else { POLL_UNTOLD };
        self.poll_idle.unwrap_or(usual).max(self.poll)
    }

    /// Rows and bytes of one claim, each at least 1. Default 100 and 8 MiB: a round trip is shared by enough, and
    /// what a crash keeps from others is little. Claims follow each other until there is nothing more.
    pub fn claim(mut self, rows: usize, bytes: usize) -> Self {
        self.claim = rows.max(1);
        self.claim_bytes = bytes.max(1);
        self
    }

    /// How long a claimed row belongs to its relay unless that renews it, which it does after a third; at least 10 ms. Default 5
    /// min: far above any confirmation. After a crash others wait for as long.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(10));
        self
    }

    /// The same of a row that is stored by the relay's own process; at least 10 ms. Default 10 s: longer than a usual transaction
    /// goes on after it has stored its messages; after a crash others wait for as long. One that goes on for longer hands them to
    /// whoever claims them first.
    pub fn birth_lease(mut self, lease: Duration) -> Self {
        self.birth_lease = lease.max(Duration::from_millis(10));
        self
    }

    /// A relay that was not heard of for so long is forgotten; at least a lease, and where order is kept a lease. Default 10
    /// min: two leases.
    pub const fn stale(mut self, stale: Duration) -> Self {
        self.stale = stale;
        self
    }

    /// How often sending a message is tried before it has failed, at least 1. Default 15: with the back-off almost an hour,
    /// in which a destination may be mended. While the transport takes nothing at all, only one message at a time is tried.
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts.max(1);
        self
    }

    /// How long to wait before the second attempt, twice as long before each further one, and at most. Default 30 s and 5
    /// min: a destination that is away is spared, and is not waited for long when it is back.
    pub fn backoff(mut self, delay: Duration, delay_max: Duration) -> Self {
        self.backoff = delay;
        self.backoff_max = delay_max.max(delay);
        self
    }

    /// Calls to the transport at once, and messages of one call, each at least 1. Default 8 and 256: one call waits for its
    /// confirmations while others are made, and beyond so many messages a confirmation of many gains little.
    pub fn senders(mut self, calls: usize, messages: usize) -> Self {
        self.senders = calls.max(1);
        self.send_batch = messages.max(1);
        self
    }

    /// How long a call to the transport may take. Default 1 min: transports give up before that by themselves. After it its
    /// messages, which may have been sent, are tried again.
    pub const fn send_limit(mut self, limit: Duration) -> Self {
        self.send_limit = limit;
        self
    }

    /// How long a stop waits for confirmations and for their status to be stored. Default 10 s: below what an orchestrator
    /// grants. What is not stored by then is sent again, under the same ids.
    pub const fn stop_limit(mut self, limit: Duration) -> Self {
        self.stop_limit = limit;
        self
    }

    /// How long rows that were sent, or have expired, are kept in the table, and after that in its archive. Default 7 days and 30
    /// days: somebody asks what was sent last week. Without an archive they are removed: where thousands are sent in a second, keep them for hours only. Rows that
    /// wait or have failed are never removed.
    pub const fn keep(mut self, sent: Duration, archive: Option<Duration>) -> Self {
        self.keep = sent;
        self.archive = archive;
        self
    }

    /// How often to look for what is over and to tell the metrics what waits, at least every millisecond, and how many rows one
    /// batch removes, at least 1. Default 1 min, a quarter more or less each time, and 1000: a commit of some milliseconds. Batches follow each other, each after a pause as long as the one
    /// before has taken, until nothing is left.
    pub fn care(mut self, every: Duration, rows: usize) -> Self {
        self.care_every = every.max(Duration::from_millis(1));
        self.care_rows = rows.max(1);
        self
    }

    /// With no time so long that the end of it cannot be told.
    pub(super) fn bounded(mut self) -> Self {
        let times = [
            &mut self.status_wait,
            &mut self.poll,
            &mut self.lease,
            &mut self.birth_lease,
            &mut self.stale,
            &mut self.backoff,
            &mut self.backoff_max,
            &mut self.send_limit,
            &mut self.stop_limit,
            &mut self.care_every,
        ];
        times.into_iter().chain(&mut self.poll_idle).for_each(|time| *time = (*time).min(LONGEST));
        self
    }

    /// Before the attempt that comes after so many.
    pub(super) fn backoff_after(&self, attempts: u32) -> Duration {
        let doubled = 1u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        self.backoff.saturating_mul(doubled).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RelayOptions;

    #[test]
    fn the_back_off_doubles_up_to_its_limit() {
        let options = RelayOptions::default();
        let seconds = |attempts| options.backoff_after(attempts).as_secs();
        assert_eq!([1, 2, 3, 4, 5, 15, 99].map(seconds), [30, 60, 120, 240, 300, 300, 300]);
        let short = options.backoff(Duration::ZERO, Duration::ZERO);
        assert_eq!(short.backoff_after(7), Duration::ZERO);
    }
}
