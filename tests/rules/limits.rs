//! Where a limit lies, to the unit.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    deliver::Recoverability,
    manager::Limits,
    ports::{Delivery, Receipt, Receiver, Settled, Settlement, TransportError},
};
use hapax_core::codec::record;
use hapax_model::{
    Call,
    ledger::{Act, Post, Trouble},
};
use hapax_tests::{Bench, Shape, message, words};

use crate::{after, post, quiet};

/// Writes down how long messages are to rest.
#[derive(Debug, Clone, Default)]
struct Rests(Arc<Mutex<Vec<Duration>>>);

impl Rests {
    fn seen(&self) -> Vec<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Receiver for Rests {
    async fn receive(&self, _: usize) -> Result<Vec<Delivery>, TransportError> {
        Ok(Vec::new())
    }

    async fn extend(&self, _: &[Receipt]) -> Result<(), TransportError> {
        Ok(())
    }

    async fn settle(&self, _: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        if let Settlement::Retry { delay, .. } = settlement {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(delay);
        }
        Ok(Settled::Done)
    }
}

#[tokio::test]
async fn the_rest_before_another_delivery_doubles_until_it_is_the_longest() {
    const OFTEN: u32 = u32::MAX;
    let limits = Limits { poison_above: OFTEN, ..Limits::default() };
    let recoverability = Recoverability { attempts_max: OFTEN, ..Recoverability::default() };
    for (attempts, seconds) in [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (OFTEN - 1, 300)] {
        let rests = Rests::default();
        let mut bench = Bench { limits, recoverability: recoverability.clone(), ..Bench::new(Shape::One) }.ledgers();
        bench.deliver.receiver = Arc::new(rests.clone());
        let fails = Post { trouble: Trouble::Fails(u8::MAX), ..post("m") };
        bench.deliver(&[message("m", &fails)], attempts).await;
        assert_eq!(rests.seen(), [Duration::from_secs(seconds)], "after {attempts} deliveries");
    }
}

#[tokio::test]
async fn a_pass_at_its_deadline_is_past_it() {
    let deadline = Limits::default().deadline;
    let nearly = deadline - Duration::from_nanos(1);
    for (step, word) in [(deadline, "Again Deadline"), (nearly, "Handled")] {
        let bench = Bench::new(Shape::One).ledgers();
        bench.clock.step(step); // From the first look to the second, which is before the save.
        assert_eq!(words(&bench.pass(&[message("m", &quiet("m"))]).await), [word], "{step:?}");
    }
}

#[tokio::test]
async fn a_message_is_handled_up_to_the_moment_at_which_it_expires() {
    let bench = Bench::new(Shape::One).ledgers();
    let mut m = message("m", &post("m"));
    m.expires = Some(bench.clock.wall());
    assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
}

#[tokio::test]
async fn the_letter_of_poison_says_how_often_it_was_given_before() {
    let bench = Bench::new(Shape::One).ledgers();
    let max = Limits::default().poison_above;
    bench.deliver(&[message("m", &post("m"))], max + 1).await;
    let letters = bench.letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains(&format!("given {max} times and never settled")), "{}", letters[0].reason);
}

#[tokio::test]
async fn an_entity_may_have_as_many_bytes_as_its_store_takes_and_not_one_more() {
    let m = message("m", &post("m"));
    let bench = Bench::new(Shape::One).ledgers();
    bench.crash(&m, after(Call::Save)).await;
    let bytes = bench.store.stored(&bench.key("a")).await.unwrap().entity.size();
    for (entity_bytes_max, word) in [(bytes, "Handled"), (bytes - 1, "DeadLetter")] {
        let bench = Bench { entity_bytes_max, ..Bench::new(Shape::One) }.ledgers();
        assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), [word], "{bytes} bytes into {entity_bytes_max}");
    }
}

/// Its message could never be finished otherwise, and what it has sent would be sent again and again.
#[tokio::test]
async fn a_reply_may_have_as_many_bytes_as_the_dedup_store_keeps_and_not_one_more() {
    for shape in Shape::ALL {
        let m = message("m", &Post { act: Act::Reply, ..post("m") });
        let bench = Bench::new(shape).ledgers();
        bench.pass(std::slice::from_ref(&m)).await;
        let sent = bench.out.sent();
        let bytes = record::encode_outgoing(&sent[1]).unwrap().len();
        for (reply_bytes_max, word) in [(bytes, "Handled"), (bytes - 1, "DeadLetter")] {
            let bench = Bench::new(shape).ledgers();
            bench.store.set_reply_bytes_max(reply_bytes_max);
            let said = words(&bench.pass(std::slice::from_ref(&m)).await);
            assert_eq!(said, [word], "{bytes} bytes where {reply_bytes_max} are kept, {shape:?}");
            let (sent, is_stored) = (bench.out.sent().len(), bench.store.stored(&bench.key("a")).await.is_some());
            assert_eq!((sent, is_stored), if word == "Handled" { (2, true) } else { (0, false) });
        }
    }
}
