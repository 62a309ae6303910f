//! What stands around handlers: in which order, what becomes of a run that it refuses, skips or fails, and what it stands around.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    Around, Context, Endpoint, Handler, HandlerError, Memory, Message, Needs, Next, Ran,
    deliver::{Last, Recoverability, Rule},
    endpoint::{Calendar, EndpointBuilder, Settings},
    testing::Harness,
};
use serde::{Deserialize, Serialize};

use crate::orders::{Book, Cancel, Notes, Place, Placed, Stamp, place};

const MINUTE: Duration = Duration::from_secs(60);

/// Says when it is entered and left, and sends its name on the way.
struct Named(&'static str);

impl Around for Named {
    fn needs() -> Needs {
        Needs::default().and::<Notes>()
    }

    async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
        let notes = cx.get::<Notes>()?.clone();
        notes.add(format!("into {}", self.0));
        cx.publish(Stamp { by: self.0.into() })?;
        let ran = next.run(cx).await;
        let how = match &ran {
            Ok(ran) => ran.skipped().unwrap_or("done").to_owned(),
            Err(error) => error.to_string(),
        };
        notes.add(format!("out of {}: {how}", self.0));
        ran
    }
}

/// Where a guard stops a message, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Before,
    After,
    Skip,
    /// Before, so many times.
    Until(u32),
    /// It runs the handler with a context that it has made.
    Elsewhere,
}

#[derive(Debug, thiserror::Error)]
#[error("the guard says no")]
struct No;

struct Guard(Stop, AtomicU32);

impl Guard {
    const fn new(stop: Stop) -> Self {
        Self(stop, AtomicU32::new(0))
    }
}

impl Around for Guard {
    async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
        cx.publish(Stamp { by: "guard".into() })?;
        match self.0 {
            Stop::Before => Err(HandlerError::permanent(No)),
            Stop::Until(times) if self.1.fetch_add(1, Ordering::Relaxed) < times => Err(No.into()),
            Stop::Skip => Ok(next.skip("no longer wanted")),
            Stop::Elsewhere => next.run(&mut Context::for_test()).await,
            Stop::After => {
                let _ = next.run(cx).await?;
                Err(HandlerError::permanent(No))
            }
            Stop::Until(_) => next.run(cx).await,
        }
    }
}

fn shop(notes: &Notes) -> EndpointBuilder {
    Endpoint::builder("shop")
        .store(Memory::default())
        .with(notes.clone())
        .metrics(Arc::new(notes.clone()))
        .saga::<Book>(|book| book.starts::<Place>().handles::<Cancel>())
}

/// State, messages of the handler, messages of middleware, reasons of letters.
async fn ended(harness: &Harness) -> (Option<Book>, usize, usize, Vec<String>) {
    let letters = harness.dead_letters().await.unwrap();
    let reasons = letters.into_iter().map(|letter| letter.reason.lines().next().unwrap().to_owned());
    let (placed, stamps) = (harness.published::<Placed>().unwrap().len(), harness.published::<Stamp>().unwrap().len());
    (harness.state("a").await.unwrap(), placed, stamps, reasons.collect())
}

#[tokio::test]
async fn the_first_is_the_outermost_and_those_of_a_saga_stand_within_those_of_the_endpoint() {
    let notes = Notes::default();
    let shop = Endpoint::builder("shop")
        .store(Memory::default())
        .with(notes.clone())
        .around(Named("one"))
        .saga::<Book>(|book| book.around(Named("three")).starts::<Place>().handles::<Cancel>())
        .around(Named("two"));
    let mut harness = Harness::start(shop).await.unwrap();
    harness.send(&place("a", 1)).await.unwrap();
    let out = ["placed", "out of three: done", "out of two: done", "out of one: done"];
    assert_eq!(notes.take(), [["into one", "into two", "into three"].as_slice(), &out].concat());
    // What they send goes out with what the handler sends, in the order in which it was said.
    let sent: Vec<_> = harness.outgoing().iter().map(|sent| sent.envelope.message_type.to_string()).collect();
    assert_eq!(sent, [Stamp::TYPE, Stamp::TYPE, Stamp::TYPE, Placed::TYPE]);
}

#[tokio::test]
async fn a_duplicate_reaches_no_middleware_and_what_one_sends_is_sent_once() {
    let notes = Notes::default();
    let mut harness = Harness::start(shop(&notes).around(Named("one"))).await.unwrap();
    harness.send(&place("a", 1)).await.unwrap();
    assert_eq!(notes.take(), ["into one", "placed", "out of one: done"]);
    harness.redeliver().await.unwrap();
    assert_eq!(notes.take(), [""; 0]);
    assert_eq!(ended(&harness).await, (Some(Book { placed: 1 }), 1, 1, vec![]));
}

