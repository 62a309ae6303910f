//! Giving letters back to the endpoint, or sending them on their way, in the order of each entity.

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{super::lanes::RETRY_SAGA, AT_ONCE, DeadLetterOffice, Deed, Filter, Same, actions::Call};
use crate::{
    envelope::{Destination, Outgoing},
    handler_error::chain,
    ids::{EntityKey, MessageId, PartitionKey, SagaName},
    ports::{DeadLetter, Receipt, StoreError},
    time::Timestamp,
};

/// Letters that are written at the same time.
const WRITES_AT_ONCE: usize = 16;
/// Reasons that are told; beyond them, letters are only counted.
const REASONS_MAX: usize = 100;
const HELD_UP: &str = "one before it could not be sent";

/// What became of letters that were to be retried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Retried {
    /// Sent, confirmed by the broker. What cannot be handled again becomes a letter again.
    pub done: usize,
    /// Still letters.
    pub left: usize,
    /// Why, for the first hundred of them.
    pub reasons: Vec<Left>,
}

/// A letter that was not retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// About which message.
    pub message_id: MessageId,
    /// Whose saga could not handle it, or has sent it.
    pub saga: Option<SagaName>,
    /// Why.
    pub reason: String,
}

impl Retried {
    fn leave(&mut self, letter: &DeadLetter, why: impl Into<String>) {
        self.left += 1;
        if self.reasons.len() < REASONS_MAX {
            let (message_id, saga) = (letter.envelope.message_id.clone(), letter.saga.clone());
            self.reasons.push(Left { message_id, saga, reason: why.into() });
        }
    }

    fn and(&mut self, other: Self) {
        self.done += other.done;
        self.left += other.left;
        self.reasons.extend(other.reasons);
        self.reasons.truncate(REASONS_MAX);
    }
}

/// What must not overtake each other.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Lane {
    Entity(EntityKey),
    /// Where nobody can tell the entity.
    Saga(Option<SagaName>),
    Outgoing(Destination, PartitionKey),
}

impl DeadLetterOffice {
    /// Gives each of `letters` to the endpoint again, or sends it where it was to go, under its own id: what of it has taken effect
    /// is recognised. Of one entity, each is sent when the one before it is confirmed, in the order given; where one cannot be sent,
    /// those after it stay.
    ///
    /// A letter that was set aside longer ago than dedup entries are [kept](crate::endpoint::Settings::retention) stays: if a copy of
    /// its message was handled after all, nobody knows any more. See [`retry_beyond_retention`](Self::retry_beyond_retention).
    ///
    /// # Errors
    /// Those of the place where letters are kept and of the store of the record. Then some may have been sent, and are listed: they
    /// may be retried again.
    pub async fn retry(&self, letters: &[DeadLetter]) -> Result<Retried, StoreError> {
        self.retry_each(letters, Deed::Retried).await
    }

    /// As [`retry`](Self::retry), whatever the age: for somebody who has made sure that the messages had no effect.
    ///
    /// # Errors
    /// As for [`retry`](Self::retry).
    pub async fn retry_beyond_retention(&self, letters: &[DeadLetter]) -> Result<Retried, StoreError> {
        self.retry_each(letters, Deed::RetriedBeyondRetention).await
    }

    /// As [`retry`](Self::retry), for all letters that `filter` wants, oldest first; those that come meanwhile excepted.
    ///
    /// # Errors
    /// As for [`retry`](Self::retry).
    pub async fn retry_all(&self, filter: &Filter) -> Result<Retried, StoreError> {
        let filter = filter.until_now(self.clock.now().await.0);
        let (mut outcome, mut stuck, mut met) = (Retried::default(), HashSet::new(), HashSet::new());
        let mut call = Call::new(Deed::Retried);
        loop {
            // What is left is listed before what has not been looked at yet.
            let mut letters = self.list(&filter, outcome.left, AT_ONCE).await?;
            if letters.is_empty() {
                return Ok(outcome);
            }
            // By a clock that is behind, what fails again is of before this call.
            letters.retain(|letter| {
                let is_new = met.insert((letter.envelope.message_id.clone(), letter.saga.clone()));
                if !is_new {
                    outcome.leave(letter, "it has failed again");
                }
                is_new
            });
            outcome.and(self.retry_some(&letters, &mut call, &mut stuck).await?);
        }
    }

    async fn retry_each(&self, letters: &[DeadLetter], deed: Deed) -> Result<Retried, StoreError> {
        let (mut outcome, mut stuck, mut call) = (Retried::default(), HashSet::new(), Call::new(deed));
        let mut met = HashSet::new();
        for letters in letters.chunks(AT_ONCE) {
            let mut there: Vec<DeadLetter> = Vec::new();
            for letter in letters {
                if !met.insert(Same::as_of(letter)) {
                    continue; // It was named twice, and is sent once.
                }
                // A list may be old: what somebody has given up since must not take effect.
                match self.is_there(letter).await? {
                    true => there.push(letter.clone()),
                    false => outcome.leave(letter, "it is not there any more"),
                }
            }
            outcome.and(self.retry_some(&there, &mut call, &mut stuck).await?);
        }
        Ok(outcome)
    }

