//! Measurements, by the SDK's exporter in memory.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use hapax_core::{
    ports::OutboxState,
    relay::{RelayCounts, RelayMetrics},
};
use hapax_otel::INSTRUMENTS;
use hapax_stores::Memory;
use hapax_transports::InProcess;
use support::{
    Seen,
    shop::{self, Cut, Fate, Unheard, place, sender},
};

#[tokio::test(start_paused = true)]
async fn what_becomes_of_messages_is_counted() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("counted"));
    let sender = sender(&seen, &hub);
    for _ in 0..2 {
        sender.send_as("the-same".parse().unwrap(), "shop", &place("a", Fate::Billed)).await.unwrap();
    }
    sender.send("shop", &place("b", Fate::FailsOnce)).await.unwrap();
    sender.send("shop", &place("c", Fate::Refused)).await.unwrap();
    sender.send("shop", &Unheard("?".into())).await.unwrap();
    shop::run(&seen, &store, &hub).await;

    let measured = seen.measured();
    let order = [("hapax.endpoint", "shop"), ("hapax.saga", "order")];
    let account = [("hapax.endpoint", "billing"), ("hapax.saga", "account")];
    for (name, with, expected) in [
        ("hapax.handled", &order[..], 2.0),
        ("hapax.handled", &account, 2.0),
        ("hapax.duplicates", &order, 1.0),
        ("hapax.dead_letters", &order, 1.0),
        ("hapax.refused", &[("hapax.endpoint", "shop"), ("hapax.outcome", "dead_lettered")], 1.0),
        ("hapax.retries", &[("hapax.saga", "order"), ("hapax.cause", "failure")], 1.0),
        // Five were sent, and the one that failed came twice.
        ("messaging.client.consumed.messages", &[("messaging.destination.name", "shop")], 6.0),
        ("messaging.client.consumed.messages", &[("messaging.destination.name", "billing")], 2.0),
        ("messaging.client.sent.messages", &[("hapax.endpoint", "shop")], 2.0),
        ("messaging.client.operation.duration", &[("messaging.system", "in-process")], 2.0),
        ("messaging.process.duration", &[("hapax.saga", "order"), ("hapax.outcome", "handled")], 2.0),
        ("messaging.process.duration", &[("hapax.saga", "order"), ("hapax.outcome", "duplicate")], 1.0),
        ("messaging.process.duration", &[("hapax.saga", "order"), ("error.type", "dead_lettered")], 1.0),
        ("messaging.process.duration", &[("hapax.saga", "order"), ("error.type", "retried")], 1.0),
        ("messaging.process.duration", &[("hapax.message.type", "billing.bill")], 2.0),
        ("hapax.dispatch.lag", &order, 2.0),
        ("hapax.dispatch.lag", &account, 0.0),
        ("hapax.backlog.entries", &order, 0.0),
    ] {
        assert_eq!(measured.sum(name, with), expected, "{name} with {with:?} in {measured:#?}");
    }
    assert!(measured.sum("hapax.backlog.observed_timestamp", &order) > 0.0, "nobody has looked");
    let of_one = ["a", "b", "c", "the-same", "shop/order/a"];
    for (key, value) in measured.attributes() {
        assert!(!of_one.contains(&&**value), "{key}={value}: there may be any number of them");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_the_sweepers_backlog_until_it_is_sent() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("backlog"));
    let cut = Cut::new(&hub);
    for order in ["a", "b"] {
        sender(&seen, &hub).send("shop", &place(order, Fate::Billed)).await.unwrap();
    }
    let run = |seconds| {
        let end = tokio::time::sleep(Duration::from_secs(seconds));
        shop::shop(&seen, &store, cut.clone()).run_until(end)
    };
    run(15).await.unwrap();
    let order = [("hapax.endpoint", "shop"), ("hapax.saga", "order")];
    let before = seen.measured();
    assert_eq!(before.sum("hapax.left_to_sweeper", &order), 2.0, "{before:#?}");
    assert_eq!(before.sum("hapax.backlog.entities", &order), 2.0);
    assert_eq!(before.sum("hapax.backlog.entries", &order), 2.0);
    assert!(before.sum("hapax.sweep_failures", &order) >= 1.0);
    assert!(before.sum("messaging.client.sent.messages", &[("error.type", "transient")]) >= 2.0);
    assert_eq!(before.sum("hapax.dispatch.lag", &order), 0.0);

    cut.mend();
    run(60).await.unwrap();
    let after = seen.measured();
    assert_eq!(after.sum("hapax.swept", &order), 2.0, "{after:#?}");
    assert_eq!(after.sum("hapax.dispatch.lag", &order), 2.0);
    assert_eq!(after.sum("hapax.backlog.entries", &order), 0.0);
    assert_eq!(after.sum("hapax.backlog.oldest", &order), 0.0);
    assert_eq!(after.sum("hapax.left_to_sweeper", &order), 2.0);
}

