//! One table's relay: one task, which owns all that is in memory.

mod asking;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{
    future::{BoxFuture, OptionFuture},
    stream::{FuturesUnordered, StreamExt},
};
use tokio::{sync::watch, time::Instant};

use super::{
    Counted, PushLine, Pushed, RelayOptions,
    pause::Pause,
    waiting::{Held, Waiting},
};
use crate::{
    envelope::{Envelope, Outgoing},
    handler_error::chain,
    ports::{Claim, DispatchError, Dispatcher, Ended, Instance, OutboxTable, Outcome, StoreError, Tick, Ticked},
    sync::{mpsc, sleep_until, timeout},
};

/// Pushed rows that are taken at once: a burst does not keep confirmations waiting.
const PUSHED_AT_ONCE: usize = 1024;
/// Bytes that wait here, but for one claim more: beyond it nothing is taken.
const WAITING_BYTES: usize = 16 << 20;
/// Bytes of one call to the transport, but for one message more.
const SEND_BYTES: usize = 4 << 20;

/// A stop does not wait longer for what nothing rests on.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// A call to the transport that has ended.
struct Sent {
    call: u64,
    outgoing: Vec<Outgoing>,
    results: Vec<Result<(), DispatchError>>,
}

/// A call to the table that has ended.
struct Told {
    tick: Tick,
    begun: Instant,
    answer: Result<Ticked, StoreError>,
}

/// A claim whose answer was lost.
#[derive(Debug, Clone, Copy)]
struct Lost {
    token: i64,
    begun: Instant,
}

pub(super) struct TableRelay {
    table: Arc<dyn OutboxTable>,
    dispatcher: Arc<dyn Dispatcher>,
    options: RelayOptions,
    instance: Arc<Instance>,
    has_joined: bool,
    line: Arc<PushLine>,
    counted: Arc<Counted>,
    pushed: mpsc::Receiver<Pushed>,
    waiting: Waiting,
    sending: FuturesUnordered<BoxFuture<'static, Sent>>,
    /// The rows of each call that is under way.
    under_way: HashMap<u64, Vec<Held>>,
    calls: u64,
    /// Up to this one they were made before the relay began anew: they say nothing of the order of what came after.
    orphans: u64,
    /// Rows under way, and those whose status is being stored.
    unstored: usize,
    ended: Vec<Ended>,
    first_ended: Option<Instant>,
    /// Told beside a claim, and not all of them taken. With how many were.
    untaken: Option<(Vec<Ended>, usize)>,
    next_renewal: Option<Instant>,
    next_claim: Instant,
    /// Somebody has stored something since it was last asked for rows.
    woken: bool,
    poll: Duration,
    lost: Option<Lost>,
    failures: u32,
    not_before: Instant,
    pause: Pause,
    /// Where order is kept: what belongs to this relay does so until then.
    alive_until: Option<Instant>,
    stopping: Option<Instant>,
    /// What was on its way in as it stopped is here as well.
    has_all_pushed: bool,
}

impl TableRelay {
    /// `None`: the table's handle has a relay already.
    pub(super) fn attach(
        table: Arc<dyn OutboxTable>,
        dispatcher: Arc<dyn Dispatcher>,
        options: RelayOptions,
        instance: Instance,
    ) -> Option<Self> {
        let counted = Arc::<Counted>::default();
        let (line, pushed) =
            PushLine::new(instance.id, options.birth_lease, dispatcher.clone(), options.push_queue, counted.clone());
        let now = Instant::now();
        let ordered = table.is_ordered();
        // Who keeps order is alive for others as long as it looks.
        let poll = if ordered { options.poll.min(options.lease / 3) } else { options.poll };
        let options = RelayOptions { poll, ..options };
        table.attach(&line).then(|| Self {
            poll: options.poll,
            alive_until: ordered.then_some(now),
            table,
            dispatcher,
            options,
            instance: Arc::new(instance),
            has_joined: false,
            line,
            counted,
            pushed,
            waiting: Waiting::new(ordered),
            sending: FuturesUnordered::new(),
            under_way: HashMap::new(),
            calls: 0,
            orphans: 0,
            unstored: 0,
            ended: Vec::new(),
            first_ended: None,
            untaken: None,
            next_renewal: None,
            next_claim: now,
            woken: false,
            lost: None,
            failures: 0,
            not_before: now,
            pause: Pause::default(),
            stopping: None,
            has_all_pushed: false,
        })
    }

