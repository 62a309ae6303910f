//! Lies about messages that are not due yet.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Memory,
    envelope::{Envelope, Outgoing},
    ids::{EndpointName, MessageId},
    ports::{Due, Next, Receipt, Schedule, ScheduleCapabilities, StoreError, Take},
    testing::schedule,
};

use crate::lie::expect;

const KEPT_WHOLE: &str = "schedule 1, kept whole";
const ONCE_PER_MESSAGE: &str = "schedule 2, once per message";
const NOT_EARLY: &str = "schedule 3, not early";
const HIDDEN_UNDER_A_LEASE: &str = "schedule 4, hidden under a lease";
const DONE_ALONE: &str = "schedule 5, done alone";
const CANCELLED: &str = "schedule 6, cancelled";
const TOLD_WHEN: &str = "schedule 7, told when";

#[derive(Debug, Clone, Copy)]
enum Lie {
    /// Forgets all but the first message of a call.
    ForgetsOnPut,
    /// Keeps no headers.
    CutsHeaders,
    /// Gives what another endpoint has put.
    GivesToAll,
    /// Keeps what was put last.
    TakesTheLastDueTime,
    /// Takes two messages for one that share an id and go to two places.
    IgnoresTheDestination,
    /// Gives what is due within a second.
    GivesEarly,
    /// Gives nothing before it is due, whatever was asked for.
    IgnoresWithin,
    /// Gives more than was asked for.
    IgnoresMax,
    /// Gives more bytes than were asked for.
    IgnoresBytes,
    /// Gives nothing where the first message has more bytes than were asked for.
    WaitsForBytes,
    /// Gives a message that another has.
    GivesTwice,
    /// Never gives a message again.
    GivesOnce,
    /// Takes a receipt that is lost.
    LostLeaseRemoves,
    /// Keeps what is done.
    DoneIsForgotten,
    /// Says that messages are cancelled, and keeps them.
    CancelsNothing,
    /// Cancels whatever waits.
    CancelsAll,
    /// Keeps a message that somebody has been given.
    CancelsWhatIsFree,
    /// Counts as there whatever is to be cancelled.
    CountsWhatIsAsked,
    /// Tells of no message that somebody has been given.
    TellsOfFreeOnes,
    /// Tells that there is nothing.
    TellsNothing,
}

#[derive(Debug, Clone)]
struct Liar(Memory, Lie, Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Every receipt that was given, with its message.
    given: Vec<(Receipt, MessageId)>,
    all: Vec<Outgoing>,
}

impl Liar {
    fn all(&self) -> EndpointName {
        EndpointName::parse("all").unwrap()
    }
}

/// As long as no check lasts.
const FOR_EVER: Duration = Duration::from_secs(3600);