#[tokio::test(start_paused = true)]
async fn what_an_audit_looks_at_is_counted_by_invariant_and_its_violations_from_nought() {
    use hapax_core::{
        endpoint::Audit,
        ids::{EntityKey, Scope},
        metrics::{Event, Invariant, Metrics},
    };
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("audited"));
    sender(&seen, &hub).send("shop", &place("a", Fate::Billed)).await.unwrap();
    let end = tokio::time::sleep(Duration::from_secs(60));
    shop::shop(&seen, &store, hub.clone()).audit(Audit::default()).run_until(end).await.unwrap();
    let remembered = [("hapax.endpoint", "shop"), ("hapax.saga", "order"), ("hapax.invariant", "remembered")];
    let measured = seen.measured();
    assert!(measured.sum("hapax.audit.looked_at", &remembered) >= 3.0, "{measured:#?}");
    assert_eq!(measured.sum("hapax.audit.violations", &remembered), 0.0);
    assert!(measured.names().contains(&"hapax.audit.violations"), "from nought");
    let scope = Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
    let key = EntityKey::new(std::sync::Arc::new(scope), "a".parse().unwrap());
    Metrics::observe(&*seen.metrics, Event::Audited(&key, Invariant::Kept, None));
    assert_eq!(seen.measured().sum("hapax.audit.looked_at", &[("hapax.invariant", "kept")]), 1.0);
}

/// What happens seldom, told as the endpoint tells it.
#[test]
fn conflicts_and_what_is_dropped_dead_lettered_breached_and_overdue_are_measured() {
    use hapax_core::{
        ids::{EntityKey, Scope},
        metrics::{Event, Metrics},
        ports::Cause,
    };
    let seen = Seen::begin();
    let scope = Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
    let (shop, key) = (scope.endpoint.clone(), EntityKey::new(std::sync::Arc::new(scope), "a".parse().unwrap()));
    let (overdue, message_id) = (Some(Duration::from_secs(90)), "m-1".parse().unwrap());
    for event in [
        Event::Retried(&key, Cause::Conflict),
        Event::Retried(&key, Cause::Conflict),
        Event::Dropped(&key, "a rule"),
        Event::OutgoingDeadLettered(&key),
        Event::RetentionBreached(&key),
        Event::Unreadable { key: &key, message_id: &message_id, why: "a newer state" },
        Event::Overdue(&shop, overdue),
    ] {
        Metrics::observe(&*seen.metrics, event);
    }
    let (measured, order) = (seen.measured(), [("hapax.endpoint", "shop"), ("hapax.saga", "order")]);
    for (name, sum) in [
        ("hapax.conflicts", 2.0),
        ("hapax.retries", 0.0),
        ("hapax.dropped", 1.0),
        ("hapax.outgoing_dead_letters", 1.0),
        ("hapax.retention_breaches", 1.0),
        ("hapax.unreadable", 1.0),
    ] {
        assert_eq!(measured.sum(name, &order), sum, "{name}: {measured:#?}");
    }
    assert_eq!(measured.sum("hapax.schedule.overdue", &[("hapax.endpoint", "shop")]), 90.0);
    Metrics::observe(&*seen.metrics, Event::Overdue(&shop, None));
    assert_eq!(seen.measured().sum("hapax.schedule.overdue", &[("hapax.endpoint", "shop")]), 0.0);
}

#[test]
fn a_relay_tells_sums_and_what_is_more_is_counted() {
    let seen = Seen::begin();
    let mut state = OutboxState::new(7, 3, 1, 2);
    state.oldest = Some(Duration::from_secs(90));
    let mut counts = RelayCounts::default();
    // The last is of a relay that was started anew.
    for sent in [4, 10, 3] {
        counts.sent = sent;
        RelayMetrics::observe(&*seen.metrics, "shop", &state, &counts);
    }
    let (measured, table) = (seen.measured(), [("table", "shop")]);
    assert_eq!(measured.sum("hapax.relay.sent", &table), 13.0, "{measured:#?}");
    assert_eq!(measured.sum("hapax.outbox.stored", &table), 7.0);
    assert_eq!(measured.sum("hapax.outbox.oldest", &table), 90.0);
    assert!(!measured.names().contains(&"hapax.outbox.log_lag"), "no log is relayed");
}

#[tokio::test(start_paused = true)]
async fn all_that_is_recorded_is_listed() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("listed"));
    sender(&seen, &hub).send("shop", &place("a", Fate::Billed)).await.unwrap();
    shop::run(&seen, &store, &hub).await;
    let mut state = OutboxState::new(0, 0, 0, 1);
    state.log_lag = Some(1);
    RelayMetrics::observe(&*seen.metrics, "shop", &state, &RelayCounts::default());
    let measured = seen.measured();
    for name in measured.names() {
        assert!(INSTRUMENTS.iter().any(|instrument| instrument.name == name), "{name} is not listed");
    }
    let mut names: Vec<_> = INSTRUMENTS.iter().map(|instrument| instrument.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a name is listed twice");
}
