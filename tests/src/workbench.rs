//! Rules about one pass are tried by hand: each port is told what to answer, and what was asked of it is written down.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use hapax::{
    HandlerError, Message, Registry, Saga, SagaManager,
    codec::Codec,
    deliver::{Deliver, Recoverability},
    endpoint::Settings,
    envelope::Envelope,
    ids::{AttemptId, DedupKey, EntityKey, MessageId, Scope, TypeName},
    manager::{Incoming, Limits, Outcome, Passes, Passing, Ports, Stores},
    ports::{DeadLetter, DeadLetters, Page, Receipt},
};
use hapax_model::{
    Patience, Plan, Point, Queue, World, WorldIds,
    faults::Faulty,
    ledger::{Ledger, Line, UPPER, envelope_of, forget_runs},
};

use crate::{Events, Hands, Out, Scripted, Shape};

/// One manager in hand: every port can be told what to do, and what was asked of them is written down.
pub struct Workbench {
    /// Where everything is kept.
    pub store: Scripted,
    /// What was sent.
    pub out: Out,
    /// The time.
    pub clock: Hands,
    /// What was observed.
    pub events: Events,
    /// What was asked of the ports: [`World::trace`].
    pub world: World,
    /// Where messages wait.
    pub queue: Queue,
    /// The manager.
    pub manager: Arc<dyn Passes>,
    /// How it delivers.
    pub deliver: Deliver,
    sizes: Arc<Mutex<Vec<usize>>>,
}

/// What a workbench is made of.
#[derive(Debug, Clone)]
pub struct Bench {
    /// One store or two.
    pub shape: Shape,
    /// Bounds of a pass.
    pub limits: Limits,
    /// When a message is given up.
    pub recoverability: Recoverability,
    /// Largest entity that the store takes.
    pub entity_bytes_max: usize,
}

impl Bench {
    /// With one store or two, and the defaults.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        const PLENTY: usize = 1 << 20;
        Self { shape, limits: Limits::default(), recoverability: Recoverability::default(), entity_bytes_max: PLENTY }
    }

    /// For ledgers.
    #[must_use]
    pub fn ledgers(self) -> Workbench {
        self.of(Ledger::registry())
    }

    /// For the saga of `registry`, at the endpoint [`UPPER`].
    ///
    /// # Panics
    /// When the registry is not valid.
    #[must_use]
    pub fn of<T: Saga>(self, registry: Registry<T>) -> Workbench {
        forget_runs();
        let world = World::new(Plan { traced: true, ..Plan::default() });
        let store = Scripted::new(self.entity_bytes_max);
        let (out, clock, events) = (Out::default(), Hands::default(), Events::default());
        let faulty = Arc::new(Faulty::new(store.clone(), world.clone()));
        let stores = match self.shape {
            Shape::One => Stores::one(faulty.clone()),
            Shape::Two => Stores::two(faulty.clone(), faulty.clone()),
        };
        let ports = Ports {
            stores,
            dispatcher: Arc::new(Faulty::new(out.clone(), world.clone())),
            dead_letters: faulty.clone(),
            clock: Arc::new(clock.clone()),
            ids: Arc::new(WorldIds(world.clone())),
            metrics: Arc::new(events.clone()),
        };
        let endpoint = UPPER.parse().expect("a valid name");
        let manager = SagaManager::new(&endpoint, registry, ports.clone(), self.limits, Codec::Json);
        let sizes = Arc::<Mutex<Vec<usize>>>::default();
        let inner: Arc<dyn Passes> = Arc::new(manager.expect("a valid registry"));
        let queue = Queue::new(world.clone());
        let deliver = Deliver {
            receiver: Arc::new(Faulty::new(queue.clone(), world.clone())),
            dead_letters: Some(faulty),
            backoff: Arc::new(Patience::new(world.clone())),
            clock: ports.clock,
            metrics: ports.metrics,
            recoverability: self.recoverability,
            pass_max: Settings::default().pass_max,
        };
        let manager = Arc::new(Measured { inner, sizes: sizes.clone() });
        Workbench { store, out, clock, events, world, queue, manager, deliver, sizes }
    }
}

impl Workbench {
    /// The entity of a key.
    ///
    /// # Panics
    /// When the key is not valid.
    #[must_use]
    pub fn key(&self, key: &str) -> EntityKey {
        EntityKey::new(self.manager.scope().clone(), key.parse().expect("a valid key"))
    }

    /// Messages as they come for the `attempts`-th time, and their entity.
    ///
    /// # Panics
    /// When one cannot be routed, or there is none.
    #[must_use]
    pub fn incoming(&self, envelopes: &[Envelope], attempts: u32) -> (EntityKey, Vec<Incoming>) {
        let route = |envelope: &Envelope| {
            let receipt = Receipt::number(self.world.number());
            self.manager.route(&Arc::new(envelope.clone()), receipt, attempts).expect("a message that can be routed")
        };
        let (keys, incoming): (Vec<_>, Vec<_>) = envelopes.iter().map(route).unzip();
        (keys.into_iter().next().expect("at least one message"), incoming)
    }

    /// One pass over messages that come for the first time.
    pub async fn pass(&self, envelopes: &[Envelope]) -> Vec<Outcome> {
        self.pass_again(envelopes, 1).await
    }

