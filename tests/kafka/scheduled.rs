//! Kafka holds nothing back until it is due: what waits in a schedule comes over it at its time.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hapax::{Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sqlite, ports::Schedule};
use hapax_tests::Scratch;
use serde::{Deserialize, Serialize};

use super::rig::*;

const BOILS: Duration = Duration::from_secs(2);
const COOLS: Duration = Duration::from_secs(3);
/// What clocks and rounding may make early, and a busy machine late.
const EARLY: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
struct Boil {
    kitchen: String,
}
impl Message for Boil {
    const TYPE: &'static str = "test.boil";
}

#[derive(Serialize, Deserialize)]
struct Ready {
    kitchen: String,
}
impl Message for Ready {
    const TYPE: &'static str = "test.ready";
}

#[derive(Serialize, Deserialize)]
struct Eat {
    kitchen: String,
}
impl Message for Eat {
    const TYPE: &'static str = "test.eat";
}

/// The only one of its kitchen.
#[derive(Default, Serialize, Deserialize)]
struct Egg {
    boils: bool,
}
impl Saga for Egg {
    const NAME: &'static str = "egg";
}
impl Handle<Boil> for Egg {
    fn correlate(boil: &Boil) -> Correlation<'_> {
        (&boil.kitchen).into()
    }
    async fn handle(&mut self, boil: Boil, cx: &mut Context) -> Result<(), HandlerError> {
        self.boils = true;
        cx.get::<Heard>()?.hear("boil");
        cx.send_after(COOLS, &boil.kitchen, Eat { kitchen: boil.kitchen.clone() })?;
        cx.timeout(BOILS, Ready { kitchen: boil.kitchen })?;
        Ok(())
    }
}
impl Handle<Ready> for Egg {
    fn correlate(ready: &Ready) -> Correlation<'_> {
        (&ready.kitchen).into()
    }
    async fn handle(&mut self, _: Ready, cx: &mut Context) -> Result<(), HandlerError> {
        self.boils = false;
        cx.get::<Heard>()?.hear("ready");
        Ok(())
    }
}
impl Handle<Eat> for Egg {
    fn correlate(eat: &Eat) -> Correlation<'_> {
        (&eat.kitchen).into()
    }
    async fn handle(&mut self, _: Eat, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Heard>()?.hear("eat");
        Ok(())
    }
}

/// What was handled, and when.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(&'static str, Instant)>>>);

impl Heard {
    fn hear(&self, what: &'static str) {
        self.0.lock().unwrap().push((what, Instant::now()));
    }

    fn all(&self) -> Vec<(&'static str, Instant)> {
        self.0.lock().unwrap().clone()
    }
}

/// A timeout, and a message that is sent for later. The broker has neither before its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_later_waits_in_a_schedule_and_comes_over_the_broker_at_its_time() {
    const LOOK: Duration = Duration::from_millis(5);
    let queue = options().partitions(1).open(url()).await.unwrap();
    let (here, heard, scratch) = (endpoint(), Heard::default(), Scratch::new("kafka-scheduled"));
    let store = Sqlite::open(scratch.file("kitchen.db")).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let kitchen = Endpoint::builder(here.as_str())
        .store(store.clone())
        .schedule(store.clone())
        .transport(queue.clone())
        .with(heard.clone())
        .saga::<Egg>(|egg| egg.starts::<Boil>().handles::<Ready>().handles::<Eat>());
    let running = tokio::spawn(kitchen.start().await.unwrap().run_until(stopped));
    let waits = async || Schedule::next(&store, &here).await.unwrap().is_some();
    let on_broker = async || {
        let topic = format!("{PREFIX}.queue.{here}");
        tokio::task::spawn_blocking(move || records(&topic, 0).len()).await.unwrap()
    };
    let sent = Instant::now();
    queue.sender().send(here.as_str(), &Boil { kitchen: here.as_str().to_owned() }).await.unwrap();
    let put = async {
        while heard.all().len() < 3 && !waits().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, put).await.expect("nothing is put into the schedule");
    let there = on_broker().await;
    assert!(there == 1 || sent.elapsed() >= BOILS, "the broker has {there} before anything is due");
    let over = async {
        while heard.all().len() < 3 || waits().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.unwrap_or_else(|_| panic!("it does not come: {:?}", heard.all()));
    drop(stop);
    running.await.unwrap().unwrap();
    let all = heard.all();
    let [("boil", begun), ("ready", ready), ("eat", eaten)] = all[..] else { panic!("{all:?}") };
    for (came, due) in [(ready, BOILS), (eaten, COOLS)] {
        assert!(came + EARLY >= sent + due, "it came after {:?}, and was due after {due:?}", came - sent);
        assert!(came <= begun + due + LATE, "it came after {:?}, and was due after {due:?}", came - begun);
    }
    assert!(on_broker().await >= 3, "it came by another way");
}