#[tokio::test]
async fn a_run_that_is_refused_before_or_after_leaves_nothing_but_its_letter() {
    for (stop, runs) in [(Stop::Before, 0), (Stop::After, 1)] {
        let notes = Notes::default();
        let mut harness = Harness::start(shop(&notes).around(Guard::new(stop))).await.unwrap();
        harness.send(&place("a", 1)).await.unwrap();
        assert_eq!(notes.take().len(), runs);
        assert_eq!(ended(&harness).await, (None, 0, 0, vec!["the guard says no".to_owned()]));
    }
}

#[tokio::test]
async fn what_a_middleware_refuses_for_now_is_tried_again_by_the_rules_for_handlers() {
    let notes = Notes::default();
    let mut harness = Harness::start(shop(&notes).around(Guard::new(Stop::Until(7)))).await.unwrap();
    harness.send(&place("a", 1)).await.unwrap();
    assert_eq!(ended(&harness).await, (None, 0, 0, vec![]));
    harness.advance(MINUTE).await.unwrap();
    assert_eq!(ended(&harness).await, (Some(Book { placed: 1 }), 1, 1, vec![]));

    let rule = Rule { last: Last::Drop, ..Rule::AT_ONCE };
    let settings = Settings { recoverability: Recoverability::default().on::<No>(rule), ..Settings::default() };
    let shop = shop(&notes).settings(settings).around(Guard::new(Stop::Until(1)));
    let mut harness = Harness::start(shop).await.unwrap();
    notes.take();
    harness.send(&place("a", 1)).await.unwrap();
    assert_eq!(ended(&harness).await, (None, 0, 0, vec![]));
    assert!(notes.take().iter().any(|note| note.starts_with("dropped") && note.ends_with("::No")));
}

#[tokio::test]
async fn a_middleware_sees_how_the_handler_fails_on_each_attempt() {
    let notes = Notes::default();
    let settings = Settings {
        recoverability: Recoverability::default().on_if("any", |_| true, Rule::AT_ONCE),
        ..Settings::default()
    };
    let mut harness = Harness::start(shop(&notes).settings(settings).around(Named("one"))).await.unwrap();
    harness.send(&place("a", 13)).await.unwrap();
    assert_eq!(notes.take(), ["into one", "placed", "out of one: not thirteen"]);
    assert_eq!(ended(&harness).await, (None, 0, 0, vec!["not thirteen".to_owned()]));
}

#[tokio::test]
async fn what_is_skipped_is_dropped_and_counted_and_no_copy_of_it_is_a_duplicate() {
    let notes = Notes::default();
    let shop = shop(&notes).around(Named("one")).around(Guard::new(Stop::Skip));
    let mut harness = Harness::start(shop).await.unwrap();
    harness.send(&place("a", 1)).await.unwrap();
    let once = ["into one", "out of one: no longer wanted", "ended", "dropped: no longer wanted"];
    assert_eq!(notes.take(), once);
    harness.redeliver().await.unwrap();
    assert_eq!(notes.take(), once);
    harness.advance(MINUTE).await.unwrap();
    assert_eq!(ended(&harness).await, (None, 0, 0, vec![]));
}

#[tokio::test]
async fn effects_that_would_go_into_another_context_are_not_lost_in_silence() {
    let notes = Notes::default();
    let mut harness = Harness::start(shop(&notes).around(Guard::new(Stop::Elsewhere))).await.unwrap();
    harness.send(&place("a", 1)).await.unwrap();
    let why = "a middleware has run the handler with another context than its own".to_owned();
    assert_eq!(ended(&harness).await, (None, 0, 0, vec![why]));
    assert_eq!(notes.take(), [""; 0]);
}

/// Lets no large orders through.
struct Small;

impl Around<Place> for Small {
    async fn around<'r>(&self, cx: &mut Context, next: Next<'r, Place>) -> Result<Ran<'r>, HandlerError> {
        cx.get::<Notes>()?.add(format!("sees {}", next.message().count));
        if next.message().count > 100 {
            return Err(HandlerError::permanent("too large"));
        }
        next.run(cx).await
    }
}

#[tokio::test]
async fn one_of_a_message_type_sees_its_messages_decoded_and_no_others() {
    let notes = Notes::default();
    let mut harness = Harness::start(shop(&notes).around(Named("one")).around(Small)).await.unwrap();
    harness.send(&place("a", 7)).await.unwrap();
    assert_eq!(notes.take(), ["into one", "sees 7", "placed", "out of one: done"]);
    harness.send(&place("a", 101)).await.unwrap();
    assert_eq!(notes.take(), ["into one", "sees 101", "out of one: too large"]);
    harness.send(&Cancel { order: "a".into() }).await.unwrap();
    assert_eq!(notes.take(), ["into one", "cancelled", "out of one: done"]);
}

