//! From a message under a lease to its settlement: pass, outcome, retry, settle.
//!
//! Like the manager it awaits nothing but ports, and a model explores it as it is. What may repeat does so only as long
//! as the back-off port grants it, so every delivery ends. Ack comes last (S06): whatever happens before it, the message
//! comes again, and the next pass finds out what had been done.

mod read_aloud;
mod recoverability;
mod tries;

use std::{sync::Arc, time::Duration};

pub use recoverability::{Last, On, Recoverability, Rule};
pub use tries::Tries;

use crate::{
    handler_error::HandlerError,
    ids::{EntityKey, SagaName},
    manager::{Again, Incoming, Outcome, Passes},
    metrics::{Ending, Event, Metrics},
    ports::{Backoff, Cause, Clock, DeadLetter, DeadLetters, Granted, Receiver, Settled, Settlement},
};

/// What a delivery asks of the world.
#[derive(Debug, Clone)]
pub struct Deliver {
    /// Who settles.
    pub receiver: Arc<dyn Receiver>,
    /// Where messages are set aside; `None`: in the broker's own place. Never both.
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    /// How long to wait before another try, and when it is enough.
    pub backoff: Arc<dyn Backoff>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Who wants to know.
    pub metrics: Arc<dyn Metrics>,
    /// When a message is given up.
    pub recoverability: Recoverability,
    /// Messages of one entity that are handled and saved together at most.
    pub pass_max: usize,
}

/// Rest of a message whose entity this program cannot read: until another version of it takes the message, or a person has
/// looked. Short, for while two versions work side by side every other try may meet the one that can.
const UNREADABLE_REST: Duration = Duration::from_secs(5);

impl Deliver {
    /// Takes `messages`, which are all for `key`, to their settlement. Dropping the future is like a crash: what is not
    /// settled comes again when its lease runs out.
    pub async fn deliver(&self, manager: &dyn Passes, key: &EntityKey, mut messages: Vec<Incoming>) {
        let mut tries = Streaks::default();
        let mut pass_max = self.pass_max.max(1);
        let mut failing = false;
        while !messages.is_empty() {
            let size = if failing { 1 } else { pass_size(&messages, pass_max) };
            let outcomes = manager.pass(key, &mut messages[..size], &[]).await;
            let mut cause = None;
            let mut kept: Vec<(Incoming, Outcome)> = Vec::new();
            let rest = messages.split_off(size);
            for (message, outcome) in messages.into_iter().zip(outcomes) {
                let outcome = if size == 1 { too_slow(outcome) } else { outcome };
                let Some(outcome) = self.settle(key, &message, outcome).await else {
                    tries = Streaks::default();
                    continue;
                };
                cause = cause.or_else(|| cause_of(&outcome));
                if let Outcome::Again(Again::TooLarge(_) | Again::Deadline) = &outcome {
                    pass_max = (size / 2).max(1);
                }
                kept.push((message, outcome));
            }
            // What failed goes first and alone, so that order is kept and a crash charges nobody else.
            failing = matches!(kept.first(), Some((_, Outcome::Failed(_))));
            let granted = match cause {
                // Waiting here would only hold up others.
                Some(_) if kept.iter().any(|(_, outcome)| self.is_for_later(outcome)) => Granted::Stop,
                Some(cause) => {
                    self.metrics.observe(Event::Retried(key, cause));
                    self.backoff.pause(cause, tries.next(cause)).await
                }
                None => Granted::Try,
            };
            if granted == Granted::Stop {
                kept = Box::pin(self.give_up(key, kept, size == 1)).await;
                tries = Streaks::default();
                failing = false;
            }
            messages = kept.into_iter().map(|(message, _)| message).chain(rest).collect();
        }
    }

