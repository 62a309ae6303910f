//! Steps 2 to 4 of a pass: what becomes of each message, and its handler, on a copy of the state.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;

use super::{
    Again, Incoming, Outcome, SagaManager,
    draft::Draft,
    outcome::repeated,
    passes::text_of,
    timeouts::TIMEOUT_OF_NO_SAGA,
    verdicts::{Verdict, Verdicts},
};
use crate::{
    context::{Context, Effects},
    entity::OutboxEntry,
    handler_error::HandlerError,
    ids::EntityKey,
    metrics::Event,
    ports::Known,
    registry::{Completed, Missing, REUSED, ReusedId, Route},
    saga::Saga,
    time::{Monotonic, Timestamp},
};

/// Messages of a pass that are judged between two looks at the clock, which cost as much as a quick handler.
const CLOCK_EVERY: usize = 8;

impl<T: Saga> SagaManager<T> {
    /// Judges the messages in order, until one fails. What comes after it is left for the next pass.
    pub(super) async fn judge(
        &self,
        draft: &mut Draft<T>,
        key: &EntityKey,
        messages: &mut [Incoming],
        known: &Known,
        (now, enough): (Timestamp, Monotonic),
        verdicts: &mut Verdicts,
    ) {
        let repeated = repeated(messages);
        for index in 0..messages.len() {
            // Many slow handlers would take the pass past its deadline, and then none of them would be saved.
            if index % CLOCK_EVERY == 0 && draft.is_changed() && self.in_time(enough).await.is_err() {
                break;
            }
            let (before, rest) = messages.split_at_mut(index);
            let Some(message) = rest.first_mut() else { break };
            let same = |earlier: &Incoming| earlier.key == message.key && earlier.fingerprint == message.fingerprint;
            verdicts.0[index] = match repeated[index].then(|| before.iter().position(same)) {
                Some(Some(first)) => Verdict::CopyOf(first),
                Some(None) => Box::pin(self.judge_namesake(draft, key, message, known, now)).await,
                None => self.judge_one(draft, key, message, known, now).await,
            };
            if verdicts.0[index].ends_pass() {
                break;
            }
        }
    }

    /// Another body came under this identity earlier in the pass. Whose the identity is, only what is remembered can tell;
    /// and if it is that other's because this pass has handled it, it is so only once that is saved.
    async fn judge_namesake(
        &self,
        draft: &mut Draft<T>,
        key: &EntityKey,
        message: &mut Incoming,
        known: &Known,
        now: Timestamp,
    ) -> Verdict {
        let verdict = if draft.processed().iter().any(|mark| mark.key == message.key) {
            self.reused_id(message)
        } else {
            self.judge_one(draft, key, message, known, now).await
        };
        match verdict {
            Verdict::Decided(outcome @ (Outcome::DeadLetter(_) | Outcome::Dropped(_))) => Verdict::Loaded(outcome),
            other => other,
        }
    }