    /// One pass over messages that come for the `attempts`-th time.
    pub async fn pass_again(&self, envelopes: &[Envelope], attempts: u32) -> Vec<Outcome> {
        let (key, mut incoming) = self.incoming(envelopes, attempts);
        self.manager.pass(&key, &mut incoming, &[]).await
    }

    /// One pass over one message, which is dropped at `point`.
    ///
    /// # Panics
    /// When the pass does not reach it.
    pub async fn crash(&self, envelope: &Envelope, point: Point) {
        self.crash_pass(std::slice::from_ref(envelope), point).await;
    }

    /// One pass over several messages, which is dropped at `point`.
    ///
    /// # Panics
    /// When the pass does not reach it.
    pub async fn crash_pass(&self, envelopes: &[Envelope], point: Point) {
        let (key, mut incoming) = self.incoming(envelopes, 1);
        self.world.crash_on(point);
        let pass = async { drop(self.manager.pass(&key, &mut incoming, &[]).await) };
        assert_eq!(self.world.until_silent(pass).await, Some(point), "the pass did not come to {point:?}");
    }

    /// The sweeper's pass over one entity, for all of its entries.
    pub async fn sweep(&self, key: &EntityKey) {
        let stored = self.store.stored(key).await;
        let attempts: Vec<AttemptId> = stored.iter().flat_map(|s| &s.entity.outbox).map(|e| e.attempt).collect();
        self.manager.pass(key, &mut [], &attempts).await;
    }

    /// Puts messages into the queue and delivers them, all in one go.
    ///
    /// # Panics
    /// When one cannot be routed, or there is none.
    pub async fn deliver(&self, envelopes: &[Envelope], attempts: u32) {
        for envelope in envelopes {
            self.queue.put(Arc::new(envelope.clone()));
        }
        // The queue draws; a test says in which order messages come.
        let mut given = self.queue.take(envelopes.len());
        let place = |id: &MessageId| envelopes.iter().position(|envelope| envelope.message_id == *id);
        given.sort_by_key(|delivery| place(&delivery.envelope.message_id));
        let route = |delivery: hapax::ports::Delivery| {
            let routed = self.manager.route(&delivery.envelope, delivery.receipt, attempts);
            routed.expect("a message that can be routed")
        };
        let (keys, incoming): (Vec<_>, Vec<_>) = given.into_iter().map(route).unzip();
        self.deliver.deliver(&*self.manager, &keys[0], incoming).await;
    }

    /// How many messages each pass had.
    #[must_use]
    pub fn pass_sizes(&self) -> Vec<usize> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lines of a ledger.
    ///
    /// # Panics
    /// When the state is not that of a ledger.
    pub async fn lines(&self, ledger: &str) -> Vec<Line> {
        let stored = self.store.stored(&self.key(ledger)).await;
        let ledger = stored.and_then(|stored| Ledger::of(&stored.entity).expect("the state of a ledger"));
        ledger.unwrap_or_default().lines
    }

    /// Whether the dedup store has a message.
    ///
    /// # Panics
    /// Never: memory does not fail.
    pub async fn is_marked(&self, key: &EntityKey, envelope: &Envelope) -> bool {
        use hapax::ports::DedupStore;
        let dedup = DedupKey::of(key, envelope);
        self.store.memory.contains(&[dedup]).await.expect("memory does not fail").entry(&dedup).is_some()
    }

    /// Everything set aside.
    ///
    /// # Panics
    /// Never: memory does not fail.
    pub async fn letters(&self) -> Vec<DeadLetter> {
        const ALL: usize = 1000;
        let endpoint = &self.manager.scope().endpoint;
        self.store.memory.list(endpoint, &Page::first(ALL)).await.expect("memory does not fail")
    }
}

/// A message with the id `id`.
///
/// # Panics
/// When the id is not valid.
#[must_use]
pub fn message<M: Message>(id: &str, message: &M) -> Envelope {
    envelope_of(id.parse().expect("a valid id"), message)
}

/// Outcomes as words, without their reasons.
#[must_use]
pub fn words(outcomes: &[Outcome]) -> Vec<String> {
    let word = |outcome: &Outcome| match outcome {
        Outcome::Again(again) => format!("Again {}", first_word(&format!("{again:?}"))),
        Outcome::Dropped(rule) => format!("Dropped: {rule}"),
        other => first_word(&format!("{other:?}")),
    };
    outcomes.iter().map(word).collect()
}

fn first_word(text: &str) -> String {
    text.split('(').next().unwrap_or_default().to_owned()
}

/// A manager that writes down how large its passes are.
#[derive(Debug)]
struct Measured {
    inner: Arc<dyn Passes>,
    sizes: Arc<Mutex<Vec<usize>>>,
}

impl Passes for Measured {
    fn scope(&self) -> &Arc<Scope> {
        self.inner.scope()
    }

    fn types(&self) -> Vec<TypeName> {
        self.inner.types()
    }

    fn route(
        &self,
        envelope: &Arc<Envelope>,
        receipt: Receipt,
        attempts: u32,
    ) -> Result<(EntityKey, Incoming), HandlerError> {
        self.inner.route(envelope, receipt, attempts)
    }

    fn pass<'p>(&'p self, key: &'p EntityKey, messages: &'p mut [Incoming], sweep: &'p [AttemptId]) -> Passing<'p> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).push(messages.len());
        self.inner.pass(key, messages, sweep)
    }
}

impl fmt::Debug for Workbench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workbench").field("store", &self.store).finish_non_exhaustive()
    }
}