#[async_trait]
impl Schedule for Liar {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        self.0.schedule_capabilities()
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        match self.1 {
            Lie::ForgetsOnPut => self.0.put(endpoint, messages.get(..1).unwrap_or_default()).await,
            Lie::CutsHeaders => {
                let bare = |outgoing: &Outgoing| Outgoing {
                    envelope: Arc::new(Envelope { headers: Default::default(), ..(*outgoing.envelope).clone() }),
                    ..outgoing.clone()
                };
                self.0.put(endpoint, &messages.iter().map(bare).collect::<Vec<_>>()).await
            }
            Lie::GivesToAll => self.0.put(&self.all(), messages).await,
            Lie::TakesTheLastDueTime => {
                for message in messages {
                    self.0.cancel(endpoint, std::slice::from_ref(&message.envelope.message_id)).await?;
                    self.0.put(endpoint, std::slice::from_ref(message)).await?;
                }
                Ok(())
            }
            Lie::IgnoresTheDestination => {
                for message in messages {
                    let known = self.2.lock().unwrap().all.iter().any(|known| {
                        known.envelope.message_id == message.envelope.message_id
                            && known.destination != message.destination
                    });
                    if !known {
                        self.2.lock().unwrap().all.push(message.clone());
                        self.0.put(endpoint, std::slice::from_ref(message)).await?;
                    }
                }
                Ok(())
            }
            _ => {
                self.2.lock().unwrap().all.extend_from_slice(messages);
                self.0.put(endpoint, messages).await
            }
        }
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        match self.1 {
            Lie::CancelsNothing => Ok(ids.len()),
            Lie::CountsWhatIsAsked => self.0.cancel(endpoint, ids).await.map(|_| ids.len()),
            Lie::CancelsAll => {
                let told = self.0.cancel(endpoint, ids).await?;
                let all: Vec<MessageId> =
                    self.2.lock().unwrap().all.iter().map(|outgoing| outgoing.envelope.message_id.clone()).collect();
                self.0.cancel(endpoint, &all).await?;
                Ok(told)
            }
            Lie::CancelsWhatIsFree => {
                let given = self.2.lock().unwrap().given.clone();
                let is_given = |id: &MessageId| given.iter().any(|(_, given)| given == id);
                let (kept, free): (Vec<MessageId>, Vec<MessageId>) = ids.iter().cloned().partition(is_given);
                Ok(self.0.cancel(endpoint, &free).await? + kept.len())
            }
            _ => self.0.cancel(endpoint, ids).await,
        }
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        let take = match self.1 {
            Lie::GivesEarly => Take { within: take.within.max(Duration::from_secs(1)), ..take },
            Lie::IgnoresWithin => Take { within: Duration::ZERO, ..take },
            Lie::IgnoresMax => Take { max: usize::MAX, ..take },
            Lie::IgnoresBytes => Take { bytes_max: usize::MAX, ..take },
            Lie::WaitsForBytes if take.bytes_max < 100 => Take { max: 0, ..take },
            Lie::GivesTwice => Take { lease: Duration::ZERO, ..take },
            Lie::GivesOnce => Take { lease: FOR_EVER, ..take },
            _ => take,
        };
        let endpoint = if matches!(self.1, Lie::GivesToAll) { &self.all() } else { endpoint };
        let taken = self.0.take_due(endpoint, take).await?;
        let given = taken.iter().map(|due| (due.receipt.clone(), due.outgoing.envelope.message_id.clone()));
        self.2.lock().unwrap().given.extend(given);
        Ok(taken)
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        match self.1 {
            Lie::DoneIsForgotten => Ok(()),
            Lie::LostLeaseRemoves => {
                let given = self.2.lock().unwrap().given.clone();
                let ids = given.into_iter().filter(|(receipt, _)| receipts.contains(receipt)).map(|(_, id)| id);
                self.0.cancel(endpoint, &ids.collect::<Vec<_>>()).await.map(drop)
            }
            _ => self.0.done(endpoint, receipts).await,
        }
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        let next = self.0.next(endpoint).await?;
        Ok(match self.1 {
            Lie::TellsNothing => None,
            Lie::TellsOfFreeOnes if !self.2.lock().unwrap().given.is_empty() => {
                next.map(|_| Next::In(Duration::from_secs(300)))
            }
            _ => next,
        })
    }
}

#[async_trait]
impl schedule::Builder for Liar {
    async fn schedule(&self) -> Arc<dyn Schedule> {
        Arc::new(self.clone())
    }
}

async fn breaks(promise: &str, lie: Lie) {
    expect(promise, schedule::first_broken(&Liar(Memory::new(), lie, Arc::default())).await);
}

macro_rules! rejected {
    ($($test:ident: $lie:ident $promise:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                breaks($promise, Lie::$lie).await;
            }
        )+
    };
}

rejected! {
    a_message_that_is_forgotten_when_it_is_put_is_rejected: ForgetsOnPut KEPT_WHOLE;
    a_message_without_its_headers_is_rejected: CutsHeaders KEPT_WHOLE;
    a_message_given_to_another_endpoint_is_rejected: GivesToAll KEPT_WHOLE;
    a_due_time_that_changes_when_a_message_is_put_again_is_rejected: TakesTheLastDueTime ONCE_PER_MESSAGE;
    two_destinations_of_one_id_taken_for_one_message_are_rejected: IgnoresTheDestination ONCE_PER_MESSAGE;
    a_message_given_early_is_rejected: GivesEarly NOT_EARLY;
    a_message_not_given_within_the_time_asked_for_is_rejected: IgnoresWithin ONCE_PER_MESSAGE;
    more_messages_than_asked_for_are_rejected: IgnoresMax NOT_EARLY;
    more_bytes_than_asked_for_are_rejected: IgnoresBytes NOT_EARLY;
    a_large_message_that_is_never_given_is_rejected: WaitsForBytes NOT_EARLY;
    a_message_given_twice_under_a_lease_is_rejected: GivesTwice ONCE_PER_MESSAGE;
    a_message_never_given_again_is_rejected: GivesOnce HIDDEN_UNDER_A_LEASE;
    a_lost_lease_that_removes_is_rejected: LostLeaseRemoves DONE_ALONE;
    a_message_that_stays_when_it_is_done_is_rejected: DoneIsForgotten DONE_ALONE;
    a_message_that_stays_when_it_is_cancelled_is_rejected: CancelsNothing CANCELLED;
    messages_cancelled_with_another_are_rejected: CancelsAll CANCELLED;
    a_message_kept_since_it_was_given_is_rejected: CancelsWhatIsFree CANCELLED;
    messages_counted_as_cancelled_that_were_not_there_are_rejected: CountsWhatIsAsked CANCELLED;
    a_message_not_told_of_since_it_was_given_is_rejected: TellsOfFreeOnes TOLD_WHEN;
    a_schedule_that_tells_of_nothing_is_rejected: TellsNothing TOLD_WHEN;
}
