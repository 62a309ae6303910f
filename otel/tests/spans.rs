//! Spans, by the SDK's exporter in memory: which is whose child, and which is linked.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use hapax_core::{RequestClient, ids::MessageId, requests::RequestError, time::Timestamp};
use hapax_otel::{OtelTraces, PARENT_WITHIN};
use hapax_stores::Memory;
use hapax_transports::{
    InProcess,
    in_process::{Faults, LEASE},
};
use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use support::{
    Seen, attribute, is_child, is_linked,
    shop::{self, Bill, Cut, Fate, place, sender},
};
use tracing::Instrument;

/// A message is traced from the request that sends it to the endpoint that handles what its handler sends.
#[tokio::test(start_paused = true)]
async fn a_first_delivery_is_the_child_of_where_its_message_was_created() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("first"));
    let id = async { sender(&seen, &hub).send("shop", &place("first", Fate::Billed)).await.unwrap() };
    let id = id.instrument(tracing::info_span!("request")).await;
    shop::run(&seen, &store, &hub).await;

    let spans = seen.spans();
    let (request, sent) = (spans.only("request"), spans.only("send shop"));
    let (process, create) = (spans.only("process shop"), spans.only("create billing"));
    let (send, next) = (spans.only("send billing"), spans.only("process billing"));
    assert!(is_child(sent, request) && sent.span_kind == SpanKind::Producer, "{sent:?}");
    assert!(is_child(process, sent) && process.span_kind == SpanKind::Consumer, "{process:?}");
    assert!(process.links.iter().next().is_none(), "{process:?}");
    assert!(is_child(create, process) && create.span_kind == SpanKind::Producer, "{create:?}");
    assert!(is_child(send, process) && is_linked(send, create) && send.span_kind == SpanKind::Client, "{send:?}");
    assert!(is_child(next, create), "{next:?}");

    for (name, value) in [
        ("messaging.system", "in-process"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "shop"),
        ("messaging.message.id", &id.to_string()),
        ("hapax.message.type", "shop.place"),
        ("hapax.saga", "order"),
        ("hapax.entity", "shop/order/first"),
        ("hapax.attempts", "1"),
        ("hapax.outcome", "handled"),
    ] {
        assert_eq!(attribute(process, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(attribute(process, "error.type"), None);
    assert!(attribute(process, "messaging.message.body.size").is_some());
    assert_eq!(attribute(next, "messaging.message.conversation_id"), Some(id.to_string()));
    assert_eq!(attribute(next, "messaging.message.id"), attribute(create, "messaging.message.id"));
    assert_eq!(attribute(next, "messaging.message.id"), attribute(send, "messaging.message.id"));
}

/// Who asks by a client is traced as one who sends. A request that is sent once more for want of an answer is of the trace of the first.
#[tokio::test(start_paused = true)]
async fn a_request_is_the_parent_of_its_handling_and_its_repeats_are_linked() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("asked"));
    let client =
        RequestClient::builder("front").transport(hub.clone()).traces(seen.traces.clone()).start().await.unwrap();
    let asked = async {
        let answer = client.request::<_, Bill>("shop", &place("asked", Fate::Billed), Duration::from_secs(1)).await;
        assert!(matches!(answer, Err(RequestError::TimedOut { .. })), "nobody answers: {answer:?}");
    };
    asked.instrument(tracing::info_span!("caller")).await;
    shop::run(&seen, &store, &hub).await;

    let spans = seen.spans();
    let (caller, request, sends) = (spans.only("caller"), spans.only("request"), spans.named("send shop"));
    assert!(is_child(request, caller), "{request:?}");
    let [first, again, ..] = sends[..] else { panic!("{:?}", spans.0) };
    assert!(is_child(first, request) && first.span_kind == SpanKind::Producer, "{first:?}");
    assert!(is_child(again, request) && is_linked(again, first), "{again:?}");
    let processes = spans.named("process shop");
    assert!(is_child(processes[0], first), "{:?}", processes[0]);
}

/// A delivery after a failed one is a trace of its own, linked to the same creation.
#[tokio::test(start_paused = true)]
async fn a_redelivery_is_linked_and_no_child() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("again"));
    sender(&seen, &hub).send("shop", &place("again", Fate::FailsOnce)).await.unwrap();
    shop::run(&seen, &store, &hub).await;

    let spans = seen.spans();
    let sent = spans.only("send shop");
    let [first, second] = spans.named("process shop")[..] else { panic!("{:?}", spans.0) };
    assert!(is_child(first, sent), "{first:?}");
    assert_eq!(attribute(first, "hapax.outcome").as_deref(), Some("retried"));
    assert_eq!(attribute(first, "error.type").as_deref(), Some("retried"));
    assert!(matches!(first.status, Status::Error { .. }), "{first:?}");
    assert!(is_linked(second, sent) && second.parent_span_id == SpanId::INVALID, "{second:?}");
    assert_ne!(second.span_context.trace_id(), sent.span_context.trace_id());
    assert_eq!(attribute(second, "hapax.attempts").as_deref(), Some("2"));
    assert_eq!(attribute(second, "hapax.outcome").as_deref(), Some("handled"));
    // What the second sends belongs to the second.
    assert!(is_child(spans.only("create billing"), second));
}

