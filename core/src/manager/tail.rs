//! The second half of a pass: dispatch, mark, clean up. Everything here may be repeated by whoever comes next.

use std::{slice, sync::Arc};

use super::{CLEAN_UP_TRIES, Few, Incoming, SagaManager, Stores, draft::Draft, verdicts::Verdicts};
use crate::{
    claim::is_claim,
    entity::{DedupEntry, Entity, Expected, OutboxEntry, Version},
    envelope::Outgoing,
    handler_error::chain,
    ids::{AttemptId, EntityKey},
    metrics::Event,
    ports::{DeadLetter, DispatchError, Finished, Saved, StoreError},
    saga::Saga,
    time::Monotonic,
};

/// Why an entry's messages are not all sent. They stay in the outbox.
#[derive(Debug)]
pub(super) struct Unsent(Box<Why>);

/// In a box: it is rare, and every pass has room for it.
#[derive(Debug)]
struct Why {
    why: String,
    sent: Few<usize>,
}

impl Unsent {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(Box::new(Why { why: why.into(), sent: Few::new() }))
    }

    pub(super) fn why(&self) -> &str {
        &self.0.why
    }

    /// The places of those that were sent.
    fn sent(&self) -> &[usize] {
        &self.0.sent
    }

    fn with(mut self, sent: impl IntoIterator<Item = usize>) -> Self {
        self.0.sent = sent.into_iter().collect();
        self
    }
}

/// Entries of which all was sent, and those of which it was not, with the reason.
type Tried = (Few<Arc<OutboxEntry>>, Few<(Arc<OutboxEntry>, Unsent)>);

impl<T: Saga> SagaManager<T> {
    /// Dispatches what the pass is to finish. What is not sent stays in the draft.
    pub(super) async fn dispatch_entries(
        &self,
        key: &EntityKey,
        draft: &mut Draft<T>,
        messages: &mut [Incoming],
        sweep: &[AttemptId],
        deadline: Monotonic,
        verdicts: &mut Verdicts,
    ) -> Tried {
        let ordered = self.registry.ordered_outputs;
        let (mut done, mut left): Tried = (Few::new(), Few::new());
        for entry in draft.entries_to_finish(verdicts, sweep, ordered) {
            if draft.is_new(&entry) {
                verdicts.first(&entry, messages);
            }
            if ordered && !left.is_empty() {
                let unsent = Unsent::new("an older entry of the saga has to be sent first");
                verdicts.held_up(&entry, messages, &unsent);
                left.push((entry, unsent));
                continue;
            }
            let sent = match entry.reply_sent {
                true => Box::pin(self.dispatch_unsent(key, &entry, deadline)).await,
                false => self.dispatch(key, &entry.outgoing, deadline).await,
            };
            let Err(unsent) = sent else {
                verdicts.answered(&entry, messages);
                if entry.unsent().next().is_some() {
                    self.ports.metrics.observe(Event::Dispatched(key, &entry));
                }
                done.push(entry);
                continue;
            };
            if entry.reply.is_some_and(|reply| unsent.sent().contains(&(reply as usize))) {
                verdicts.answered(&entry, messages);
            }
            if ordered {
                verdicts.held_up(&entry, messages, &unsent);
            }
            draft.sent_in_part(entry.attempt, unsent.sent());
            let swept = sweep.contains(&entry.attempt).then_some(entry.attempt);
            self.tell_sweep(key, swept.as_slice(), Err(unsent.why()));
            left.push((entry, unsent));
        }
        (done, left)
    }

    /// As [`dispatch`](Self::dispatch), of an entry whose answer has been sent and stays for duplicates.
    async fn dispatch_unsent(&self, key: &EntityKey, entry: &OutboxEntry, deadline: Monotonic) -> Result<(), Unsent> {
        let places: Few<usize> = entry.unsent().collect();
        let left: Few<Outgoing> = places.iter().filter_map(|place| entry.outgoing.get(*place)).cloned().collect();
        self.dispatch(key, &left, deadline).await.map_err(|unsent| {
            let sent: Few<usize> = unsent.sent().iter().filter_map(|index| places.get(*index).copied()).collect();
            unsent.with(sent)
        })
    }

