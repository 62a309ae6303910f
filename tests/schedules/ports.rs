//! What several handles see of one schedule, and what became of its rows.

use std::{collections::HashMap, time::Duration};

use hapax::{
    MessageId,
    envelope::Outgoing,
    ports::{ErrorKind, StoreError, Take},
};
use hapax_tests::samples;

use crate::place::{LONG, Place, due_since, messages, now, on_each, receipts};

on_each! {
    processes_that_race_are_given_each_message_once_and_all_of_them
    a_put_whose_outcome_is_unknown_may_be_made_again
    a_lease_that_was_begun_while_the_clock_was_ahead_ends
    no_lease_is_longer_than_an_hour
    messages_of_any_size_up_to_the_limit_are_kept_whole
    a_message_that_cannot_be_read_keeps_no_other_from_being_given
    a_receipt_of_another_endpoint_or_of_nobody_changes_nothing
}

/// Puts race with each other for the same messages; then takes for what is there, each with others' puts and dones beside it.
async fn processes_that_race_are_given_each_message_once_and_all_of_them(place: &dyn Place) {
    const PROCESSES: usize = 4;
    const MESSAGES: u64 = 300;
    let endpoint = samples::endpoint();
    let all: Vec<Outgoing> = (0..MESSAGES).map(|number| due_since(10_000 - number, "x")).collect();
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(place.open().await);
    }
    let putting = processes.iter().enumerate().map(|(number, process)| {
        let (mut own, endpoint) = (all.clone(), &endpoint);
        own.rotate_left(number * all.len() / PROCESSES);
        async move {
            for some in own.chunks(50) {
                process.put(endpoint, some).await.unwrap();
            }
        }
    });
    futures_util::future::join_all(putting).await;

    let taking = processes.iter().map(|process| {
        let endpoint = &endpoint;
        async move {
            let mut given: Vec<MessageId> = Vec::new();
            while process.next(endpoint).await.unwrap().is_some() {
                let taken = process.take_due(endpoint, Take { max: 7, ..now(LONG) }).await.unwrap();
                given.extend(taken.iter().map(|due| due.outgoing.envelope.message_id.clone()));
                process.done(endpoint, &receipts(&taken)).await.unwrap();
            }
            given
        }
    });
    let given = futures_util::future::join_all(taking).await;
    let mut times: HashMap<MessageId, usize> = HashMap::new();
    given.iter().flatten().for_each(|id| *times.entry(id.clone()).or_default() += 1);
    assert_eq!(times.len(), all.len(), "some are lost");
    assert!(times.values().all(|times| *times == 1), "some are given twice");
}

async fn a_put_whose_outcome_is_unknown_may_be_made_again(place: &dyn Place) {
    let (endpoint, other) = (samples::endpoint(), place.open().await);
    let unanswered = place.unanswered().await;
    let all = [due_since(2_000, "a"), due_since(1_000, "b")];
    let mut unknown = 0;
    while unknown < 3 {
        // An answer may be there before anybody has looked how long it took.
        let told = unanswered.put(&endpoint, &all).await;
        assert!(told.as_ref().map_or_else(StoreError::is_unknown_outcome, |()| true), "{told:?}");
        unknown += usize::from(told.is_err());
    }
    // Nobody is told, and they are there.
    while other.next(&endpoint).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    other.put(&endpoint, &all).await.unwrap();
    assert_eq!(messages(other.take_due(&endpoint, now(LONG)).await.unwrap()), all);
    other.put(&endpoint, &all).await.unwrap();
    assert_eq!(messages(other.take_due(&endpoint, now(LONG)).await.unwrap()), []);
}

