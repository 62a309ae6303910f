//! Sending, in calls of ten messages, each with its own result.

use std::{collections::HashSet, sync::Arc, time::Duration};

use aws_sdk_sqs::{
    operation::send_message_batch::{SendMessageBatchError, SendMessageBatchOutput},
    types::SendMessageBatchRequestEntry,
};
use futures_util::{StreamExt, stream};
use hapax_core::ports::{ErrorKind, TransportError};

use super::{
    Broker,
    addresses::Address,
    errors::{again, entry_refusal, refusal, untold},
    link::{Asking, Failed},
    message::Parcel,
    options::QUEUE_BYTES_MAX,
};

/// Messages in a call: the service takes no more.
const TOGETHER_MAX: usize = 10;
/// Calls of a kind under way at a time to a queue without order.
pub(super) const CALLS_MAX: usize = 8;
/// The longest that the service holds a message back, in a queue without order.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(900);

/// One message for one queue.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) parcel: Parcel,
    /// For how long it is held back, where the queue can.
    pub(super) delay: Duration,
    /// What it is in order with, and what it is told apart by, where the queue keeps order.
    pub(super) order: Option<(String, String)>,
}

impl Sent {
    fn entry(&self, number: usize) -> Result<SendMessageBatchRequestEntry, aws_sdk_sqs::error::BuildError> {
        let entry = SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(&self.parcel.body);
        let entry = entry.set_message_attributes(Some(self.parcel.message_attributes()));
        match &self.order {
            Some((group, dedup_id)) => entry.message_group_id(group).message_deduplication_id(dedup_id),
            // Said each time: a queue may have been given a delay of its own.
            None => entry.delay_seconds(whole_seconds(self.delay.min(DELAY_MAX))),
        }
        .build()
    }
}

/// Rounded up: never earlier than asked for.
pub(super) fn whole_seconds(time: Duration) -> i32 {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

type Results = Vec<Result<(), TransportError>>;

impl Broker {
    /// Sends `all` to the queue at `address`, one result for each. Where it keeps order, in order, and nothing behind a message of its
    /// group that may not have been sent.
    pub(super) async fn publish(&self, operation: &'static str, address: &Arc<Address>, all: &[&Sent]) -> Results {
        let calls = batches(all);
        if !address.is_fifo() {
            let mut sending = Vec::with_capacity(calls.len());
            for call in calls {
                sending.push(self.send(operation, address, call));
            }
            let results: Vec<Results> = stream::iter(sending).buffered(CALLS_MAX).collect().await;
            return results.into_iter().flatten().collect();
        }
        let (mut results, mut stuck) = (Results::with_capacity(all.len()), HashSet::<&str>::new());
        for call in calls {
            let (mut free, mut frees) = (Vec::with_capacity(call.len()), Vec::with_capacity(call.len()));
            for sent in call {
                let is_free = sent.order.as_ref().is_none_or(|(group, _)| !stuck.contains(group.as_str()));
                frees.push(is_free);
                if is_free {
                    free.push(*sent);
                }
            }
            let mut sent = self.send(operation, address, &free).await.into_iter();
            for (sent_one, is_free) in call.iter().zip(frees) {
                let result = match is_free {
                    true => sent.next().unwrap_or_else(|| Err(untold(operation, self.link.place()))),
                    false => Err(self.behind(operation)),
                };
                if let (Err(_), Some((group, _))) = (&result, &sent_one.order) {
                    stuck.insert(group);
                }
                results.push(result);
            }
        }
        results
    }

    /// In one call; in one for each, if the service refuses them together: one of them may be too large for the queue.
    async fn send(&self, operation: &'static str, address: &Address, all: &[&Sent]) -> Results {
        let error = match self.call(operation, address, all).await {
            Ok(results) => return results,
            Err(error) => error,
        };
        let may_be_ones = matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Misconfigured);
        if all.len() == 1 || !may_be_ones {
            return all.iter().map(|_| Err(again(&error, operation))).collect();
        }
        let mut results = Results::with_capacity(all.len());
        for sent in all {
            let alone = self.call(operation, address, std::slice::from_ref(sent)).await;
            results.extend(alone.unwrap_or_else(|e| vec![Err(e)]));
        }
        results
    }

    /// One call, and what became of each message; an error if the same became of all.
    async fn call(&self, operation: &'static str, address: &Address, all: &[&Sent]) -> Result<Results, TransportError> {
        if all.is_empty() {
            return Ok(Results::new());
        }
        let entries: Result<Vec<_>, _> = all.iter().enumerate().map(|(number, sent)| sent.entry(number)).collect();
        let entries = entries.map_err(|e| {
            let why = "a message could not be put into a request";
            TransportError::new(ErrorKind::Malformed, operation, why).caused_by(e)
        })?;
        let request = self.link.client.send_message_batch().queue_url(&address.url).set_entries(Some(entries));
        // A copy in a queue that keeps order is dropped by the service itself: a try again is under the same deduplication id.
        let asking = if address.is_fifo() { Asking::repeatable(operation) } else { Asking::once(operation) };
        match self.link.ask(asking, || request.clone().send()).await {
            Ok(answer) => Ok(self.results(operation, &answer, all)),
            Err(failed) => Err(self.unsent(operation, address, failed)),
        }
    }

    /// By the entries' own ids: the service answers them in any order.
    fn results(&self, operation: &'static str, answer: &SendMessageBatchOutput, all: &[&Sent]) -> Results {
        let place = self.link.place();
        let mut results: Results = all.iter().map(|_| Err(untold(operation, place))).collect();
        for confirmed in answer.successful() {
            if let Some(number) = number_of(confirmed.id()).filter(|number| *number < all.len()) {
                results[number] = Ok(());
            }
        }
        for refused in answer.failed() {
            if let Some(number) = number_of(refused.id()).filter(|number| *number < all.len()) {
                results[number] = Err(entry_refusal(operation, place, refused));
            }
        }
        results
    }

    fn unsent(
        &self,
        operation: &'static str,
        address: &Address,
        failed: Failed<SendMessageBatchError>,
    ) -> TransportError {
        match failed {
            Failed::Refused(SendMessageBatchError::QueueDoesNotExist(_)) => {
                self.addresses.forget(address);
                let why = format!(
                    "{} has no queue `{}` any more: start its endpoint once, or correct the address",
                    self.link.place(),
                    address.name
                );
                TransportError::new(ErrorKind::Unavailable, operation, why)
            }
            Failed::Refused(refused) => refusal(operation, self.link.place(), refused),
            Failed::Error(error) => error,
        }
    }

    fn behind(&self, operation: &'static str) -> TransportError {
        let why = format!("one before it of the same partition key may not have been sent to {}", self.link.place());
        TransportError::new(ErrorKind::Unavailable, operation, why)
    }
}

