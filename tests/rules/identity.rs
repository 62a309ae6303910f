//! Who a message is, and what is derived from it.

use hapax::{
    Registry,
    envelope::Envelope,
    ids::{IdempotencyKey, MessageId},
    time::Timestamp,
};
use hapax_model::ledger::{Act, Ledger, Post};
use hapax_tests::{Bench, Save, Shape, message, words};

use crate::{post, quiet};

#[tokio::test]
async fn one_intent_under_two_message_ids_is_handled_once() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let (mut m, mut n) = (message("m", &post("m")), message("n", &post("m")));
        for envelope in [&mut m, &mut n] {
            envelope.idempotency_key = Some(IdempotencyKey::parse("intent").unwrap());
        }
        assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
        assert_eq!(words(&bench.pass(&[n]).await), ["Duplicate"], "{shape:?}");
    }
}

#[tokio::test]
async fn two_sagas_of_one_endpoint_handle_the_same_message() {
    let m = message("m", &post("m"));
    let other = Post { ledger: "b".into(), ..post("m") };
    let bench = Bench::new(Shape::One).ledgers();
    assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
    assert_eq!(words(&bench.pass(&[message("m", &other)]).await), ["Handled"], "another instance, another key");
}

/// The ids of what a fresh manager sends for `envelope`.
async fn sent_ids(envelope: &Envelope, lose_first: bool) -> Vec<MessageId> {
    let bench = Bench::new(Shape::Two).ledgers();
    if lose_first {
        bench.store.saves(&[Save::UnknownLost]);
        assert_eq!(words(&bench.pass(std::slice::from_ref(envelope)).await), ["Again UnknownOutcome"]);
    }
    assert_eq!(words(&bench.pass(std::slice::from_ref(envelope)).await), ["Handled"]);
    bench.out.sent().iter().map(|sent| sent.envelope.message_id.clone()).collect()
}

#[tokio::test]
async fn outgoing_ids_are_the_same_for_every_run_and_every_copy_and_differ_by_index() {
    let mut m = message("m", &Post { outputs: 3, act: Act::SetAlarm, ..post("m") });
    m.occurred_at = Some(Timestamp::from_millis(1_700_000_000_000));
    let ids = sent_ids(&m, false).await;
    assert_eq!(ids.len(), 4);
    for (index, id) in ids.iter().enumerate() {
        assert!(!ids[..index].contains(id));
        assert_eq!(id.to_string().replace('-', "")[..12], format!("{:012x}", 1_700_000_000_000_u64), "time first");
    }
    assert_eq!(sent_ids(&m, true).await, ids, "after a run that was not kept");
    assert_eq!(sent_ids(&m, false).await, ids, "by somebody who knows nothing of the first run");
}

#[tokio::test]
async fn outgoing_ids_of_one_intent_do_not_depend_on_when_its_copies_were_made() {
    let copy = |id: &str, time| {
        let mut envelope = message(id, &post("m"));
        envelope.idempotency_key = Some(IdempotencyKey::parse("intent").unwrap());
        envelope.occurred_at = Some(Timestamp::from_millis(time));
        envelope
    };
    assert_eq!(sent_ids(&copy("m", 1), false).await, sent_ids(&copy("n", 2), false).await);
}

#[tokio::test]
async fn outgoing_messages_tell_where_they_come_from() {
    let bench = Bench::new(Shape::One).ledgers();
    let mut m = message("m", &post("m"));
    m.correlation_id = Some("process".parse().unwrap());
    m.tenant = Some("tenant".parse().unwrap());
    m.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
    bench.pass(std::slice::from_ref(&m)).await;
    let sent = bench.out.sent()[0].envelope.clone();
    assert_eq!(sent.causation_id.as_ref().unwrap().0, m.message_id);
    assert_eq!((&sent.correlation_id, &sent.tenant, &sent.traceparent), (&m.correlation_id, &m.tenant, &m.traceparent));
    assert_eq!(sent.partition_key.as_ref().unwrap().as_str(), "a");
    assert_eq!(sent.occurred_at, Some(bench.clock.wall()));
}

#[tokio::test]
async fn a_message_without_a_correlation_id_begins_a_process() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.pass(&[message("m", &post("m"))]).await;
    assert_eq!(bench.out.sent()[0].envelope.correlation_id.as_ref().unwrap().as_str(), "m");
}

#[test]
fn a_message_that_does_not_name_its_saga_is_a_permanent_error_that_names_the_field() {
    let bench = Bench::new(Shape::One).of(Registry::<Ledger>::new().starts::<Post>());
    let m = message("m", &Post { ledger: String::new(), ..quiet("m") });
    let receipt = hapax::ports::Receipt::number(1);
    let error = bench.manager.route(&std::sync::Arc::new(m), receipt, 1).unwrap_err();
    assert!(error.is_permanent());
    assert_eq!(error.to_string(), "ledger.post does not name its ledger: ledger is empty");
}
