//! What a broker does not hold back, or not for long enough, waits in a schedule and comes over it at its time.
#![allow(dead_code, clippy::unwrap_used)]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sender, Sqlite,
    ids::EndpointName,
    ports::{Next, Schedule, Transport},
};
use hapax_tests::Scratch;
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, task::JoinHandle};

/// What has to come comes long before this, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
const BOILS: Duration = Duration::from_secs(2);
const COOLS: Duration = Duration::from_secs(3);
/// What clocks and rounding may make early, and a busy machine late.
const EARLY: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
pub(crate) struct Boil {
    pub(crate) kitchen: String,
    /// A timeout.
    pub(crate) boils: Duration,
    /// A message that is sent for later.
    pub(crate) cools: Duration,
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
        cx.send_after(boil.cools, &boil.kitchen, Eat { kitchen: boil.kitchen.clone() })?;
        cx.timeout(boil.boils, Ready { kitchen: boil.kitchen })?;
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

/// An endpoint with a schedule in a file of its own, which runs until it is closed.
pub(crate) struct Kitchen {
    here: EndpointName,
    store: Sqlite,
    heard: Heard,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
    _scratch: Scratch,
}

impl Kitchen {
    pub(crate) async fn open(here: &EndpointName, transport: impl Transport + 'static) -> Self {
        let (heard, scratch) = (Heard::default(), Scratch::new("scheduled"));
        let store = Sqlite::open(scratch.file("kitchen.db")).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let kitchen = Endpoint::builder(here.as_str())
            .store(store.clone())
            .schedule(store.clone())
            .transport(transport)
            .with(heard.clone())
            .saga::<Egg>(|egg| egg.starts::<Boil>().handles::<Ready>().handles::<Eat>());
        let kitchen = kitchen.start().await.unwrap();
        let running = tokio::spawn(async move { kitchen.run_until(stopped).await.unwrap() });
        Self { here: here.clone(), store, heard, stop, running, _scratch: scratch }
    }

    /// When the first message that waits in the schedule is due.
    pub(crate) async fn next(&self) -> Option<Next> {
        Schedule::next(&self.store, &self.here).await.unwrap()
    }

    pub(crate) async fn close(self) {
        drop(self.stop);
        self.running.await.unwrap();
    }
}

/// A timeout, and a message that is sent for later. The broker has neither before its time, or `ahead` of it where it can hold it back for
/// the rest. `given` says how many messages it was given so far.
pub(crate) async fn waits_and_comes_at_its_time(
    transport: impl Transport + 'static,
    sender: Sender,
    here: EndpointName,
    ahead: Duration,
    given: impl AsyncFn() -> usize,
) {
    const LOOK: Duration = Duration::from_millis(5);
    let kitchen = Kitchen::open(&here, transport).await;
    let all = || kitchen.heard.all();
    let sent = Instant::now();
    let boil = Boil { kitchen: here.as_str().to_owned(), boils: BOILS, cools: COOLS };
    sender.send(here.as_str(), &boil).await.unwrap();
    let put = async {
        while all().len() < 3 && kitchen.next().await.is_none() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, put).await.expect("nothing is put into the schedule");
    let there = given().await;
    assert!(there == 1 || sent.elapsed() + ahead >= BOILS, "the broker has {there} before anything is due");
    let over = async {
        while all().len() < 3 || kitchen.next().await.is_some() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.unwrap_or_else(|_| panic!("it does not come: {:?}", all()));
    let all = all();
    kitchen.close().await;
    let [("boil", begun), ("ready", ready), ("eat", eaten)] = all[..] else { panic!("{all:?}") };
    for (came, due) in [(ready, BOILS), (eaten, COOLS)] {
        assert!(came + EARLY >= sent + due, "it came after {:?}, and was due after {due:?}", came - sent);
        assert!(came <= begun + due + LATE, "it came after {:?}, and was due after {due:?}", came - begun);
    }
    assert!(given().await >= 3, "it came by another way");
}