    /// Sends one entry's messages in order, each confirmed. What can never be sent is set aside, confirmed too, and then counts as sent, so
    /// that it does not hold up the others (S67).
    async fn dispatch(&self, key: &EntityKey, outgoing: &[Outgoing], deadline: Monotonic) -> Result<(), Unsent> {
        if outgoing.is_empty() {
            return Ok(());
        }
        // In boxes: what is rare, since thousands of passes wait for their stores.
        if outgoing.iter().any(|outgoing| is_claim(&outgoing.envelope))
            && Box::pin(self.keep_or_dispatch_rest(key, outgoing, deadline)).await?
        {
            return Ok(());
        }
        self.in_time(deadline).await.map_err(|_| Unsent::new("the pass took longer than its deadline"))?;
        let results = self.ports.dispatcher.dispatch(outgoing).await;
        if results.len() == outgoing.len() && results.iter().all(Result::is_ok) {
            return Ok(());
        }
        Box::pin(self.sent_in_part(key, outgoing, results)).await
    }

    async fn sent_in_part(
        &self,
        key: &EntityKey,
        outgoing: &[Outgoing],
        results: Vec<Result<(), DispatchError>>,
    ) -> Result<(), Unsent> {
        let (mut results, mut sent) = (results.into_iter(), Few::new());
        let mut unsent = None;
        for (index, outgoing) in outgoing.iter().enumerate() {
            match results.next() {
                Some(Ok(())) => sent.push(index),
                // A letter after one that could not be sent is for when its turn comes.
                Some(Err(_)) | None if unsent.is_some() => {}
                Some(Err(DispatchError::Permanent(e))) => match self.set_aside(key, outgoing, chain(&e)).await {
                    Ok(()) => sent.push(index),
                    Err(not_set_aside) => unsent = Some(not_set_aside),
                },
                Some(Err(e @ DispatchError::Transient(_))) => unsent = Some(Unsent::new(chain(&e))),
                None => unsent = Some(Unsent::new("the dispatcher gave no result for a message")),
            }
        }
        unsent.map_or(Ok(()), |unsent| Err(unsent.with(sent)))
    }

    /// Keeps the bodies that are elsewhere. What has lost its body can never be sent; then the others go, and it answers that they have.
    async fn keep_or_dispatch_rest(
        &self,
        key: &EntityKey,
        outgoing: &[Outgoing],
        deadline: Monotonic,
    ) -> Result<bool, Unsent> {
        let gone = self.keep(outgoing).await?;
        if gone.is_empty() {
            return Ok(false);
        }
        for (index, outgoing) in outgoing.iter().enumerate() {
            let sent = match gone.iter().find(|(gone, _)| *gone == index) {
                Some((_, why)) => self.set_aside(key, outgoing, why.clone()).await,
                None => Box::pin(self.dispatch(key, slice::from_ref(outgoing), deadline)).await,
            };
            sent.map_err(|unsent| unsent.with(0..index))?;
        }
        Ok(true)
    }

    async fn set_aside(&self, key: &EntityKey, outgoing: &Outgoing, reason: String) -> Result<(), Unsent> {
        let letter = DeadLetter {
            envelope: outgoing.envelope.clone(),
            endpoint: key.scope().endpoint.clone(),
            saga: Some(key.scope().saga.clone()),
            destination: Some(outgoing.destination.clone()),
            reason,
            attempts: 1,
            time: self.ports.clock.now().await.0,
        };
        self.ports.dead_letters.add(&letter).await.map_err(|e| Unsent::new(chain(&e)))?;
        self.ports.metrics.observe(Event::OutgoingDeadLettered(key));
        Ok(())
    }

