//! How deliveries end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aws_sdk_sqs::operation::{
    change_message_visibility_batch::ChangeMessageVisibilityBatchError, delete_message_batch::DeleteMessageBatchError,
};
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};
use hapax_core::{
    ports::{ErrorKind, Settled, TransportError},
    time::Timestamp,
};

use super::{
    apart::dedup_id,
    errors::{again, entry_refusal, is_lease_lost, refusal, untold},
    link::{Asking, Failed},
    message::{GIVEN, Parcel, UNTIL},
    names::group_of,
    publisher::{DELAY_MAX, Sent, whole_seconds},
    receiver::End,
    stock::Held,
};

pub(super) const SETTLING: &str = "settling a message";
/// The service hides a message for no longer, counted from when it was given.
const HIDDEN_MAX: Duration = Duration::from_secs(12 * 3600 - 60);

pub(super) type Answer = Result<Settled, TransportError>;

impl End {
    /// Ends a delivery for good.
    pub(super) async fn delete(self: &Arc<Self>, handle: &str) -> Answer {
        let end = self.clone();
        let answer = self.deletes.ask(handle.to_owned(), || end.care_for_deletes()).await;
        answer.unwrap_or_else(|| Err(ending()))
    }

    /// Has the service hide a message for `time` from now on, however long it was to be hidden.
    pub(super) async fn hide(self: &Arc<Self>, handle: &str, time: Duration) -> Answer {
        let end = self.clone();
        let asked = (handle.to_owned(), whole_seconds(time));
        let answer = self.changes.ask(asked, || end.care_for_changes()).await;
        answer.unwrap_or_else(|| Err(ending()))
    }

    /// Given again after `delay`. What does not count, and what is put off for longer than the service hides anything, is sent again
    /// with its count, and only then taken from here: a crash in between leaves two copies, and never none.
    pub(super) async fn put_off(self: &Arc<Self>, held: &Held, delay: Duration, counts: bool) -> Answer {
        let room = HIDDEN_MAX.saturating_sub(held.since.elapsed());
        if counts && delay <= room {
            return self.hide(&held.handle, delay).await;
        }
        let given = if counts { held.attempts } else { held.attempts.saturating_sub(1) };
        let mut extras = vec![(GIVEN, given.to_string())];
        let is_held_back = !self.address.is_fifo() && delay <= DELAY_MAX;
        if !delay.is_zero() && !is_held_back {
            extras.push((UNTIL, Timestamp::now().after(delay).as_millis().to_string()));
        }
        let broker = &self.broker;
        let parcel = Parcel::of(&held.envelope, &broker.options.written_as, &extras);
        let order = self.address.is_fifo().then(|| {
            let dedup_id = dedup_id(&held.envelope.message_id);
            let group = held.group.clone().or_else(|| held.envelope.partition_key.as_ref().map(group_of));
            (group.unwrap_or_else(|| dedup_id.clone()), dedup_id)
        });
        let sent = Sent { parcel, delay, order };
        self.resend(sent).await?;
        self.delete(&held.handle).await
    }

    async fn resend(self: &Arc<Self>, sent: Sent) -> Result<(), TransportError> {
        let end = self.clone();
        let sent = self.resends.ask(sent, || end.care_for_resends()).await;
        sent.unwrap_or_else(|| Err(ending()))
    }

    async fn care_for_resends(self: Arc<Self>) {
        loop {
            let (all, answers): (Vec<Sent>, Vec<_>) = self.resends.next().into_iter().unzip();
            if all.is_empty() {
                return;
            }
            let results = self.broker.publish(SETTLING, &self.address, &all.iter().collect::<Vec<_>>()).await;
            for (answer, result) in answers.into_iter().zip(results) {
                drop(answer.send(result));
            }
        }
    }

    async fn care_for_deletes(self: Arc<Self>) {
        loop {
            let (handles, answers): (Vec<String>, Vec<_>) = self.deletes.next().into_iter().unzip();
            if handles.is_empty() {
                return;
            }
            let ended = self.deleted(&handles).await;
            for (place, answer) in answers.into_iter().enumerate() {
                // Who asked may be gone.
                drop(answer.send(one_of(&ended, place)));
            }
        }
    }

    async fn care_for_changes(self: Arc<Self>) {
        loop {
            let (changes, answers): (Vec<(String, i32)>, Vec<_>) = self.changes.next().into_iter().unzip();
            if changes.is_empty() {
                return;
            }
            let ended = self.hidden(SETTLING, &changes).await;
            for (place, answer) in answers.into_iter().enumerate() {
                drop(answer.send(one_of(&ended, place)));
            }
        }
    }

