//! What the table is asked, when, and what its answers mean.

use std::{
    collections::HashSet,
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{
    super::{RelayOptions, waiting::Held},
    Lost, TableRelay, Told, WAITING_BYTES,
};
use crate::{
    handler_error::chain,
    ports::{Claim, Claimed, Claiming, Ended, Instance, Outcome, StoreError, Tick, Ticked},
};

/// The table is not asked sooner for a row that becomes free: many rows that do one after the other share a call.
const SOONEST: Duration = Duration::from_millis(20);
/// When the next row may be claimed is not asked beside statuses, so that it is asked so soon after them, if there is no look
/// before.
const AFTER_STATUSES: Duration = Duration::from_secs(1);
/// Rows of one call of which more is told than that they were sent.
const OTHERS_MAX: usize = 1000;
/// After the first call that failed; doubles up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(100);
/// The longest time until a table that cannot be asked is asked again.
const AGAIN_MAX: Duration = Duration::from_secs(5);

impl TableRelay {
    /// What is to be asked now, if anything.
    pub(super) fn next_tick(&mut self, now: Instant) -> Option<Tick> {
        if now < self.not_before {
            return None;
        }
        // While the table cannot be asked they wait where they are, where their number is limited.
        if self.ended.len() < self.options.status_queue {
            for claim in self.line.take_returned() {
                self.end(claim, Outcome::GivenBack);
            }
        }
        if let Some((ended, _)) = &mut self.untaken {
            // Without a claim beside them.
            let ended = mem::take(ended);
            return Some(self.tick(ended, Vec::new(), None));
        }
        let full = self.ended.len() >= self.options.status_batch.min(self.options.status_queue);
        let aged = self.first_ended.is_some_and(|first| first + self.options.status_wait <= now);
        let stores = !self.ended.is_empty() && (full || aged || self.stopping.is_some());
        let renews = self.stopping.is_none() && self.next_renewal.is_some_and(|at| at <= now);
        // Where it is asked anyway, a look that would come soon is made with it.
        let early = if stores || renews { self.poll.min(self.options.poll) / 2 } else { Duration::ZERO };
        let claims = self.next_claim <= now + early && self.may_claim(now) || self.lost.is_some();
        let beats = self.next_beat().is_some_and(|at| at <= now);
        if !stores && !renews && !claims && !beats {
            return None;
        }
        let ended = self.next_ended();
        // What did not fit goes with the next call, at once.
        let aged = now.checked_sub(self.options.status_wait).unwrap_or(now);
        self.first_ended = (!self.ended.is_empty()).then_some(aged);
        let renewed = if renews { self.renewals(now) } else { Vec::new() };
        self.woken &= !claims;
        let claiming = claims.then(|| Claiming {
            token: self.lost.map_or_else(|| self.line.token(), |lost| lost.token),
            rows: if self.pause.is_probing() && self.lost.is_none() { 1 } else { self.options.claim },
            bytes: self.options.claim_bytes,
            again: self.lost.is_some(),
        });
        Some(self.tick(ended, renewed, claiming))
    }

    /// Where order is kept: when the relay is to say that it is alive, if it does not look anyway.
    fn next_beat(&self) -> Option<Instant> {
        let until = self.alive_until.filter(|_| self.stopping.is_none())?;
        Some(until.checked_sub(self.options.lease * 2 / 3).unwrap_or(until))
    }

    fn next_ended(&mut self) -> Vec<Ended> {
        let mut others = 0;
        let fits = |ended: &&Ended| {
            others += usize::from(ended.outcome != Outcome::Sent);
            others <= OTHERS_MAX
        };
        let most = self.ended.iter().take(self.options.status_batch).take_while(fits).count();
        self.ended.drain(..most).collect()
    }

    fn may_claim(&self, now: Instant) -> bool {
        let few = if self.pause.is_probing() { 1 } else { self.options.claim };
        let has_room = self.waiting.len() < few && self.waiting.bytes() < WAITING_BYTES;
        self.stopping.is_none() && !self.pause.is_on(now) && has_room
    }

    fn tick(&self, ended: Vec<Ended>, renewed: Vec<Claim>, claiming: Option<Claiming>) -> Tick {
        let RelayOptions { stale, lease, .. } = self.options;
        let (instance, joins) = (self.instance.clone(), !self.has_joined);
        Tick { instance, joins, stale: stale.max(lease), ended, renewed, lease, claiming }
    }

    pub(super) fn tell(&mut self, tick: Tick, begun: Instant) -> BoxFuture<'static, Told> {
        self.unstored += tick.ended.len();
        self.counted.ticks.fetch_add(1, Ordering::Relaxed);
        let table = self.table.clone();
        Box::pin(async move {
            let answer = table.tick(&tick).await;
            Told { tick, begun, answer }
        })
    }

    /// Claims that have gone on for a third of their lease. The others say when they will have.
    fn renewals(&mut self, now: Instant) -> Vec<Claim> {
        let held = self.waiting.held().chain(self.under_way.values().flatten());
        let (due, others): (Vec<&Held>, Vec<&Held>) = held.partition(|held| held.renew_at <= now);
        let claims = due.iter().map(|held| held.claim.clone()).collect();
        // Those that are renewed are asked for again soon if the answer does not come.
        let again = (!due.is_empty()).then(|| now + AGAIN);
        self.next_renewal = others.iter().map(|held| held.renew_at).min().into_iter().chain(again).min();
        claims
    }

    pub(super) fn told(&mut self, Told { tick, begun, answer }: Told) {
        self.unstored -= tick.ended.len();
        let now = Instant::now();
        match answer {
            Ok(ticked) => {
                if mem::take(&mut self.failures) > 0 {
                    tracing::info!(table = self.table.name(), "the table answers again");
                }
                self.answered(tick, begun, ticked, now);
            }
            Err(error) => self.unanswered(tick, begun, &error, now),
        }
    }

    fn unanswered(&mut self, tick: Tick, begun: Instant, error: &StoreError, now: Instant) {
        if let Some(Claiming { token, again: false, .. }) = tick.claiming {
            self.lost = error.is_unknown_outcome().then_some(Lost { token, begun });
        }
        match &mut self.untaken {
            Some((untaken, _)) => *untaken = tick.ended,
            None => {
                self.first_ended = self.first_ended.or_else(|| (!tick.ended.is_empty()).then_some(begun));
                let later = mem::replace(&mut self.ended, tick.ended);
                self.ended.extend(later);
            }
        }
        let wait = AGAIN.saturating_mul(1u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(AGAIN_MAX);
        if self.failures == 0 {
            tracing::warn!(table = self.table.name(), error = %chain(error), "the table cannot be asked; it is tried again");
        }
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + wait;
    }

    fn answered(&mut self, tick: Tick, begun: Instant, ticked: Ticked, now: Instant) {
        if ticked.forgotten {
            self.join_again(now);
        } else {
            self.has_joined = true;
            self.alive_until = self.alive_until.map(|_| begun + self.options.lease);
        }
        let Ticked { ended, renewed, claimed, more, next, .. } = ticked;
        let told = tick.ended.len();
        let later = |ended: &Ended| if let Outcome::Later(after, _) = &ended.outcome { Some(*after) } else { None };
        let again = tick.ended.iter().filter_map(later).min().map(|after| now + after.max(SOONEST));
        let given_back = tick.ended.iter().any(|ended| ended.outcome == Outcome::GivenBack);
        if let Some((_, before)) = self.untaken.take() {
            let missing = tick.ended.len().saturating_sub(before + ended);
            self.counted.overtaken.fetch_add(missing as u64, Ordering::Relaxed);
        } else if ended < tick.ended.len() && tick.claiming.is_some() {
            self.untaken = Some((tick.ended, ended));
        } else {
            let missing = tick.ended.len() - ended.min(tick.ended.len());
            self.counted.overtaken.fetch_add(missing as u64, Ordering::Relaxed);
        }
        if !tick.renewed.is_empty() {
            self.go_on(&tick.renewed, &renewed, begun);
        }
        // Where order is kept, what was told beside a claim has freed keys that the claim has not seen.
        let frees = given_back || self.alive_until.is_some() && told > 0;
        let is_free = frees && self.stopping.is_none();
        let Some(claiming) = tick.claiming else {
            self.next_claim = if is_free { now } else { again.map_or(self.next_claim, |at| at.min(self.next_claim)) };
            return;
        };
        let begun = self.lost.take().filter(|_| claiming.again).map_or(begun, |lost| lost.begun);
        // While something is sent there is a look every so often.
        let idles = claimed.is_empty() && told == 0;
        self.poll = if idles { (self.poll * 2).min(self.poll_idle()) } else { self.options.poll };
        let soonest = next.map(|next| now + next.max(SOONEST));
        let rest = if told > 0 { self.poll.min(AFTER_STATUSES) } else { self.poll };
        // Who has woken it since this was asked has stored something that was not seen yet.
        let at_once = more || claiming.again || is_free || self.woken;
        let usual = if at_once { now } else { now + rest };
        self.next_claim = soonest.map_or(usual, |soonest| usual.min(soonest));
        self.next_claim = again.map_or(self.next_claim, |at| at.min(self.next_claim));
        let mut stuck = HashSet::new();
        for row in claimed {
            let key = row.key.clone().filter(|_| self.alive_until.is_some());
            if key.as_ref().is_some_and(|key| stuck.contains(key)) {
                self.end(row.claim, Outcome::GivenBack);
            } else if !self.claimed(row, begun) {
                stuck.extend(key);
            }
        }
    }

    /// Others were told that this relay is gone, and may send what it has: it begins anew as another one.
    fn join_again(&mut self, now: Instant) {
        let dropped = self.waiting.take().count();
        self.counted.overdue.fetch_add(dropped as u64, Ordering::Relaxed);
        tracing::warn!(table = self.table.name(), dropped, "this relay was not heard of for a lease, and begins anew");
        self.instance = Arc::new(Instance { id: fastrand::i64(1..), ..(*self.instance).clone() });
        self.has_joined = false;
        self.orphans = self.calls;
        self.alive_until = Some(now);
        self.next_claim = now;
    }

    /// Leases that go on, and those that somebody else has: these are not sent from here any more.
    fn go_on(&mut self, asked: &[Claim], renewed: &[Claim], begun: Instant) {
        let lease = self.options.lease;
        let mut go_on = |held: &mut Held| {
            if renewed.contains(&held.claim) {
                *held = Held::new(held.claim.clone(), held.attempts, begun, lease);
            } else if asked.contains(&held.claim) {
                held.until = begun;
                held.renew_at = begun + self.options.stale;
            }
            self.next_renewal = Some(self.next_renewal.map_or(held.renew_at, |next| next.min(held.renew_at)));
        };
        self.waiting.held_mut().for_each(&mut go_on);
        self.under_way.values_mut().flatten().for_each(go_on);
    }

    /// Whether what comes behind it in its lane may go.
    fn claimed(&mut self, row: Claimed, begun: Instant) -> bool {
        let Claimed { claim, attempts, expired, outgoing, .. } = row;
        let may_go = expired || attempts <= self.options.attempts_max && outgoing.is_ok();
        match outgoing {
            _ if self.stopping.is_some() => self.end(claim, Outcome::GivenBack),
            _ if expired => self.end(claim, Outcome::Expired),
            // Who counted the last one may have died of it.
            _ if attempts > self.options.attempts_max => {
                self.end(claim, Outcome::Failed(format!("{} attempts were made and none has ended", attempts - 1)));
            }
            Ok(outgoing) => self.hold(Held::new(claim, attempts, begun, self.options.lease), outgoing),
            Err(why) => self.end(claim, Outcome::Failed(why)),
        }
        may_go
    }

    fn poll_idle(&self) -> Duration {
        let idle = self.options.idles(self.table.is_told());
        // Who keeps order is alive for others as long as it looks.
        if self.alive_until.is_some() { idle.min(self.options.lease / 3) } else { idle }
    }

    /// When there is something to do again, if nothing comes before.
    pub(super) fn next_look(&self, now: Instant, is_telling: bool) -> Instant {
        let mut at = now + self.poll_idle();
        let mut by = |time: Option<Instant>| at = time.map_or(at, |time| at.min(time));
        by(self.stopping);
        by(self.pause.until().filter(|until| now < *until));
        if !is_telling {
            let asked = self.may_claim(now).then_some(self.next_claim);
            let owed = (self.untaken.is_some() || self.lost.is_some()).then_some(now);
            let aged = self.first_ended.map(|first| first + self.options.status_wait);
            let renewal = self.next_renewal.filter(|_| self.stopping.is_none());
            let next = [asked, owed, aged, renewal, self.next_beat()].into_iter().flatten().min();
            by(next.map(|next| next.max(self.not_before)));
        }
        at
    }
}