    async fn judge_one(
        &self,
        draft: &mut Draft<T>,
        key: &EntityKey,
        message: &mut Incoming,
        known: &Known,
        now: Timestamp,
    ) -> Verdict {
        let entry = draft.entity().entry(&message.key);
        if let Some(seen) = known.entry(&message.key) {
            if seen.fingerprint != message.fingerprint {
                return self.reused_id(message);
            }
            // An entry of the seen attempt is no longer in the draft. One of another attempt is work that was done
            // again, because its mark had been evicted: it is sent, and said aloud.
            return match entry {
                None => Verdict::Over { reply: seen.reply.clone() },
                Some(entry) => {
                    let message_id = &message.envelope.message_id;
                    tracing::error!(entity = %key, %message_id, "handled twice: retention is shorter than the longest redelivery; raise it");
                    self.ports.metrics.observe(Event::RetentionBreached(key));
                    Verdict::Entry(entry.attempt)
                }
            };
        }
        if let Some(entry) = entry {
            if entry.fingerprint != message.fingerprint {
                return self.reused_id(message);
            }
            return Verdict::Entry(entry.attempt);
        }
        if known.is_folded(&message.key) {
            return Verdict::Over { reply: None }; // Its body and its reply are no longer remembered.
        }
        let Some(route) = self.registry.of(&message.envelope.message_type) else {
            return Verdict::Decided(Outcome::DeadLetter(format!("{} has no handler", message.envelope.message_type)));
        };
        match self.may_handle(draft, route, message, now) {
            Some(verdict) => verdict,
            // All of it, not the handler alone: the user's code also reads and writes state and messages. The draft changes
            // last, so a run that panicked has left nothing in it. In a box, since passes wait for their stores most of the
            // time, and what they hold then has to be small.
            None => match AssertUnwindSafe(Box::pin(self.handle(draft, key, route, message, now))).catch_unwind().await
            {
                Ok(verdict) => verdict,
                Err(panic) => {
                    let why = format!("the handler panicked: {}", text_of(&*panic));
                    Verdict::Loaded(Outcome::Failed(HandlerError::transient(why)))
                }
            },
        }
    }

    /// Reasons not to run the handler, which all rest on what was loaded. `None`: run it.
    fn may_handle(&self, draft: &Draft<T>, route: &Route<T>, message: &Incoming, now: Timestamp) -> Option<Verdict> {
        let (envelope, entity) = (&message.envelope, draft.entity());
        let outcome = if envelope.expires.is_some_and(|expires| expires < now) {
            Outcome::Dropped("expired")
        } else if envelope.timeout && !entity.timeouts.iter().any(|t| t.message_id == envelope.message_id) {
            Outcome::Dropped(if draft.is_absent() { TIMEOUT_OF_NO_SAGA } else { "timeout not live" })
        } else if message.attempts > self.limits.poison_above {
            let times = message.attempts - 1;
            Outcome::DeadLetter(format!("poison: given {times} times and never settled, the process may die of it"))
        } else if entity.completed {
            match self.registry.completed {
                Completed::Drop => Outcome::Dropped("saga completed"),
                Completed::DeadLetter => Outcome::DeadLetter("the saga is complete".into()),
            }
        } else if draft.is_absent() && !route.starts {
            let why = "there is no such saga, and this message may not start one";
            match self.registry.missing {
                Missing::Retry => Outcome::Failed(HandlerError::transient(why)),
                Missing::Drop => Outcome::Dropped("saga missing"),
                Missing::DeadLetter => Outcome::DeadLetter(why.into()),
            }
        } else if entity.outbox.len() >= self.limits.entries_max {
            return Some(Verdict::Decided(Outcome::Again(Again::Full)));
        } else {
            return None;
        };
        Some(Verdict::Loaded(outcome))
    }

    /// Runs the handler on a copy and takes the result into the draft, if it fits.
    async fn handle(
        &self,
        draft: &mut Draft<T>,
        key: &EntityKey,
        route: &Route<T>,
        message: &mut Incoming,
        now: Timestamp,
    ) -> Verdict {
        let failed = |e: HandlerError| Verdict::Loaded(Outcome::of_run(e));
        let decoded = match message.decoded.take() {
            Some(decoded) => decoded,
            None => match self.read(route, message.whole()) {
                Ok((_, decoded)) => decoded,
                Err(e) => return failed(e),
            },
        };
        let mut state = match draft.take_state() {
            Ok(state) => state,
            // Perhaps another version of this program can: the message waits for it, uncounted.
            Err(e) => {
                return Verdict::Decided(Outcome::Again(Again::Malformed(format!(
                    "the stored state cannot be read: {e}"
                ))));
            }
        };
        let envelope = message.whole().clone();
        let mut cx = Context::new(envelope, key.clone(), message.key, now, self.codec, self.services.clone())
            .traced(&message.trace)
            .sealing(&self.seals);
        if let Err(e) = message.trace.within(route.handle(&mut state, decoded, &mut cx)).await {
            return failed(e);
        }
        let Some(effects) = cx.into_effects(message.whole()) else {
            return failed(HandlerError::permanent("the handler replaced its context"));
        };
        match self.accept(draft, key, message, state, effects, now).await {
            Ok(verdict) => verdict,
            Err(e) => failed(e),
        }
    }

