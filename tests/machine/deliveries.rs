//! Whatever happens around it, a message takes effect once: the shipped manager and delivery on a real store, one event at a
//! time, so that what fails is a short story. `properties.rs` draws runs from a seed and goes further in what may happen at
//! a port; here every copy, crash, loss and sweep is a step that can be left out.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use hapax::{
    envelope::Envelope,
    ports::{DedupStore, Receipt},
};
use hapax_model::{Coverage, Plan, Seen, World, ledger::Post};
use hapax_tests::{Backend, Rig, Setup, Shape, Stage};

use crate::{
    events::{Begun, Event, Events, WORKERS},
    lossy::{Line, Lossy},
    lying::{Lie, Lying},
    run::{Failure, Search},
    stores::{InMemory, Place, on_every_store},
};

/// Longer than any run: nothing is so old.
const RETENTION: Duration = Duration::from_secs(3600);

/// What stories must have met, or they have shown nothing about it. The first [`OFTEN`] are met by nearly every story.
const TO_BE_MET: [Seen; 14] = [
    Seen::Handled,
    Seen::DedupHit,
    Seen::SentAgain,
    Seen::LeaseLost,
    Seen::LeaseExpired,
    Seen::Dropped,
    Seen::UnknownApplied,
    Seen::UnknownNotApplied,
    Seen::LandedLate,
    Seen::DeadLettered,
    Seen::HandlerFailed,
    Seen::Conflict,
    Seen::Resumed,
    Seen::Swept,
];
const OFTEN: usize = 9;
/// So many stories meet all of it.
const STORIES: u32 = 150;

/// A delivery or a sweep that stands somewhere.
struct Standing {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    lower: usize,
    receipts: Vec<Receipt>,
}

struct Story {
    rig: Rig,
    line: Line,
    standing: Vec<Standing>,
    messages: Vec<Arc<Envelope>>,
}

impl Story {
    fn new<B: Backend>(begun: &Begun, store: B, dedup: B) -> Self {
        let world = World::new(Plan { yields: true, traced: true, ..Plan::default() });
        let shape = if begun.two_stores { Shape::Two } else { Shape::One };
        let setup = Setup { workers: WORKERS, ordered: begun.ordered, ..Setup::new(shape) };
        let line = Line::new(world.clone());
        let (store, dedup) = (Lossy::new(store, line.clone()), Lossy::new(dedup, line.clone()));
        let rig = Rig::new(world, &store, &dedup, &setup);
        Self { rig, line, standing: Vec::new(), messages: Vec::new() }
    }

    async fn happens(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Queue { ledger, outputs, act, trouble } => {
                let post = Post {
                    ledger: format!("ledger-{ledger}"),
                    cause: format!("cause-{}", self.messages.len()),
                    outputs: *outputs,
                    act: *act,
                    trouble: *trouble,
                };
                let envelope = self.rig.promised(&post);
                self.rig.upper().queue.put(envelope.clone());
                self.messages.push(envelope);
            }
            Event::Duplicate { message } => self.rig.upper().queue.put(self.messages[*message].clone()),
            Event::Take { lower, worker, max } => self.take(usize::from(*lower), *worker, *max),
            Event::Sweep { lower, worker } => {
                let (lower, worker) = (usize::from(*lower), *worker);
                let (stage, stores) = (self.rig.stages[lower].clone(), self.rig.stores.clone());
                let world = self.rig.world.clone();
                let future = Box::pin(async move { stage.sweep(worker, &stores, &world).await });
                self.standing.push(Standing { future, lower, receipts: Vec::new() });
            }
            Event::Go { delivery, points } => self.go(*delivery, Some(*points)).await,
            Event::End { delivery } => self.go(*delivery, None).await,
            Event::Crash { delivery } if !self.standing.is_empty() => {
                self.rig.world.count(Seen::Dropped);
                let crashed = self.standing.remove(delivery % self.standing.len());
                for receipt in crashed.receipts {
                    self.rig.stages[crashed.lower].queue.expire(&receipt);
                }
            }
            Event::Expire { lease } => {
                let leased = self.rig.upper().queue.leased();
                if !leased.is_empty() {
                    self.rig.world.count(Seen::LeaseExpired);
                    self.rig.upper().queue.expire(&leased[lease % leased.len()]);
                }
            }
            Event::Lose(loss) => self.line.lose(Some(*loss)),
            Event::Land => self.line.land().await,
            Event::Evict => {
                self.rig.plain.dedup().evict(RETENTION).await.map_err(|error| error.to_string())?;
            }
            Event::Crash { .. } => {}
        }
        self.rig.world.violation().map_or(Ok(()), Err)
    }

    /// One delivery for each entity.
    fn take(&mut self, lower: usize, worker: usize, max: usize) {
        let stage = &self.rig.stages[lower];
        for (key, messages) in stage.route(worker, stage.queue.take(max)) {
            let (deliver, manager) = (stage.deliver.clone(), stage.managers[worker].clone());
            let receipts = Stage::receipts(&messages);
            let future = Box::pin(async move { deliver.deliver(&manager, &key, messages).await });
            self.standing.push(Standing { future, lower, receipts });
        }
    }

    /// Lets a delivery go on until it has come to so many points more, or to its end.
    async fn go(&mut self, delivery: usize, points: Option<usize>) {
        if self.standing.is_empty() {
            return;
        }
        let index = delivery % self.standing.len();
        let world = &self.rig.world;
        world.clear_trace();
        let future = &mut self.standing[index].future;
        let ended = poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if points.is_some_and(|points| world.trace().len() >= points) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        });
        if ended.await {
            drop(self.standing.remove(index));
        }
    }

    /// Whoever stands goes on, what is late arrives, everything is delivered and swept; and nothing is missing.
    async fn ends(mut self) -> Result<Coverage, String> {
        self.line.lose(None);
        self.line.land().await;
        while !self.standing.is_empty() {
            self.go(0, None).await;
        }
        self.rig.check_at_rest().await?;
        Ok(self.rig.world.coverage())
    }
}