    /// Settles what is decided; gives back the outcome that is not.
    async fn settle(&self, key: &EntityKey, message: &Incoming, outcome: Outcome) -> Option<Outcome> {
        if let Some(ending) = Ending::of(&outcome) {
            self.ended(key, message, ending);
        }
        match outcome {
            Outcome::Handled => self.metrics.observe(Event::Handled(key)),
            Outcome::Duplicate => self.metrics.observe(Event::Duplicate(key)),
            Outcome::Dropped(rule) => {
                let (message_id, message_type) = (&message.envelope.message_id, &message.envelope.message_type);
                tracing::info!(entity = %key, %message_id, %message_type, rule, "dropped");
                self.metrics.observe(Event::Dropped(key, rule));
            }
            // Rare, and large: see `Lanes::begin`.
            Outcome::DeadLetter(reason) => return Box::pin(self.set_aside(key, message, reason)).await,
            undecided => return Some(undecided),
        }
        // In a box where there is more to it: few messages have anything elsewhere, and all of them wait.
        match message.fetched.is_none() {
            true => self.end(message, Settlement::Ack).await,
            false => Box::pin(self.acknowledge(message, None)).await,
        }
        None
    }

    /// Ack last: what is kept elsewhere for the message is let go of before, or the message comes again for it. `aside` needs it still.
    async fn acknowledge(&self, message: &Incoming, aside: Option<&SagaName>) {
        let settlement = match message.over(aside).await {
            Ok(()) => Settlement::Ack,
            Err(_) => Settlement::Retry { delay: UNREADABLE_REST, counts: false },
        };
        self.end(message, settlement).await;
    }

    /// Sets a message aside: first the letter, confirmed, then the ack.
    async fn set_aside(&self, key: &EntityKey, message: &Incoming, reason: String) -> Option<Outcome> {
        tracing::warn!(
            entity = %key,
            message_id = %message.envelope.message_id,
            message_type = %message.envelope.message_type,
            reason,
            "dead letter"
        );
        let Some(dead_letters) = &self.dead_letters else {
            self.end(message, Settlement::DeadLetter { reason }).await;
            self.dead_lettered(key, message);
            return None;
        };
        let letter = DeadLetter {
            envelope: message.envelope.clone(),
            endpoint: key.scope().endpoint.clone(),
            saga: Some(key.scope().saga.clone()),
            destination: None,
            reason,
            attempts: message.attempts,
            time: self.clock.now().await.0,
        };
        if let Err(e) = dead_letters.add(&letter).await {
            return Some(Outcome::Again(e.into()));
        }
        self.dead_lettered(key, message);
        self.acknowledge(message, Some(&key.scope().saga)).await;
        None
    }