/// Hears of orders.
struct Hears;

impl Handler<Placed> for Hears {
    const NAME: &'static str = "hears";

    async fn handle(&self, _: Placed, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Notes>()?.add("heard");
        Ok(())
    }
}

#[tokio::test]
async fn one_of_a_message_type_leaves_handlers_of_other_types_as_they_are() {
    let notes = Notes::default();
    let mut harness = Harness::start(shop(&notes).handler(Hears).around(Small)).await.unwrap();
    harness.send(&place("a", 7)).await.unwrap();
    assert_eq!(notes.take(), ["sees 7", "placed", "heard"]);
}

/// A handler without state, which may be asked to set a timeout around it.
struct Clerk;

impl Handler<Place> for Clerk {
    const NAME: &'static str = "clerk";

    async fn handle(&self, place: Place, cx: &mut Context) -> Result<(), HandlerError> {
        cx.publish(Placed { order: place.order })
    }
}

struct Reminds;

impl Around for Reminds {
    async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
        let ran = next.run(cx).await?;
        cx.timeout(MINUTE, place("a", 1))?;
        Ok(ran)
    }
}

#[tokio::test]
async fn it_stands_around_stateless_handlers_too_and_they_still_can_set_no_timeout() {
    let clerk = || Endpoint::builder("shop").store(Memory::default()).handler(Clerk).with(Notes::default());
    let mut harness = Harness::start(clerk().around(Named("one"))).await.unwrap();
    harness.send(&place("a", 1)).await.unwrap();
    harness.redeliver().await.unwrap();
    assert_eq!(harness.published::<Placed>().unwrap().len(), 1);
    assert_eq!(harness.published::<Stamp>().unwrap(), [Stamp { by: "one".into() }]);

    let mut harness = Harness::start(clerk().around(Reminds)).await.unwrap();
    harness.send(&place("a", 1)).await.unwrap();
    assert_eq!(harness.published::<Placed>().unwrap(), []);
    let letters = harness.dead_letters().await.unwrap();
    assert!(letters[0].reason.contains("cannot set a timeout"), "{}", letters[0].reason);
}

#[tokio::test]
async fn nothing_stands_around_what_hapax_itself_handles() {
    let notes = Notes::default();
    let minutely = Calendar::cron("* * * * *").unwrap();
    let shop = shop(&notes).around(Named("one")).recurring("orders", minutely, |_, cx| cx.send_local(place("a", 1)));
    let mut harness = Harness::start(shop).await.unwrap();
    harness.advance(MINUTE + MINUTE / 2).await.unwrap();
    assert_eq!(notes.take(), ["into one", "placed", "out of one: done"]);
}

/// Other orders under the same name.
#[derive(Debug, Serialize, Deserialize)]
struct OtherPlace {
    order: String,
}

impl Message for OtherPlace {
    const TYPE: &'static str = Place::TYPE;
}

struct Other;

impl Handler<OtherPlace> for Other {
    const NAME: &'static str = "other";

    async fn handle(&self, _: OtherPlace, _: &mut Context) -> Result<(), HandlerError> {
        Ok(())
    }
}

#[tokio::test]
async fn what_cannot_stand_around_all_that_it_is_meant_for_is_refused_at_the_start_with_the_remedy() {
    let refused =
        async |builder: EndpointBuilder| Harness::start(builder).await.expect_err("it must not start").to_string();
    let bare = || Endpoint::builder("shop").store(Memory::default());
    let why = refused(bare().handler(Clerk).around(Named("one"))).await;
    assert!(
        why.starts_with("endpoint shop has no ")
            && why.contains("Notes, which ")
            && why.ends_with("Named needs; add .with(..)"),
        "{why}"
    );
    let why = refused(bare().saga::<Book>(|book| book.starts::<Place>().around(Named("one")))).await;
    assert!(why.contains("Notes, which ") && why.contains("; add .with(..)"), "{why}");
    let why = refused(bare().handler(Other).around(Small)).await;
    assert!(why.contains("as another Rust type than the one that ") && why.contains("use one for both"), "{why}");
    let cancels = |builder: EndpointBuilder| builder.saga::<Book>(|book| book.starts::<Place>());
    let why = refused(cancels(bare()).around(Never)).await;
    assert!(why.contains("`middleware.cancel` has no handler here that ") && why.contains("leave it out"), "{why}");
    let why = refused(bare().saga::<Book>(|book| book.starts::<Place>().around(Never))).await;
    assert!(why.contains("`middleware.cancel` has no handler here that "), "{why}");
}

struct Never;

impl Around<Cancel> for Never {
    async fn around<'r>(&self, _: &mut Context, next: Next<'r, Cancel>) -> Result<Ran<'r>, HandlerError> {
        Ok(next.skip("never"))
    }
}