    async fn retry_some(
        &self,
        letters: &[DeadLetter],
        call: &mut Call,
        stuck: &mut HashSet<Lane>,
    ) -> Result<Retried, StoreError> {
        let (mut outcome, now) = (Retried::default(), self.clock.now().await.0);
        // What must stay holds up what comes after it, and not what comes before it.
        let (mut waiting, mut stays) = (Vec::new(), HashSet::new());
        for letter in letters {
            let lane = self.lane(letter);
            match self.outgoing(letter, call.deed, now) {
                Ok(_) if lane.as_ref().is_some_and(|lane| stays.contains(lane)) => outcome.leave(letter, HELD_UP),
                Ok(outgoing) => waiting.push((lane, letter, outgoing)),
                Err(why) => {
                    outcome.leave(letter, why);
                    stays.extend(lane);
                }
            }
        }
        let meant: Vec<DeadLetter> = waiting.iter().map(|(_, letter, _)| (*letter).clone()).collect();
        self.record(call, &meant).await?;
        // Each round has one letter of each lane at most.
        while !waiting.is_empty() {
            let (mut lanes, mut round, mut later) = (HashSet::new(), Vec::new(), Vec::new());
            for (lane, letter, outgoing) in waiting {
                match &lane {
                    Some(lane) if stuck.contains(lane) => outcome.leave(letter, HELD_UP),
                    Some(lane) if !lanes.insert(lane.clone()) => later.push((Some(lane.clone()), letter, outgoing)),
                    _ => round.push((lane, letter, outgoing)),
                }
            }
            self.send(round, stuck, &mut outcome).await?;
            waiting = later;
        }
        stuck.extend(stays);
        Ok(outcome)
    }

    /// Holds the letters, takes them from where they are, sends them and lets them go.
    async fn send(
        &self,
        round: Vec<(Option<Lane>, &DeadLetter, Outgoing)>,
        stuck: &mut HashSet<Lane>,
        outcome: &mut Retried,
    ) -> Result<(), StoreError> {
        let held: Vec<DeadLetter> = round.iter().map(|(_, letter, _)| self.in_hand(letter)).collect();
        // Begun here: of a closure over borrowed letters the compiler does not see that it may move between threads, and nobody could retry in a
        // task of tokio or a handler of axum.
        let holding: Vec<_> = held.iter().map(|letter| self.letters.add(letter)).collect();
        stream::iter(holding).buffer_unordered(WRITES_AT_ONCE).try_collect::<()>().await?;
        let letters: Vec<DeadLetter> = round.iter().map(|(_, letter, _)| (*letter).clone()).collect();
        self.letters.discard(&letters).await?;
        let outgoing: Vec<Outgoing> = round.iter().map(|(_, _, outgoing)| outgoing.clone()).collect();
        let results = self.dispatcher.dispatch(&outgoing).await;
        let mut sent = Vec::new();
        for (((lane, letter, _), held), result) in round.into_iter().zip(held).zip(results) {
            match result {
                Ok(()) => sent.push(held),
                Err(error) => {
                    // Somebody else may have let it go meanwhile.
                    self.letters.add(&held).await?;
                    outcome.leave(letter, chain(&error));
                    stuck.extend(lane);
                }
            }
        }
        self.letters.discard(&sent).await?;
        outcome.done += sent.len();
        Ok(())
    }

    /// The message of `letter` on its way, or why it must stay.
    fn outgoing(&self, letter: &DeadLetter, deed: Deed, now: Timestamp) -> Result<Outgoing, String> {
        if deed != Deed::RetriedBeyondRetention && now.since(letter.time) > self.retention {
            return Err(format!(
                "it was set aside longer ago than dedup entries are kept ({:?}): if a copy of it was handled after all, nobody \
                 knows any more; make sure that it was not, and retry it beyond retention",
                self.retention
            ));
        }
        if let Some(expires) = letter.envelope.expires.filter(|expires| *expires <= now) {
            return Err(format!(
                "it is not worth handling after {expires}, and would be dropped: edit its `expires`, or discard it"
            ));
        }
        let mut envelope = letter.envelope.clone();
        let destination = match (&letter.destination, &letter.saga) {
            (Some(destination), _) => destination.clone(),
            (None, saga) => {
                if let Some(saga) = saga {
                    let mut only = (*envelope).clone();
                    let set = only.headers.set(RETRY_SAGA, saga.as_str());
                    set.map_err(|e| format!("there is no room for the header that names its saga: {e}"))?;
                    envelope = only.into();
                }
                Destination::Endpoint(self.endpoint.clone())
            }
        };
        let outgoing = Outgoing { destination, envelope };
        self.dispatcher.check(&outgoing).map_err(|refused| refused.0)?;
        Ok(outgoing)
    }

    /// What `letter` must not overtake; `None` where that cannot be told.
    fn lane(&self, letter: &DeadLetter) -> Option<Lane> {
        if let Some(destination) = &letter.destination {
            let key = letter.envelope.partition_key.clone()?;
            return Some(Lane::Outgoing(destination.clone(), key));
        }
        let Some(managers) = &self.managers else { return Some(Lane::Saga(letter.saga.clone())) };
        let manager = managers.iter().find(|manager| letter.saga.as_ref() == Some(&manager.scope().saga))?;
        let routed = manager.route(&letter.envelope, Receipt::number(0), letter.attempts);
        routed.ok().map(|(key, _)| Lane::Entity(key))
    }
}