/// Who dies with a message in his hands leaves a span without an outcome, the child of the creation; whoever is given the message next has a
/// trace of his own, and what is sent is his.
#[tokio::test(start_paused = true)]
async fn a_redelivery_to_another_process_is_linked_and_what_the_dead_one_did_stays_his() {
    let (seen, store, hub, runs) = (Seen::begin(), Memory::new(), InProcess::new("died"), shop::Runs::default());
    sender(&seen, &hub).send("shop", &place("died", Fate::HangsOnce)).await.unwrap();
    let dies = shop::shop(&seen, &store, hub.clone()).with(runs.clone()).run_until(std::future::pending::<()>());
    let killed = tokio::time::timeout(Duration::from_secs(5), dies).await;
    assert!(killed.is_err(), "it hangs until it is dropped");
    let other = shop::shop(&seen, &store, hub.clone()).with(runs).run_until(hub.idle());
    let billing = shop::billing(&seen, &store, hub.clone()).run_until(hub.idle());
    let (other, billing) = tokio::join!(other, billing);
    other.unwrap();
    billing.unwrap();

    let spans = seen.spans();
    let sent = spans.only("send shop");
    let [dead, second] = spans.named("process shop")[..] else { panic!("{:?}", spans.0) };
    assert!(is_child(dead, sent) && dead.links.iter().next().is_none(), "{dead:?}");
    assert_eq!(attribute(dead, "hapax.attempts").as_deref(), Some("1"));
    assert_eq!(attribute(dead, "hapax.outcome"), None);
    assert!(is_linked(second, sent) && second.parent_span_id == SpanId::INVALID, "{second:?}");
    assert_ne!(second.span_context.trace_id(), sent.span_context.trace_id());
    assert_eq!(attribute(second, "hapax.attempts").as_deref(), Some("2"));
    assert_eq!(attribute(second, "hapax.outcome").as_deref(), Some("handled"));
    // Both have created the message, under one id; the one that is sent is of the second.
    let [lost, saved] = spans.named("create billing")[..] else { panic!("{:?}", spans.0) };
    assert!(is_child(lost, dead) && is_child(saved, second), "{lost:?}");
    assert_eq!(attribute(lost, "messaging.message.id"), attribute(saved, "messaging.message.id"));
    let (send, billed) = (spans.only("send billing"), spans.only("process billing"));
    assert!(is_child(send, second) && is_linked(send, saved), "{send:?}");
    assert!(is_child(billed, saved), "{billed:?}");
}

/// A copy that the broker made counts as a first delivery, and nobody can tell which of them is the copy before one has been handled: each is a
/// child of the creation, and says what has become of it.
#[tokio::test(start_paused = true)]
async fn a_copy_that_the_broker_made_is_a_child_too_and_says_that_it_is_a_duplicate() {
    let faults = Faults { duplicates: 1.0, delay_max: Duration::from_secs(60), ..Faults::default() };
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::with_faults("copies", LEASE, faults));
    sender(&seen, &hub).send("shop", &place("copies", Fate::Billed)).await.unwrap();
    shop::run(&seen, &store, &hub).await;

    let spans = seen.spans();
    let sent = spans.only("send shop");
    let [first, copy] = spans.named("process shop")[..] else { panic!("{:?}", spans.0) };
    for (span, outcome) in [(first, "handled"), (copy, "duplicate")] {
        assert!(is_child(span, sent) && span.links.iter().next().is_none(), "{span:?}");
        assert_eq!(attribute(span, "hapax.attempts").as_deref(), Some("1"));
        assert_eq!(attribute(span, "hapax.outcome").as_deref(), Some(outcome));
        assert_eq!(attribute(span, "error.type"), None);
    }
    // Nothing was created by the copy.
    assert!(is_child(spans.only("create billing"), first));
}

/// One that comes later than traces are put together is linked, as what occurred long ago is; here that is at once.
#[tokio::test(start_paused = true)]
async fn a_late_copy_that_the_broker_made_is_linked_and_no_child() {
    let faults = Faults { duplicates: 1.0, delay_max: Duration::from_secs(60), ..Faults::default() };
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::with_faults("late", LEASE, faults));
    sender(&seen, &hub).send("shop", &place("late", Fate::Billed)).await.unwrap();
    let end = tokio::time::sleep(Duration::from_secs(3600));
    let late = OtelTraces::default().parent_within(Duration::ZERO);
    shop::shop(&seen, &store, hub.clone()).traces(late).run_until(end).await.unwrap();

    let spans = seen.spans();
    let sent = spans.only("send shop");
    let [first, copy] = spans.named("process shop")[..] else { panic!("{:?}", spans.0) };
    for span in [first, copy] {
        assert!(is_linked(span, sent) && span.parent_span_id == SpanId::INVALID, "{span:?}");
    }
    assert_eq!(attribute(copy, "hapax.outcome").as_deref(), Some("duplicate"));
    assert_ne!(first.span_context.trace_id(), copy.span_context.trace_id());
}

