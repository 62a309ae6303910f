//! What a manager says of itself, and whom it asks.

use std::{sync::Arc, time::Duration};

use hapax::{
    Memory, Message, Needs, Registry, SagaManager,
    codec::Codec,
    manager::{Limits, Ports, Stores},
    time::Timestamp,
};
use hapax_model::{
    Call, WorldIds,
    ledger::{Act, Ledger, Post, Posted, Trouble, UPPER},
};
use hapax_tests::{Bench, Shape, Workbench, message};

use crate::{before, post, quiet};

/// A manager of ledgers on the workbench's ports.
fn manager(bench: &Workbench) -> SagaManager<Ledger> {
    let ports = Ports {
        stores: Stores::one(Arc::new(bench.store.clone())),
        dispatcher: Arc::new(bench.out.clone()),
        dead_letters: Arc::new(bench.store.clone()),
        clock: Arc::new(bench.clock.clone()),
        ids: Arc::new(WorldIds(bench.world.clone())),
        metrics: Arc::new(bench.events.clone()),
    };
    SagaManager::new(&UPPER.parse().unwrap(), Ledger::registry(), ports, Limits::default(), Codec::Json).unwrap()
}

struct Till;

#[tokio::test]
async fn a_manager_names_the_first_service_that_it_was_not_given() {
    let bench = Bench::new(Shape::One).ledgers();
    let needs = Needs::default().and::<Till>().and::<String>();
    assert_eq!(manager(&bench).missing(&Needs::default()), None);
    assert_eq!(manager(&bench).missing(&needs), Some(std::any::type_name::<Till>()));
    let given = manager(&bench).with_service(Arc::new(Till));
    assert_eq!(given.missing(&needs), Some(std::any::type_name::<String>()));
    assert_eq!(given.with_service(Arc::new(String::new())).missing(&needs), None);
}

#[tokio::test]
async fn a_manager_names_the_messages_that_it_handles() {
    let bench = Bench::new(Shape::One).of(Registry::<Ledger>::new().starts::<Post>().handles::<Posted>());
    let mut types: Vec<String> = bench.manager.types().iter().map(|name| name.as_str().to_owned()).collect();
    types.sort_unstable();
    assert_eq!(types, [Post::TYPE, Posted::TYPE]);
}

#[tokio::test]
async fn a_log_shows_which_manager_and_which_message_but_not_what_it_says() {
    let bench = Bench::new(Shape::One).ledgers();
    let manager = format!("{:?}", manager(&bench));
    assert!(manager.contains(UPPER) && manager.contains("ledger"), "{manager}");
    let (_, incoming) = bench.incoming(&[message("m-17", &post("a secret"))], 3);
    let incoming = format!("{:?}", incoming[0]);
    assert!(
        incoming.contains("m-17") && incoming.contains(Post::TYPE) && incoming.contains("attempts: 3"),
        "{incoming}"
    );
    assert!(!incoming.contains("secret"), "{incoming}");
}

#[tokio::test]
async fn with_two_stores_the_one_of_entities_is_asked_what_waits_and_told_to_purge() {
    const PLENTY: usize = 10;
    let bench = Bench::new(Shape::One).ledgers();
    let stores = Stores::two(Arc::new(bench.store.clone()), Arc::new(Memory::new()));
    let scope = bench.manager.scope();
    bench.crash(&message("m", &post("m")), before(Call::Dispatch)).await;
    let waiting = stores.entities().pending(scope, Duration::ZERO, None, PLENTY).await.unwrap();
    assert_eq!(waiting.iter().map(|pending| &pending.key).collect::<Vec<_>>(), [&bench.key("a")]);
    for ledger in ["b", "c"] {
        bench.pass(&[message(ledger, &Post { ledger: ledger.into(), act: Act::Close, ..quiet(ledger) })]).await;
    }
    assert_eq!(stores.entities().purge(scope, Duration::ZERO, PLENTY).await.unwrap(), 2, "both tombstones");
    assert!(bench.store.stored(&bench.key("b")).await.is_none());
}

/// Goal: whoever observes knows of each delivery how it ended, once. Method: one delivery for each end.
#[tokio::test]
async fn each_delivery_is_told_to_have_one_end() {
    const LAST: u32 = 5;
    let fails = Post { trouble: Trouble::Fails(u8::MAX), ..quiet("fails") };
    let refuses = Post { trouble: Trouble::Refuses, ..quiet("refuses") };
    let mut expired = message("expired", &quiet("expired"));
    expired.expires = Some(Timestamp::from_millis(1));
    for (envelope, attempts, ending) in [
        (message("m", &post("m")), 1, "handled"),
        (message("seen", &post("seen")), 2, "duplicate"),
        (expired, 1, "dropped"),
        (message("fails", &fails), 1, "retried"),
        (message("fails", &fails), LAST, "dead_lettered"),
        (message("refuses", &refuses), 1, "dead_lettered"),
        (message("left", &post("left")), 1, "left_to_sweeper"),
    ] {
        for shape in Shape::ALL {
            let bench = Bench::new(shape).ledgers();
            bench.pass(&[message("seen", &post("seen"))]).await;
            if ending == "left_to_sweeper" {
                bench.out.fail(u32::MAX);
            }
            bench.deliver(std::slice::from_ref(&envelope), attempts).await;
            let seen = bench.events.seen();
            let ends: Vec<_> = seen.iter().filter(|event| event.starts_with("Ended")).collect();
            assert_eq!(ends, [&format!("Ended {ending}")], "{shape:?}: {seen:?}");
        }
    }
}

/// Goal: how long messages wait to be sent is told of those that are sent, and of no others.
#[tokio::test]
async fn an_entry_is_told_to_be_dispatched_when_all_it_sends_has_left() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let dispatched = || bench.events.seen().iter().filter(|event| *event == "Dispatched").count();
        bench.pass(&[message("quiet", &quiet("quiet"))]).await;
        assert_eq!(dispatched(), 0, "{shape:?}: there is nothing to send");
        bench.out.fail(1);
        bench.pass(&[message("m", &post("m"))]).await;
        assert_eq!(dispatched(), 0, "{shape:?}: it was not sent");
        bench.sweep(&bench.key("a")).await;
        assert_eq!(dispatched(), 1, "{shape:?}");
    }
}