    pub(super) fn counted(&self) -> Arc<Counted> {
        self.counted.clone()
    }

    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut telling: OptionFuture<BoxFuture<'static, Told>> = None.into();
        let mut is_telling = false;
        let mut pushed = Vec::new();
        let timer = sleep_until(Instant::now());
        tokio::pin!(timer);
        loop {
            let now = Instant::now();
            self.send(now);
            if !is_telling && let Some(tick) = self.next_tick(now) {
                telling = Some(self.tell(tick, now)).into();
                is_telling = true;
            }
            if let Some(end) = self.stopping
                && (self.is_done() && !is_telling || end <= now)
            {
                break;
            }
            let at = self.next_look(now, is_telling);
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            let room = self.room(now);
            tokio::select! {
                biased;
                _ = stop.wait_for(|stopped| *stopped), if self.stopping.is_none() => self.stop(),
                Some(told) = &mut telling, if is_telling => {
                    is_telling = false;
                    self.told(told);
                }
                Some(sent) = self.sending.next() => self.sent(sent),
                _ = self.pushed.recv_many(&mut pushed, room), if room > 0 => self.take(&mut pushed),
                () = self.line.woken(), if self.stopping.is_none() => {
                    self.woken = true;
                    self.next_claim = Instant::now();
                }
                () = &mut timer => {}
            }
        }
        // It may hold what leaving needs.
        drop(telling);
        if timeout(LEAVE_LIMIT, self.leave()).await.is_err() {
            tracing::debug!(table = self.table.name(), "the relay is gone, which the table did not hear of");
        }
    }

    async fn leave(&mut self) {
        let unsaid = self.ended.len() + self.under_way.values().map(Vec::len).sum::<usize>();
        if unsaid > 0 {
            tracing::warn!(table = self.table.name(), unsaid, "stopped before the status of all messages was stored");
        }
        if let Err(error) = self.table.leave(&self.instance).await {
            tracing::debug!(table = self.table.name(), %error, "the relay is gone, which the table was not told");
        }
    }

    /// How many pushed rows may be taken now: one to try, while nothing can be sent. The others wait where they are, and what
    /// finds no room there is given back.
    fn room(&self, now: Instant) -> usize {
        if self.stopping.is_some() {
            // Nobody hands anything over any more, but for who has a place already.
            return if self.has_all_pushed { 0 } else { PUSHED_AT_ONCE };
        }
        if self.pause.is_probing() {
            return usize::from(self.waiting.is_idle() && !self.pause.is_on(now));
        }
        if self.waiting.bytes() >= WAITING_BYTES {
            return 0;
        }
        PUSHED_AT_ONCE.saturating_sub(self.waiting.len())
    }

    fn take(&mut self, pushed: &mut Vec<Pushed>) {
        self.has_all_pushed = pushed.is_empty();
        for row in pushed.drain(..) {
            self.line.has_left(&row);
            let Pushed { claim, until, outgoing } = row;
            if self.stopping.is_some() {
                self.end(claim, Outcome::GivenBack);
                continue;
            }
            let lease = self.options.birth_lease;
            let begun = until.checked_sub(lease).unwrap_or(until);
            self.hold(Held::new(claim, 1, begun, lease), outgoing);
        }
    }

    fn hold(&mut self, held: Held, outgoing: Outgoing) {
        self.next_renewal = Some(self.next_renewal.map_or(held.renew_at, |next| next.min(held.renew_at)));
        self.waiting.push(held, outgoing);
    }

    fn send(&mut self, now: Instant) {
        while self.stopping.is_none() && !self.waiting.is_idle() && !self.pause.is_on(now) {
            let probing = self.pause.is_probing();
            let calls = if probing { 1 } else { self.options.senders };
            let room = self.options.status_queue.saturating_sub(self.unstored + self.ended.len());
            if self.sending.len() >= calls || room == 0 {
                return;
            }
            let messages = if probing { 1 } else { self.options.send_batch.min(room) };
            let (held, outgoing) = self.next_messages(now, messages);
            if held.is_empty() {
                return;
            }
            self.calls += 1;
            self.unstored += held.len();
            self.under_way.insert(self.calls, held);
            let (call, dispatcher, limit) = (self.calls, self.dispatcher.clone(), self.options.send_limit);
            self.sending.push(Box::pin(async move {
                // Who does not answer says nothing of any of them.
                let results = timeout(limit, dispatcher.dispatch(&outgoing)).await.unwrap_or_default();
                Sent { call, outgoing, results }
            }));
        }
    }

    fn next_messages(&mut self, now: Instant, most: usize) -> (Vec<Held>, Vec<Outgoing>) {
        let (mut leases, mut messages) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while messages.len() < most
            && bytes < SEND_BYTES
            && let Some((held, outgoing)) = self.waiting.pop()
        {
            if held.until <= now || self.alive_until.is_some_and(|until| until <= now) {
                let behind = self.waiting.is_stuck(&outgoing).len();
                self.counted.overdue.fetch_add(1 + behind as u64, Ordering::Relaxed);
            } else {
                bytes += outgoing.envelope.size();
                leases.push(held);
                messages.push(now_due(outgoing));
            }
        }
        (leases, messages)
    }

    fn sent(&mut self, Sent { call, outgoing, results }: Sent) {
        let held = self.under_way.remove(&call).unwrap_or_default();
        self.unstored -= held.len();
        let (mut any, mut all_later) = (false, true);
        let only = if let [one] = &outgoing[..] { Some(one.envelope.message_id.clone()) } else { None };
        let mut results = results.into_iter();
        for (held, outgoing) in held.into_iter().zip(outgoing) {
            let outcome = match results.next() {
                Some(Ok(())) => {
                    any = true;
                    said(self.table.name(), &outgoing);
                    Outcome::Sent
                }
                Some(Err(DispatchError::Permanent(error))) => Outcome::Failed(chain(&error)),
                Some(Err(DispatchError::Transient(error))) => self.later(held.attempts, chain(&error)),
                None => self.later(held.attempts, "the transport did not say what became of it".to_owned()),
            };
            all_later &= matches!(outcome, Outcome::Later(..));
            if let Outcome::Failed(reason) = &outcome {
                let (table, message_id) = (self.table.name(), &outgoing.envelope.message_id);
                let message_type = &outgoing.envelope.message_type;
                tracing::error!(table, %message_id, %message_type, reason, "a message cannot be sent; it stays in the table as failed");
            }
            if call <= self.orphans {
                // The key may have been claimed anew.
            } else if outcome == Outcome::Sent {
                self.waiting.is_done(&outgoing);
            } else {
                for (behind, _) in self.waiting.is_stuck(&outgoing) {
                    self.end(behind.claim, Outcome::GivenBack);
                }
            }
            self.end(held.claim, outcome);
        }
        if any && self.pause.succeeded() {
            tracing::info!(table = self.table.name(), "the transport takes messages again");
        } else if all_later && let Some(pause) = self.pause.failed(Instant::now(), only) {
            tracing::warn!(
                table = self.table.name(),
                ?pause,
                "the transport takes nothing; one message is tried again later"
            );
        }
    }

    fn later(&self, attempts: u32, reason: String) -> Outcome {
        if attempts >= self.options.attempts_max {
            return Outcome::Failed(format!("{reason} (attempt {attempts}, and no more are made)"));
        }
        Outcome::Later(self.options.backoff_after(attempts), reason)
    }

    fn end(&mut self, claim: Claim, outcome: Outcome) {
        let counter = match &outcome {
            Outcome::Sent => Some(&self.counted.sent),
            Outcome::Later(..) => Some(&self.counted.later),
            Outcome::Failed(_) => Some(&self.counted.failed),
            Outcome::Expired => Some(&self.counted.expired),
            Outcome::GivenBack => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.first_ended.get_or_insert_with(Instant::now);
        self.ended.push(Ended { claim, outcome });
    }

    fn stop(&mut self) {
        self.stopping = Some(Instant::now() + self.options.stop_limit);
        self.table.detach(&self.line);
        self.pushed.close();
        for (held, _) in self.waiting.take() {
            self.end(held.claim, Outcome::GivenBack);
        }
    }

    fn is_done(&self) -> bool {
        self.has_all_pushed
            && self.sending.is_empty()
            && self.ended.is_empty()
            && self.untaken.is_none()
            && self.lost.is_none()
    }
}

impl Drop for TableRelay {
    /// What is stored from now on is for others, however this one has ended.
    fn drop(&mut self) {
        self.table.detach(&self.line);
    }
}

/// A line for each message, without what is in it.
fn said(table: &str, outgoing: &Outgoing) {
    let Outgoing { destination, envelope } = outgoing;
    tracing::debug!(
        target: "hapax::relay::sent",
        table,
        message_id = %envelope.message_id,
        message_type = %envelope.message_type,
        correlation_id = envelope.correlation_id.as_ref().map(|id| id.as_str()),
        %destination,
        "sent"
    );
}

/// What is here is due by the table's clock. The transport's own may be behind, and would put it off once more.
fn now_due(outgoing: Outgoing) -> Outgoing {
    // A timeout is known by its due time.
    if outgoing.envelope.due.is_none() || outgoing.envelope.timeout {
        return outgoing;
    }
    let envelope = Envelope { due: None, ..(*outgoing.envelope).clone() };
    Outgoing { envelope: Arc::new(envelope), ..outgoing }
}