fn number_of(id: &str) -> Option<usize> {
    id.parse().ok()
}

/// As many in each as the service takes, in order; of a group that is in order one alone, since the service may take the second of two and
/// refuse the first.
fn batches<'b, 's>(all: &'b [&'s Sent]) -> Vec<&'b [&'s Sent]> {
    let (mut batches, mut rest) = (Vec::new(), all);
    while !rest.is_empty() {
        let (mut count, mut bytes, mut groups) = (0, 0, HashSet::new());
        while count < rest.len().min(TOGETHER_MAX) {
            bytes += rest[count].parcel.size();
            let has_another = rest[count].order.as_ref().is_some_and(|(group, _)| !groups.insert(group.as_str()));
            if count > 0 && (bytes > QUEUE_BYTES_MAX || has_another) {
                break;
            }
            count += 1;
        }
        let (batch, others) = rest.split_at(count);
        batches.push(batch);
        rest = others;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(bytes: usize) -> Sent {
        let parcel = Parcel { body: "x".repeat(bytes), attributes: Vec::new() };
        Sent { parcel, delay: Duration::ZERO, order: None }
    }

    #[test]
    fn a_call_has_no_more_messages_and_bytes_than_the_service_takes() {
        let sizes = |all: &[usize]| {
            let all: Vec<Sent> = all.iter().map(|bytes| sent(*bytes)).collect();
            let all: Vec<&Sent> = all.iter().collect();
            batches(&all).iter().map(|batch| batch.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[1; 25]), [10, 10, 5]);
        assert_eq!(sizes(&[600 << 10, 600 << 10, 400 << 10, 1]), [1, 3]);
        assert_eq!(sizes(&[QUEUE_BYTES_MAX, 1]), [1, 1]);
        assert_eq!(sizes(&[]), [0; 0]);
    }

    #[test]
    fn a_call_has_no_two_messages_of_one_group() {
        let all = ["a", "b", "a", "a", "c"].map(|group| Sent { order: Some((group.into(), String::new())), ..sent(1) });
        let all: Vec<&Sent> = all.iter().collect();
        assert_eq!(batches(&all).iter().map(|batch| batch.len()).collect::<Vec<_>>(), [2, 1, 2]);
    }

    #[test]
    fn a_delay_is_rounded_up() {
        let seconds = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([seconds(0), seconds(1), seconds(1000), seconds(1001)], [0, 1, 1, 2]);
        assert_eq!(whole_seconds(Duration::MAX), i32::MAX);
    }
}