/// What was not due before some time is linked; a trace of an hour is none.
#[tokio::test(start_paused = true)]
async fn a_delayed_message_is_linked_and_no_child() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("later"));
    sender(&seen, &hub).send("shop", &place("later", Fate::BilledLater)).await.unwrap();
    shop::run(&seen, &store, &hub).await;

    let spans = seen.spans();
    let (create, next) = (spans.only("create billing"), spans.only("process billing"));
    assert!(is_linked(next, create) && next.parent_span_id == SpanId::INVALID, "{next:?}");
}

/// So is one that occurred long ago: a replay, or what an outage has held up.
#[tokio::test(start_paused = true)]
async fn a_message_of_long_ago_is_linked_and_no_child() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("old"));
    let sender = sender(&seen, &hub);
    let mut envelope = sender.envelope(MessageId::random(), &place("old", Fate::Billed)).unwrap();
    let age = u64::try_from(PARENT_WITHIN.as_millis()).unwrap() + 1;
    envelope.occurred_at = Some(Timestamp::from_millis(Timestamp::now().as_millis() - age));
    let to = hapax_core::envelope::Destination::parse("endpoint:shop").unwrap();
    sender.send_envelope(to, envelope).await.unwrap();
    shop::run(&seen, &store, &hub).await;

    let spans = seen.spans();
    let (sent, process) = (spans.only("send shop"), spans.only("process shop"));
    assert!(is_linked(process, sent) && process.parent_span_id == SpanId::INVALID, "{process:?}");
    assert!(is_child(spans.only("process billing"), spans.only("create billing")));
}

/// The context is stored with the message: what the sweeper sends later is where its handler created it.
#[tokio::test(start_paused = true)]
async fn what_the_sweeper_sends_was_created_by_its_handler() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("swept"));
    let cut = Cut::new(&hub);
    sender(&seen, &hub).send("shop", &place("swept", Fate::Billed)).await.unwrap();
    let once = shop::shop(&seen, &store, cut.clone()).run_until(tokio::time::sleep(Duration::from_secs(1)));
    once.await.unwrap();
    cut.mend();
    let end = || tokio::time::sleep(Duration::from_secs(60));
    let shop = shop::shop(&seen, &store, cut).run_until(end());
    let billing = shop::billing(&seen, &store, hub.clone()).run_until(end());
    let (shop, billing) = tokio::join!(shop, billing);
    shop.unwrap();
    billing.unwrap();

    let spans = seen.spans();
    let process = spans.only("process shop");
    assert_eq!(attribute(process, "hapax.outcome").as_deref(), Some("left_to_sweeper"));
    let create = spans.only("create billing");
    assert!(is_child(create, process) && is_child(spans.only("process billing"), create));
    let sends = spans.named("send billing");
    let (failed, sent): (Vec<&SpanData>, Vec<&SpanData>) =
        sends.into_iter().partition(|span| attribute(span, "error.type").is_some());
    assert!(failed.iter().any(|span| is_child(span, process)), "{failed:?}");
    let [sent] = sent[..] else { panic!("{sent:?}") };
    assert!(is_linked(sent, create), "{sent:?}");
    assert!(spans.named("sweep").iter().any(|sweep| is_child(sent, sweep)), "{sent:?}");
}

/// Messages of one entity that are handled together: each has its own span, with its own parent.
#[tokio::test(start_paused = true)]
async fn messages_of_one_pass_have_spans_of_their_own() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("pass"));
    let sender = sender(&seen, &hub);
    for _ in 0..3 {
        sender.send("shop", &place("pass", Fate::Billed)).await.unwrap();
    }
    shop::run(&seen, &store, &hub).await;

    let spans = seen.spans();
    let (sends, processes, creates) =
        (spans.named("send shop"), spans.named("process shop"), spans.named("create billing"));
    assert_eq!((sends.len(), processes.len(), creates.len()), (3, 3, 3));
    for (parents, children) in [(&sends, &processes), (&processes, &creates)] {
        for parent in parents {
            assert_eq!(children.iter().filter(|child| is_child(child, parent)).count(), 1, "{parent:?}");
        }
    }
    let deliver = spans.named("deliver");
    let deliver = deliver.iter().find(|span| attribute(span, "messaging.destination.name").as_deref() == Some("shop"));
    assert_eq!(attribute(deliver.unwrap(), "messaging.batch.message_count").as_deref(), Some("3"));
    // What is sent for one of them is sent while all are delivered.
    for sent in spans.named("send billing") {
        assert!(is_child(sent, deliver.unwrap()), "{sent:?}");
    }
}