    /// What became of each, by the entries' own ids.
    async fn deleted(&self, handles: &[String]) -> Result<Vec<Answer>, TransportError> {
        let link = &self.broker.link;
        let entry = |(number, handle): (usize, &String)| {
            DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(handle).build()
        };
        let entries: Result<Vec<_>, _> = handles.iter().enumerate().map(entry).collect();
        let request = link.client.delete_message_batch().queue_url(&self.address.url);
        let request = request.set_entries(Some(entries.map_err(unmade)?));
        match link.ask(Asking::repeatable(SETTLING), || request.clone().send()).await {
            Ok(answer) => {
                let done = answer.successful().iter().map(|entry| entry.id());
                Ok(self.ended(SETTLING, handles.len(), done, answer.failed()))
            }
            // The queue is gone, and its leases.
            Err(Failed::Refused(DeleteMessageBatchError::QueueDoesNotExist(_))) => Ok(lost(handles.len())),
            Err(Failed::Refused(refused)) => Err(refusal(SETTLING, link.place(), refused)),
            Err(Failed::Error(error)) => Err(error),
        }
    }

    /// The same for messages that are to be hidden for some seconds.
    pub(super) async fn hidden(
        &self,
        operation: &'static str,
        changes: &[(String, i32)],
    ) -> Result<Vec<Answer>, TransportError> {
        let link = &self.broker.link;
        let entry = |(number, (handle, seconds)): (usize, &(String, i32))| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(number.to_string());
            entry.receipt_handle(handle).visibility_timeout(*seconds).build()
        };
        let entries: Result<Vec<_>, _> = changes.iter().enumerate().map(entry).collect();
        let request = link.client.change_message_visibility_batch().queue_url(&self.address.url);
        let request = request.set_entries(Some(entries.map_err(unmade)?));
        match link.ask(Asking::repeatable(operation), || request.clone().send()).await {
            Ok(answer) => {
                let done = answer.successful().iter().map(|entry| entry.id());
                Ok(self.ended(operation, changes.len(), done, answer.failed()))
            }
            Err(Failed::Refused(ChangeMessageVisibilityBatchError::QueueDoesNotExist(_))) => Ok(lost(changes.len())),
            Err(Failed::Refused(refused)) => Err(refusal(operation, link.place(), refused)),
            Err(Failed::Error(error)) => Err(error),
        }
    }

    fn ended<'a>(
        &self,
        operation: &'static str,
        count: usize,
        done: impl Iterator<Item = &'a str>,
        failed: &[BatchResultErrorEntry],
    ) -> Vec<Answer> {
        let place = self.broker.link.place();
        let mut answers: Vec<Answer> = (0..count).map(|_| Err(untold(operation, place))).collect();
        let place_of = |id: &str| id.parse::<usize>().ok().filter(|number| *number < count);
        for number in done.filter_map(place_of) {
            answers[number] = Ok(Settled::Done);
        }
        for refused in failed {
            if let Some(number) = place_of(refused.id()) {
                answers[number] = match is_lease_lost(refused.code(), refused.message().unwrap_or_default()) {
                    true => Ok(Settled::LeaseLost),
                    false => Err(entry_refusal(operation, place, refused)),
                };
            }
        }
        answers
    }

    /// Starts leases anew; those that cannot be are lost. In tens.
    pub(super) async fn extend_leases(&self, numbers: &[u64]) -> Result<(), TransportError> {
        const EXTENDING: &str = "extending leases";
        for some in numbers.chunks(super::batches::TOGETHER_MAX) {
            let held: Vec<(u64, String)> =
                some.iter().filter_map(|number| Some((*number, self.stock().held(*number)?.handle))).collect();
            if held.is_empty() {
                continue;
            }
            // Before the call: the service begins later.
            let begun = Instant::now();
            let seconds = self.hidden_for();
            let changes: Vec<(String, i32)> = held.iter().map(|(_, handle)| (handle.clone(), seconds)).collect();
            let ended = self.hidden(EXTENDING, &changes).await?;
            for ((number, _), ended) in held.iter().zip(ended) {
                match ended {
                    Ok(Settled::Done) => self.stock().extended(*number, begun + self.broker.options.lease),
                    Ok(Settled::LeaseLost) => self.stock().let_go(*number),
                    Err(error) => tracing::debug!(%error, "a lease is not extended"),
                }
            }
        }
        Ok(())
    }
}

fn one_of(all: &Result<Vec<Answer>, TransportError>, place: usize) -> Answer {
    match all.as_ref().map(|all| all.get(place)) {
        Ok(Some(Ok(settled))) => Ok(*settled),
        Ok(Some(Err(e))) => Err(again(e, SETTLING)),
        Ok(None) => Err(ending()),
        Err(e) => Err(again(e, SETTLING)),
    }
}

fn lost(count: usize) -> Vec<Answer> {
    (0..count).map(|_| Ok(Settled::LeaseLost)).collect()
}

fn ending() -> TransportError {
    let why = "the runtime in which it was asked is ending";
    TransportError::new(ErrorKind::UnknownOutcome, SETTLING, why)
}

fn unmade(error: aws_sdk_sqs::error::BuildError) -> TransportError {
    TransportError::new(ErrorKind::Malformed, SETTLING, "a receipt could not be put into a request").caused_by(error)
}