    /// Who asks for an answer that was given gets it, at its own address (S77): once for each delivery, however often that is tried.
    pub(super) async fn answer(
        &self,
        key: &EntityKey,
        messages: &mut [Incoming],
        replies: &[(usize, Outgoing)],
        deadline: Monotonic,
        verdicts: &mut Verdicts,
    ) {
        for (index, reply) in replies {
            match Box::pin(self.dispatch(key, slice::from_ref(reply), deadline)).await {
                Ok(()) => messages.get_mut(*index).into_iter().for_each(|message| message.answered = true),
                Err(unsent) => verdicts.unanswered(*index, &unsent),
            }
        }
    }

    /// Marks `done` in the dedup store and, when that is confirmed, removes its entries from the outbox, with those that
    /// were found to be over already.
    pub(super) async fn finish(
        &self,
        key: &EntityKey,
        draft: &mut Draft<T>,
        done: &[Arc<OutboxEntry>],
    ) -> Result<(), StoreError> {
        let marks: Few<DedupEntry> = done.iter().map(|entry| entry.to_dedup_entry()).collect();
        draft.clean_up(done);
        if marks.is_empty() && !draft.has_left_overs() {
            return Ok(());
        }
        match self.mark_and_clean_up(key, &marks, draft.stored()).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                Box::pin(self.clean_up_again(key)).await;
                Ok(())
            }
            Err(_) if marks.is_empty() => Ok(()), // Nothing but garbage was at stake.
            Err(e) => {
                self.ports.metrics.observe(Event::Unmarked(key));
                if let Some((version, entity)) = draft.sent_and_unmarked(done) {
                    Box::pin(self.note_sent(key, version, entity)).await;
                }
                Err(e)
            }
        }
    }

    /// While there can be no marks, what was sent is taken out of its entries: whoever tries again has only the marks left to do. Else all would be
    /// sent at every try, for as long as the dedup store is away. Best effort: a store that has no answer for the one seldom has one for the other.
    async fn note_sent(&self, key: &EntityKey, version: Version, entity: Entity) {
        let noted = self.ports.stores.entities.save(key, &Expected::Version(version), &entity, &[]).await;
        if let Err(e) = noted {
            tracing::debug!(entity = %key, error = %chain(&e), "what was sent and is not marked could not be noted; it is sent again");
        }
    }

    /// Whether the clean-up won. An error leaves the marks unknown.
    async fn mark_and_clean_up(
        &self,
        key: &EntityKey,
        marks: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<bool, StoreError> {
        let Stores { entities, dedup, .. } = &self.ports.stores;
        if let Some(finished) = entities.finish(key, marks, clean_up).await? {
            return Ok(matches!(finished, Finished::Cleaned(_) | Finished::Later));
        }
        if !marks.is_empty() {
            dedup.insert(marks).await?;
        }
        // The marks are confirmed here. Whatever becomes of the clean-up, the messages are over.
        let Some((version, entity)) = clean_up else { return Ok(true) };
        let saved = entities.save(key, &Expected::Version(version.clone()), entity, &[]).await;
        Ok(matches!(saved, Ok(Saved::At(_))))
    }

    /// After a lost clean-up the entity has been saved by somebody who carried our entries along: load it, remove what is
    /// over, a few times; then leave it to the next save or the sweeper.
    async fn clean_up_again(&self, key: &EntityKey) {
        let Stores { entities, dedup, .. } = &self.ports.stores;
        for _ in 0..CLEAN_UP_TRIES {
            let Ok(loaded) = entities.load(key, &[]).await else { return };
            let known = match loaded.known {
                Some(known) => known,
                None => match dedup.contains(&Draft::<T>::keys_to_check(&[], loaded.stored.as_ref())).await {
                    Ok(known) => known,
                    Err(_) => return,
                },
            };
            let draft = Draft::<T>::new(loaded.stored, &known);
            if !draft.has_left_overs() {
                return;
            }
            match self.mark_and_clean_up(key, &[], draft.stored()).await {
                Ok(false) => {}
                Ok(true) | Err(_) => return,
            }
        }
    }
}