async fn run<B: Backend>(
    stores: (B, B),
    begun: &Begun,
    events: &[Event],
    begin: &dyn Fn(),
) -> Result<Coverage, String> {
    let mut story = Story::new(begun, stores.0, stores.1);
    for (index, event) in events.iter().enumerate() {
        begin();
        story.happens(event).await.map_err(|why| format!("at step {}: {why}", index + 1))?;
    }
    story.ends().await.map_err(|why| format!("at rest: {why}"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Every message takes effect once, and nothing is lost.
fn check<P: Place>(name: &str) {
    let (runtime, begun_at) = (runtime(), Instant::now());
    let seen = RefCell::new(Coverage::default());
    let few = match name {
        "memory" => STORIES,
        _ if P::SLOW => 20,
        _ => 40,
    };
    let search = Search::fresh(format!("machine-deliveries-{name}"), few, 30..80);
    let found = search.run::<Events>(|mut begun, events, begin| {
        let coverage = runtime.block_on(async {
            let (one, other) = (P::new(), P::new());
            let store = one.open().await;
            begun.two_stores &= store.dedup_capabilities().alone;
            let dedup = if begun.two_stores { other.open().await } else { store.clone() };
            run((store, dedup), &begun, events, begin).await
        })?;
        seen.borrow_mut().add(&coverage);
        Ok(())
    });
    if let Err(failure) = found {
        panic!("{name}: {failure}");
    }
    let coverage = seen.into_inner();
    println!("{name}: {} stories met {coverage:?}, {:.1?}", search.cases, begun_at.elapsed());
    let to_be_met = if search.cases < STORIES { &TO_BE_MET[..OFTEN] } else { &TO_BE_MET };
    let missing: Vec<Seen> = to_be_met.iter().copied().filter(|seen| coverage.of(*seen) == 0).collect();
    assert!(missing.is_empty(), "void: {missing:?} was never met");
}

mod every_message_takes_effect_once_whatever_happens {
    super::on_every_store!(super::check);
}

/// Stories on stores that lie; what breaks anything else than `sentence` is let pass, for there are shorter ones of it.
fn on_liars(lie: Lie, stories: u32, sentence: &str) -> Result<(), Failure<Events>> {
    let runtime = runtime();
    Search::fixed(stories, 20..60).run::<Events>(|begun, events, begin| {
        runtime.block_on(async {
            let stores = (InMemory::new().open().await, InMemory::new().open().await);
            let stores = (Lying::new(stores.0, lie), Lying::new(stores.1, lie));
            match run(stores, &begun, events, begin).await {
                Err(why) if why.contains(sentence) => Err(why),
                _ => Ok(()),
            }
        })
    })
}

/// Steps of the longest story that a lie needs, with room.
const SHORT: usize = 16;

fn found_out(lie: Lie, sentence: &str) {
    const STORIES_MAX: u32 = 3000;
    let failure = on_liars(lie, STORIES_MAX, sentence).expect_err("the machine must not take a lie");
    println!("{lie:?}: {failure}");
    assert!(failure.steps.len() <= SHORT, "not shortened: {failure}");
}

#[test]
fn the_wrapper_of_the_lies_doubles_nothing_without_one() {
    let found = on_liars(Lie::None, 50, "");
    assert!(found.is_ok(), "{}", found.unwrap_err());
}

macro_rules! lies {
    ($($test:ident: $lie:ident, $why:literal;)+) => {
        $(
            #[test]
            fn $test() {
                found_out(Lie::$lie, $why);
            }
        )+
    };
}

lies! {
    not_seen_from_a_cache_is_found_out: RemembersNotSeen, "took effect twice";
    a_save_that_wins_whatever_it_expects_is_found_out: SavesBlindly, "does not extend";
    marks_of_a_save_that_lost_are_found_out: MarksLosers, "acked without an effect";
    an_early_eviction_is_found_out: EvictsEarly, "took effect twice";
}