async fn a_lease_that_was_begun_while_the_clock_was_ahead_ends(place: &dyn Place) {
    let (endpoint, schedule) = (samples::endpoint(), place.open().await);
    let message = due_since(1_000, "x");
    schedule.put(&endpoint, std::slice::from_ref(&message)).await.unwrap();
    assert_eq!(schedule.take_due(&endpoint, now(LONG)).await.unwrap().len(), 1);
    assert_eq!(schedule.take_due(&endpoint, now(LONG)).await.unwrap().len(), 0);
    place.run("UPDATE SCHEDULE SET leased_until = leased_until + 24 * 3600000").await;
    assert_eq!(messages(schedule.take_due(&endpoint, now(LONG)).await.unwrap()), [message]);
}

async fn no_lease_is_longer_than_an_hour(place: &dyn Place) {
    let (endpoint, schedule) = (samples::endpoint(), place.open().await);
    schedule.put(&endpoint, &[due_since(1_000, "x")]).await.unwrap();
    assert_eq!(schedule.take_due(&endpoint, now(Duration::MAX)).await.unwrap().len(), 1);
    assert_eq!(schedule.take_due(&endpoint, now(LONG)).await.unwrap().len(), 0);
    place.run("UPDATE SCHEDULE SET leased_until = leased_until - 3600001").await;
    assert_eq!(schedule.take_due(&endpoint, now(LONG)).await.unwrap().len(), 1);
}

async fn messages_of_any_size_up_to_the_limit_are_kept_whole(place: &dyn Place) {
    let (endpoint, schedule) = (samples::endpoint(), place.open().await);
    let most = schedule.schedule_capabilities().message_bytes_max;
    let beside = due_since(0, "").envelope.size();
    let sizes = [0, most - beside, 5 << 20, 1, 3 << 20, 3 << 20, 100];
    let message = |(number, bytes): (u64, usize)| due_since(10_000 - number, vec![0xa5_u8; bytes]);
    let all: Vec<Outgoing> = (0..).zip(sizes).map(message).collect();
    schedule.put(&endpoint, &all).await.unwrap();
    assert!(messages(schedule.take_due(&endpoint, now(LONG)).await.unwrap()) == all, "they are other ones");
    // All of a call, or nothing.
    let larger = [due_since(0, "x"), due_since(0, vec![0; most])];
    let told = schedule.put(&endpoint, &larger).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::TooLarge, "{told:?}");
    assert_eq!(messages(schedule.take_due(&endpoint, now(LONG)).await.unwrap()), []);
}

async fn a_message_that_cannot_be_read_keeps_no_other_from_being_given(place: &dyn Place) {
    let (endpoint, schedule) = (samples::endpoint(), place.open().await);
    let all = [due_since(3_000, "a"), due_since(2_000, "b"), due_since(1_000, "c")];
    schedule.put(&endpoint, &all).await.unwrap();
    let id = &all[1].envelope.message_id;
    place.run(&format!("UPDATE SCHEDULE SET envelope = substr(envelope, 1, 1) WHERE message_id = '{id}'")).await;
    let taken = schedule.take_due(&endpoint, now(LONG)).await.unwrap();
    schedule.done(&endpoint, &receipts(&taken)).await.unwrap();
    assert_eq!(messages(taken), [all[0].clone(), all[2].clone()]);
    assert!(schedule.next(&endpoint).await.unwrap().is_some(), "it stays");
}

async fn a_receipt_of_another_endpoint_or_of_nobody_changes_nothing(place: &dyn Place) {
    let (endpoint, other, schedule) = (samples::endpoint(), samples::endpoint(), place.open().await);
    schedule.put(&endpoint, &[due_since(1_000, "x")]).await.unwrap();
    // Nobody has it yet: no receipt stands for it.
    let own = hapax::ports::Receipt::text("1:0");
    schedule.done(&endpoint, &[own, hapax::ports::Receipt::text("no receipt")]).await.unwrap();
    let taken = schedule.take_due(&endpoint, now(LONG)).await.unwrap();
    schedule.done(&other, &receipts(&taken)).await.unwrap();
    assert!(schedule.next(&endpoint).await.unwrap().is_some());
    schedule.done(&endpoint, &receipts(&taken)).await.unwrap();
    assert!(schedule.next(&endpoint).await.unwrap().is_none());
}
