//! What is done about errors of certain types.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    Context, Endpoint, Handler, HandlerError, InProcess, Memory, Message,
    deliver::{Last, Recoverability, Rule, Tries},
    endpoint::{EndpointBuilder, Settings},
    metrics::{Event, Metrics},
    ports::Transport,
    transports::in_process::Faults,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::work::{letters, settings};

#[derive(Debug, thiserror::Error)]
#[error("the card was declined")]
struct Declined;

#[derive(Debug, thiserror::Error)]
#[error("too many requests")]
struct Limited;

#[derive(Debug, thiserror::Error)]
#[error("it was shipped already")]
struct Shipped;

/// What went wrong, around why.
#[derive(Debug, thiserror::Error)]
#[error("paying")]
struct Paying<E: std::error::Error + 'static>(#[source] E);

/// Fails as it says.
#[derive(Debug, Serialize, Deserialize)]
enum Pay {
    Declined,
    Limited,
    Shipped,
    Otherwise,
}

impl Message for Pay {
    const TYPE: &'static str = "work.pay";
}

#[derive(Debug)]
struct Payer;

#[derive(Debug, Clone, Default)]
struct Runs(Arc<AtomicU32>);

impl Handler<Pay> for Payer {
    const NAME: &'static str = "payer";

    async fn handle(&self, pay: Pay, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Runs>()?.0.fetch_add(1, Ordering::SeqCst);
        match pay {
            Pay::Declined => Err(Paying(Declined).into()),
            Pay::Limited => Err(Paying(Limited).into()),
            Pay::Shipped => Err(Shipped.into()),
            Pay::Otherwise => Err(HandlerError::transient("otherwise")),
        }
    }
}

/// Counts what was dropped, and by which rule.
#[derive(Debug, Default)]
struct Drops(Mutex<Vec<&'static str>>);

impl Metrics for Drops {
    fn observe(&self, event: Event<'_>) {
        if let Event::Dropped(_, rule) = event {
            self.0.lock().unwrap().push(rule);
        }
    }
}

fn rules() -> Recoverability {
    let rest = Duration::from_secs(1000);
    let later =
        Rule { in_place: false, attempts_max: 3, retry_delay: rest, retry_delay_max: rest, last: Last::DeadLetter };
    let dropped = Rule { last: Last::Drop, ..Rule::AT_ONCE };
    Recoverability::default().on::<Declined>(Rule::AT_ONCE).on::<Limited>(later).on::<Shipped>(dropped)
}

fn shop(store: &Memory, hub: &InProcess, recoverability: Recoverability) -> EndpointBuilder {
    let settings = Settings { recoverability, ..settings() };
    Endpoint::builder("work").store(store.clone()).transport(hub.clone()).settings(settings).handler(Payer)
}

/// How often the handler ran, for how long, and what it was set aside for.
async fn pay(pay: Pay) -> (u32, Duration, Option<String>, Vec<&'static str>) {
    let (store, hub, drops) = (Memory::new(), InProcess::new("pays"), Arc::new(Drops::default()));
    let runs = Runs::default();
    hub.sender().send("work", &pay).await.unwrap();
    let begun = Instant::now();
    let shop = shop(&store, &hub, rules()).with(runs.clone()).metrics(drops.clone());
    shop.run_until(hub.idle()).await.unwrap();
    let ran = runs.0.load(Ordering::SeqCst);
    let reason = letters(&store).await.pop().map(|letter| letter.reason.lines().next().unwrap().to_owned());
    let dropped = drops.0.lock().unwrap().clone();
    (ran, begun.elapsed(), reason, dropped)
}

#[tokio::test(start_paused = true)]
async fn what_no_repeat_cures_is_given_up_at_the_first_failure() {
    let (runs, took, reason, _) = pay(Pay::Declined).await;
    assert_eq!((runs, reason.as_deref()), (1, Some("paying: the card was declined")));
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_repeat_at_once_makes_worse_is_tried_later_and_only_then() {
    let (runs, took, reason, _) = pay(Pay::Limited).await;
    assert_eq!((runs, reason.as_deref()), (3, Some("paying: too many requests")));
    assert!(took >= Duration::from_secs(2000), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_matter_any_more_is_dropped_and_counted() {
    let (runs, _, reason, dropped) = pay(Pay::Shipped).await;
    assert_eq!((runs, reason), (1, None));
    assert!(dropped.len() == 1 && dropped[0].ends_with("::Shipped"), "{dropped:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_without_a_rule_is_treated_as_usual() {
    let (runs, took, reason, _) = pay(Pay::Otherwise).await;
    // Five deliveries of three tries.
    assert_eq!((runs, reason.as_deref()), (15, Some("otherwise")));
    assert!(took >= Duration::from_secs(1 + 2 + 4 + 8) && took < Duration::from_secs(100), "{took:?}");
}

/// In place, given back, and what is poison: all of it is taken from the one value.
#[tokio::test(start_paused = true)]
async fn every_number_is_taken_from_recoverability() {
    const LEASE: Duration = Duration::from_secs(30);
    let (store, runs) = (Memory::new(), Runs::default());
    let hub = InProcess::with_faults("numbers", LEASE, Faults::default());
    let in_place = Tries::new(4, Duration::from_millis(1), Duration::from_millis(1));
    let few = Recoverability { in_place, attempts_max: 2, poison_above: 2, ..Recoverability::default() };
    let shop = || shop(&store, &hub, few.clone()).with(runs.clone());
    hub.sender().send("work", &Pay::Otherwise).await.unwrap();
    shop().run_until(hub.idle()).await.unwrap();
    // Two deliveries of five tries.
    assert_eq!((runs.0.load(Ordering::SeqCst), letters(&store).await.len()), (10, 1));

    // This one was given twice to processes that died with it.
    hub.sender().send("work", &Pay::Otherwise).await.unwrap();
    for _ in 0..few.poison_above {
        let dead = hub.connect(&"work".parse().unwrap(), &[]).await.unwrap();
        assert_eq!(dead.receiver.receive(1).await.unwrap().len(), 1);
        tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    }
    shop().run_until(hub.idle()).await.unwrap();
    let set_aside = letters(&store).await;
    assert!(set_aside.len() == 2 && set_aside[1].reason.starts_with("poison"), "{set_aside:?}");
    assert_eq!(runs.0.load(Ordering::SeqCst), 10);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_whose_rule_grants_more_than_makes_poison_does_not_start() {
    let often = Rule { attempts_max: 1000, ..Rule::default() };
    let shop = shop(&Memory::new(), &InProcess::new("often"), Recoverability::default().on::<Limited>(often));
    let refused = shop.with(Runs::default()).start().await.unwrap_err().to_string();
    assert!(refused.contains("given up after 1000 attempts"), "{refused}");
}