    /// Takes a run's result into the draft: what it wants to send must be sendable, and all of it must fit the store,
    /// before anything is saved (S67, S68).
    async fn accept(
        &self,
        draft: &mut Draft<T>,
        key: &EntityKey,
        message: &Incoming,
        state: T,
        effects: Effects,
        now: Timestamp,
    ) -> Result<Verdict, HandlerError> {
        let Effects { mut outgoing, reply, timeouts, cancelled, completed } = effects;
        self.check_timeouts(key, &timeouts, &outgoing)?;
        let attempt = self.ports.ids.attempt().await;
        let staged = self.spill(key, attempt, &mut outgoing, reply)?;
        // Before they are measured: a number takes its room, too. That of an attempt that comes to nothing is missed by nobody.
        if self.ports.ids.numbers() {
            self.ports.ids.number(&mut outgoing).await;
        }
        for outgoing in &outgoing {
            self.ports.dispatcher.check(outgoing).map_err(|refused| {
                HandlerError::permanent(format!("{} can never be sent: {refused}", outgoing.envelope.message_type))
            })?;
        }
        let stored = if completed { None } else { Some(Draft::encode(&state, self.codec)?) };
        let capabilities = self.ports.stores.entities.capabilities();
        let entry = Arc::new(OutboxEntry {
            key: message.key,
            attempt,
            fingerprint: message.fingerprint,
            commit: draft.entity().commits + 1,
            saved_at: now,
            outgoing,
            reply,
            reply_sent: false,
        });
        self.check_reply(&entry)?;
        // Only a message that has nothing to send may be marked in the commit that saves it (S04).
        let mark_now = capabilities.together && entry.outgoing.is_empty();
        let mut entity = draft.with(stored, &entry);
        entity.timeouts.retain(|t| t.message_id != message.envelope.message_id && !cancelled.contains(&t.message_id));
        entity.timeouts.extend(timeouts);
        if entity.completed {
            entity.timeouts.clear();
        }
        let (kept, mark) = if mark_now { (None, Some(entry.to_dedup_entry())) } else { (Some(entry), None) };
        let added = kept.as_ref().map_or(0, |entry| entry.size());
        let (bytes, bytes_max) = (entity.size() + draft.waiting() + added, capabilities.entity_bytes_max);
        if bytes > bytes_max {
            if draft.is_changed() {
                return Ok(Verdict::Decided(Outcome::Rest)); // It may fit without those before it.
            }
            if bytes - draft.waiting() <= bytes_max {
                return Ok(Verdict::Decided(Outcome::Again(Again::Full))); // It fits once they have been sent (S68).
            }
            return Err(HandlerError::permanent(format!(
                "the saga would have {bytes} bytes with its outbox; {} takes {bytes_max}",
                capabilities.name
            )));
        }
        if !staged.is_empty()
            && let Err(again) = Box::pin(self.stage(&staged)).await
        {
            return Ok(Verdict::Decided(Outcome::Again(again)));
        }
        draft.accept(entity, kept, state, mark);
        Ok(if mark_now { Verdict::Marked } else { Verdict::Entry(attempt) })
    }

    fn reused_id(&self, message: &Incoming) -> Verdict {
        let rule = self.registry.of(&message.envelope.message_type).map_or_else(ReusedId::default, |r| r.reused_id);
        // Nothing of this rests on the load: an identity that is remembered has been used, once and for all.
        Verdict::Decided(match rule {
            ReusedId::Drop => Outcome::Dropped("id reused"),
            ReusedId::DeadLetter => {
                Outcome::DeadLetter(format!("the identity of {} {REUSED}", message.envelope.message_id))
            }
        })
    }
}