    /// Whether another try here and now is not wanted.
    fn is_for_later(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Again(Again::Malformed(_)) => true,
            Outcome::Failed(error) => !self.recoverability.rule(error).0.in_place,
            _ => false,
        }
    }

    /// Ends what could not be ended within its budget. What has not been judged yet stays. A pass of several that is too large says
    /// of none of them that it is: only one that was `alone` is.
    async fn give_up(&self, key: &EntityKey, kept: Vec<(Incoming, Outcome)>, alone: bool) -> Vec<(Incoming, Outcome)> {
        let mut open = Vec::new();
        for (message, outcome) in kept {
            let counts = matches!(outcome, Outcome::Failed(_));
            let mut rest = match outcome {
                Outcome::Again(Again::Malformed(_)) => UNREADABLE_REST,
                _ => self.recoverability.usual().rest(message.attempts),
            };
            let dead = match outcome {
                Outcome::Rest => {
                    open.push((message, Outcome::Rest));
                    continue;
                }
                // The handler's work is saved. The message is over; the sweeper has the rest.
                Outcome::Unsent(why) => {
                    tracing::warn!(
                        entity = %key,
                        message_id = %message.envelope.message_id,
                        message_type = %message.envelope.message_type,
                        why,
                        "left to the sweeper"
                    );
                    self.metrics.observe(Event::LeftToSweeper(key));
                    self.ended(key, &message, Ending::LeftToSweeper);
                    Box::pin(self.acknowledge(&message, None)).await;
                    continue;
                }
                Outcome::Again(Again::TooLarge(why)) if alone => Some(why),
                Outcome::Failed(error) if message.attempts >= self.recoverability.rule(&error).0.attempts_max => {
                    let (rule, of) = self.recoverability.rule(&error);
                    if rule.last == Last::Drop {
                        let dropped = Outcome::Dropped(of.unwrap_or("failed for good"));
                        self.settle(key, &message, dropped).await;
                        continue;
                    }
                    Some(error.chain())
                }
                Outcome::Failed(error) => {
                    rest = self.recoverability.rule(&error).0.rest(message.attempts);
                    let (message_id, attempt) = (&message.envelope.message_id, message.attempts);
                    let message_type = &message.envelope.message_type;
                    tracing::info!(entity = %key, %message_id, %message_type, attempt, error = error.chain(), "failed, retried later");
                    self.metrics.observe(Event::Failed { key, message_id, attempt, error: &error });
                    None
                }
                // It comes again until some program can read it, and is no dead letter: who observes warns of it, or nobody would hear of it.
                Outcome::Again(Again::Malformed(why)) => {
                    let (message_id, message_type) = (&message.envelope.message_id, &message.envelope.message_type);
                    tracing::debug!(entity = %key, %message_id, %message_type, why, "what is stored cannot be read; retried later");
                    self.metrics.observe(Event::Unreadable { key, message_id, why: &why });
                    None
                }
                undecided => {
                    let (message_id, message_type) = (&message.envelope.message_id, &message.envelope.message_type);
                    tracing::info!(entity = %key, %message_id, %message_type, ?undecided, "retried later");
                    None
                }
            };
            let given_up = dead.is_some();
            let undecided = match dead {
                Some(reason) => self.set_aside(key, &message, reason).await.is_some(),
                None => true,
            };
            if undecided {
                self.ended(key, &message, Ending::Retried);
                // While its letter is not taken it would become poison, of which the process may die.
                self.end(&message, Settlement::Retry { delay: rest, counts: counts && !given_up }).await;
            }
        }
        open
    }

    fn dead_lettered(&self, key: &EntityKey, message: &Incoming) {
        self.metrics.observe(Event::DeadLettered(key));
        self.ended(key, message, Ending::DeadLettered);
    }

    /// Tells who follows the message.
    fn ended(&self, key: &EntityKey, message: &Incoming, ending: Ending) {
        message.trace.ended(ending);
        self.metrics.observe(Event::Ended(key, message, ending));
    }

    /// Tells the broker. If it does not hear, the message comes again and is recognised.
    async fn end(&self, message: &Incoming, settlement: Settlement) {
        match self.receiver.settle(&message.receipt, settlement).await {
            Ok(Settled::Done) => {}
            Ok(Settled::LeaseLost) => {
                tracing::debug!(message_id = %message.envelope.message_id, "settled after its lease was lost");
            }
            Err(error) => {
                tracing::debug!(message_id = %message.envelope.message_id, %error, "settling failed");
            }
        }
    }
}

/// How many of `messages` make a pass: fresh ones together, one on a later attempt alone, so that a message which
/// crashes the process charges nobody else's attempts.
fn pass_size(messages: &[Incoming], pass_max: usize) -> usize {
    match messages.iter().take(pass_max).position(|message| message.attempts > 1) {
        Some(0) => 1,
        Some(fresh) => fresh,
        None => messages.len().min(pass_max),
    }
}

/// A pass of one that is past its deadline before it has saved is its handler's fault: store calls have limits of their own.
/// Uncounted it would run for ever. That nobody else has saved meanwhile, the manager has made sure of.
fn too_slow(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Again(again @ Again::Deadline) => Outcome::Failed(HandlerError::transient(again.to_string())),
        other => other,
    }
}

const fn cause_of(outcome: &Outcome) -> Option<Cause> {
    match outcome {
        Outcome::Failed(_) => Some(Cause::Failure),
        Outcome::Unsent(_) | Outcome::Unanswered(_) => Some(Cause::Unsent),
        Outcome::Again(again) => Some(again.cause()),
        _ => None,
    }
}

/// How often in a row, for each cause.
#[derive(Default)]
struct Streaks {
    conflict: u32,
    failure: u32,
    unsent: u32,
    unavailable: u32,
}

impl Streaks {
    const fn next(&mut self, cause: Cause) -> u32 {
        let tries = match cause {
            Cause::Conflict => &mut self.conflict,
            Cause::Failure => &mut self.failure,
            Cause::Unsent => &mut self.unsent,
            Cause::Unavailable => &mut self.unavailable,
        };
        *tries += 1;
        *tries
    }
}
