//! The thread that has the producer: it takes calls, and puts what they have into transactions.

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use rdkafka::error::KafkaError;
use tokio::sync::{mpsc, oneshot};

use super::{
    super::{errors::is_too_large, producing::Parcel},
    BYTES_MAX, Call,
    ended::{Ended, Failure},
    producer::{Producer, Trouble},
};

/// Between two tries to end a transaction of which it is not known whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Until nobody can have anything to send any more. `begun`: that the broker has let this have its name, or why not.
pub(super) fn run(
    mut producer: Producer,
    mut calls: mpsc::Receiver<Call>,
    messages_max: usize,
    begun: oneshot::Sender<Result<(), Failure>>,
) {
    let ready = producer.begins();
    let is_ready = ready.is_ok();
    if begun.send(ready).is_err() || !is_ready {
        return;
    }
    let mut left = None;
    while let Some(first) = left.take().or_else(|| next(&mut producer, &mut calls)) {
        let together;
        (together, left) = gathered(first, &mut calls, messages_max);
        send(&mut producer, together);
    }
}

/// Waits for a call; meanwhile what is open is ended.
fn next(producer: &mut Producer, calls: &mut mpsc::Receiver<Call>) -> Option<Call> {
    while producer.is_open() {
        match calls.try_recv() {
            Ok(call) => return Some(call),
            Err(mpsc::error::TryRecvError::Disconnected) => return None,
            Err(mpsc::error::TryRecvError::Empty) => {
                let ended = producer.ends_what_is_open(LOOK_AGAIN);
                if ended.is_err() && producer.is_open() {
                    sleep(LOOK_AGAIN);
                }
            }
        }
    }
    calls.blocking_recv()
}

/// What has come meanwhile goes with the first, as much as may; and what has come and has to wait.
fn gathered(first: Call, calls: &mut mpsc::Receiver<Call>, messages_max: usize) -> (Vec<Call>, Option<Call>) {
    let (mut messages, mut bytes) = (first.parcels.len(), first.bytes);
    let mut together = vec![first];
    while let Ok(call) = calls.try_recv() {
        messages += call.parcels.len();
        bytes = bytes.saturating_add(call.bytes);
        if messages > messages_max || bytes > BYTES_MAX {
            return (together, Some(call));
        }
        together.push(call);
    }
    (together, None)
}

fn send(producer: &mut Producer, mut calls: Vec<Call>) {
    calls.retain(|call| !call.tell.is_closed()); // Who has given up sends it again, and needs it no sooner.
    if calls.len() > 1 {
        match producer.transaction(calls.iter().flat_map(|call| &call.parcels)) {
            // Nothing of it is there: each by itself, so that no call fails for another.
            Err(Trouble::OfMessages(_)) => {}
            ended => return calls.into_iter().for_each(|call| tell(call, &ended)),
        }
    }
    let mut calls = calls.into_iter();
    while let Some(call) = calls.next() {
        let ended = alone(producer, &call.parcels);
        let failed = ended.iter().find_map(|ended| match ended {
            Ended::Failed(failure) if ended.error().is_none_or(|error| !super::ended::is_its_own(error)) => {
                Some(failure.clone())
            }
            _ => None,
        });
        drop(call.tell.send(ended));
        // What is no fault of its messages would be waited for by each in turn.
        if let Some(
            failure @ (Failure::Fenced { .. } | Failure::Refused(..) | Failure::Aborted(_) | Failure::Unknown(_)),
        ) = failed
        {
            let rest = failure.certain(producer.id());
            for call in calls.by_ref() {
                drop(call.tell.send(vec![Ended::Failed(rest.clone()); call.parcels.len()]));
            }
        }
    }
}

fn tell(call: Call, ended: &Result<(), Trouble>) {
    let each = match ended {
        Ok(()) => Ended::Sent,
        Err(Trouble::OfAll(failure)) => Ended::Failed(failure.clone()),
        Err(Trouble::OfMessages(_)) => Ended::Failed(Failure::WithOthers),
    };
    drop(call.tell.send(vec![each; call.parcels.len()])); // It may have given up.
}

/// One call: all that its topics take, or nothing. What they never take is left out, one after the other.
fn alone(producer: &mut Producer, parcels: &[Parcel]) -> Vec<Ended> {
    let mut too_large: BTreeMap<usize, KafkaError> = BTreeMap::new();
    // What is sent to a partition behind a refusal may be aborted once for it: the numbers of its messages have a gap then.
    let mut is_gap = false;
    loop {
        let left: Vec<usize> = (0..parcels.len()).filter(|place| !too_large.contains_key(place)).collect();
        let ended =
            if left.is_empty() { Ok(()) } else { producer.transaction(left.iter().map(|place| &parcels[*place])) };
        let of_messages = match ended {
            Err(Trouble::OfMessages(of_messages)) => of_messages,
            Err(Trouble::OfAll(Failure::Aborted(_))) if std::mem::take(&mut is_gap) => continue,
            ended => {
                let each = match ended {
                    Ok(()) => Ended::Sent,
                    Err(Trouble::OfAll(failure)) => Ended::Failed(failure),
                    Err(Trouble::OfMessages(_)) => Ended::Failed(Failure::WithOthers),
                };
                let result = |place| too_large.get(&place).map_or_else(|| each.clone(), |e| Ended::TooLarge(e.clone()));
                return (0..parcels.len()).map(result).collect();
            }
        };
        let own: BTreeMap<usize, KafkaError> =
            of_messages.into_iter().filter_map(|(at, error)| Some((*left.get(at)?, error))).collect();
        let before = too_large.len();
        too_large.extend(own.iter().filter(|(_, error)| is_too_large(error)).map(|(at, error)| (*at, error.clone())));
        is_gap = true;
        if too_large.len() == before {
            let result = |place| match (too_large.get(&place), own.get(&place)) {
                (Some(error), _) => Ended::TooLarge(error.clone()),
                (None, Some(error)) => Ended::Failed(Failure::Aborted(error.clone())),
                (None, None) => Ended::Failed(Failure::WithOthers),
            };
            return (0..parcels.len()).map(result).collect();
        }
    }
}
