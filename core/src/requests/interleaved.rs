//! An answer comes, and whoever waits for it gives up, in every order.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    RequestError,
    asking::{Ended, until},
    waiting::Waiting,
};
use crate::{
    envelope::Envelope,
    ids::{CorrelationId, MessageId, TypeName},
    sync::explored::{all, block_on, exhaust, explore, spawn, timeout},
};

const WITHIN: Duration = Duration::from_secs(1);

fn correlation() -> CorrelationId {
    CorrelationId::parse("request").expect("it is one")
}

fn answer() -> Arc<Envelope> {
    let mut answer = Envelope::new(MessageId::random(), TypeName::parse("t").expect("it is one"), "answer");
    answer.correlation_id = Some(correlation());
    Arc::new(answer)
}

/// Whether it was answered; else it was late.
async fn ask(waiting: Arc<Waiting>) -> bool {
    let mut wait = waiting.begin(correlation()).expect("there is room");
    match until(&mut wait, Instant::now() + WITHIN, pending::<()>()).await {
        Err(Ended::Answered(_)) => true,
        Err(Ended::Late) => false,
        Err(Ended::Failed(error)) => panic!("{error}"),
        Ok(()) => unreachable!("it is pending"),
    }
}

fn unawaited(waiting: &Waiting) -> u64 {
    waiting.unawaited.load(Ordering::Relaxed)
}

/// The caller's time may be over as the answer is on its way into its hands.
fn an_answer_in_time_or_late() {
    let waiting = Arc::new(Waiting::new(1));
    let asking = spawn(ask(waiting.clone()));
    waiting.answer(&correlation(), &answer());
    let answered = block_on(asking).expect("it ends");
    assert_eq!(u64::from(answered) + unawaited(&waiting), 1, "given and counted, or neither");
    assert_eq!(waiting.count(), 0);
}

#[test]
fn an_answer_is_given_to_its_caller_or_counted_as_awaited_by_nobody() {
    exhaust(an_answer_in_time_or_late);
    explore(an_answer_in_time_or_late);
}

/// A caller's own future may be dropped, as by a web server whose client has gone.
#[test]
fn of_several_who_wait_and_give_up_one_takes_the_answer_or_it_is_counted_as_awaited_by_nobody() {
    explore(|| {
        let waiting = Arc::new(Waiting::new(2));
        let other = waiting.clone();
        let dropped = async move { timeout(WITHIN, ask(other)).await.unwrap_or(false) };
        let (one, two) = (spawn(ask(waiting.clone())), spawn(dropped));
        waiting.answer(&correlation(), &answer());
        waiting.answer(&correlation(), &answer());
        let answered = [one, two].map(|asking| block_on(asking).expect("it ends"));
        let takers = answered.iter().filter(|answered| **answered).count();
        // Both may have had the same one, or each one of their own.
        let left = unawaited(&waiting);
        let fits = match takers {
            0 => left == 2,
            1 => left == 1,
            _ => left <= 1,
        };
        assert!(fits, "{takers} were answered, and {left} answers counted as awaited by nobody");
        assert_eq!(waiting.count(), 0);
    });
}

#[test]
fn nobody_waits_on_once_nothing_is_received_any_more() {
    explore(|| {
        let waiting = Arc::new(Waiting::new(3));
        let asks = |waiting: Arc<Waiting>| async move {
            let mut wait = match waiting.begin(correlation()) {
                Ok(wait) => wait,
                Err(error) => return matches!(error, RequestError::Stopped),
            };
            // Without a limit: it must be told.
            match (&mut wait.answer).await {
                Ok(answer) => drop(answer.take()),
                Err(_) => return true,
            }
            true
        };
        let stops = waiting.clone();
        let asking: Vec<_> = (0..2).map(|_| spawn(asks(waiting.clone()))).collect();
        let stopping = spawn(async move { stops.stop() });
        waiting.answer(&correlation(), &answer());
        assert!(asking.into_iter().all(|asking| block_on(asking).expect("it ends")));
        block_on(stopping).expect("it ends");
        assert_eq!(waiting.count(), 0);
    });
}

#[test]
fn so_many_wait_at_a_time_and_no_more() {
    explore(|| {
        let waiting = Arc::new(Waiting::new(2));
        let tasks = (0..3).map(|number| {
            let waiting = waiting.clone();
            async move {
                let correlation = CorrelationId::parse(format!("request-{number}")).expect("it is one");
                let begun = waiting.begin(correlation);
                assert!(waiting.count() <= 2);
                begun.is_ok()
            }
        });
        let begun = all(tasks);
        assert!(begun.iter().filter(|begun| **begun).count() >= 2, "who has found no room has met two");
        assert_eq!(waiting.count(), 0);
    });
}
