//! The shipped manager and `deliver` over faulty ports. Two endpoints in a row, for what a saga sends has to take effect once at the next.

use std::{fmt, sync::Arc, time::Duration};

use hapax::{
    SagaManager,
    codec::Codec,
    deliver::{Deliver, Recoverability},
    endpoint::Settings,
    envelope::Envelope,
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, MessageId, SagaKey},
    manager::{Incoming, Limits, Passes, Ports, Stores},
    ports::{DeadLetters, DedupStore, Delivery, Dispatcher, Page, Pending, Receipt},
};
use hapax_model::{
    Expectation, Fate, Patience, Queue, Seen, Sink, World, WorldClock, WorldIds, WorldMetrics,
    faults::Faulty,
    invariants::{self, Rest},
    ledger::{Act, LOWER, Ledger, Post, Trouble, UPPER, envelope_of, forget_runs},
};

use crate::{Backend, Watched};

/// One store for entities and dedup entries, or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Load and check are one snapshot, marks and clean-up one commit.
    One,
    /// Nothing is fused.
    Two,
}

impl Shape {
    /// Both.
    pub const ALL: [Self; 2] = [Self::One, Self::Two];

    /// Those in which `dedup` may be what remembers.
    #[must_use]
    pub fn of(dedup: &impl DedupStore) -> &'static [Self] {
        if dedup.dedup_capabilities().alone { &Self::ALL } else { &[Self::One] }
    }
}

/// How a rig is set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// One store or two.
    pub shape: Shape,
    /// Managers of each endpoint, as in several processes.
    pub workers: usize,
    /// Bounds of a pass.
    pub limits: Limits,
    /// When a message is given up.
    pub recoverability: Recoverability,
    /// Outgoing messages of a ledger leave in order.
    pub ordered: bool,
}

impl Setup {
    /// One worker, and no message is ever given up because of how often it came.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        const OFTEN: u32 = 1_000_000;
        Self {
            shape,
            workers: 1,
            limits: Limits { poison_above: OFTEN, ..Limits::default() },
            recoverability: Recoverability { attempts_max: OFTEN, ..Recoverability::default() },
            ordered: false,
        }
    }
}

/// Two endpoints in a row over faulty stores: the upper one's ledgers send to the lower one's.
pub struct Rig {
    /// What goes wrong, and what is seen.
    pub world: World,
    /// [`UPPER`] and [`LOWER`].
    pub stages: [Stage; 2],
    /// The stores, with faults.
    pub stores: Stores,
    /// The stores, without.
    pub plain: Stores,
    /// The dead letters, without faults.
    pub letters: Arc<dyn DeadLetters>,
    dedup_entries: Box<dyn Fn() -> Option<usize>>,
}

/// One endpoint with its queue.
#[derive(Clone)]
pub struct Stage {
    /// Its name.
    pub endpoint: EndpointName,
    /// Where its messages wait.
    pub queue: Queue,
    /// Its managers, one for each worker.
    pub managers: Vec<Watched>,
    /// How it delivers.
    pub deliver: Deliver,
}

impl Rig {
    /// A rig on `store`; `dedup` is used where there are two.
    ///
    /// # Panics
    /// Never: all names are valid.
    #[must_use]
    pub fn new<B: Backend>(world: World, store: &B, dedup: &B, setup: &Setup) -> Self {
        forget_runs();
        world.ghost(|ghost| {
            ghost.exact = B::EXACT;
            ghost.ordered = setup.ordered;
            Ok(())
        });
        let (faulty, faulty_dedup) =
            (Faulty::new(store.clone(), world.clone()), Faulty::new(dedup.clone(), world.clone()));
        let (stores, plain) = match setup.shape {
            Shape::One => (Stores::one(Arc::new(faulty.clone())), Stores::one(Arc::new(store.clone()))),
            Shape::Two => (
                Stores::two(Arc::new(faulty.clone()), Arc::new(faulty_dedup)),
                Stores::two(Arc::new(store.clone()), Arc::new(dedup.clone())),
            ),
        };
        let queues = [UPPER, LOWER].map(|name| (name.parse().expect("a valid name"), Queue::new(world.clone())));
        let sink: Arc<dyn Dispatcher> = Arc::new(Faulty::new(Sink::new(world.clone(), queues.clone()), world.clone()));
        let stage = |(endpoint, queue): (EndpointName, Queue)| {
            let ports = Ports {
                stores: stores.clone(),
                dispatcher: sink.clone(),
                dead_letters: Arc::new(faulty.clone()),
                clock: Arc::new(WorldClock(world.clone())),
                ids: Arc::new(WorldIds(world.clone())),
                metrics: Arc::new(WorldMetrics(world.clone())),
            };
            let deliver = Deliver {
                receiver: Arc::new(Faulty::new(queue.clone(), world.clone())),
                dead_letters: Some(ports.dead_letters.clone()),
                backoff: Arc::new(Patience::new(world.clone())),
                clock: ports.clock.clone(),
                metrics: ports.metrics.clone(),
                recoverability: setup.recoverability.clone(),
                pass_max: Settings::default().pass_max,
            };
            let manager = || {
                let registry = Ledger::registry();
                let registry = if setup.ordered { registry.ordered_outputs() } else { registry };
                let manager = SagaManager::new(&endpoint, registry, ports.clone(), setup.limits, Codec::Json);
                Watched::new(Arc::new(manager.expect("a valid registry")), world.clone())
            };
            let managers = (0..setup.workers).map(|_| manager()).collect();
            Stage { endpoint, queue, managers, deliver }
        };
        let stages = queues.map(stage);
        let (letters, counted) = (Arc::new(store.clone()), dedup.clone());
        let one = store.clone();
        let dedup_entries: Box<dyn Fn() -> Option<usize>> = match setup.shape {
            Shape::One => Box::new(move || one.dedup_entries()),
            Shape::Two => Box::new(move || counted.dedup_entries()),
        };
        Self { world, stages, stores, plain, letters, dedup_entries }
    }

    /// The endpoint that is posted to.
    #[must_use]
    pub const fn upper(&self) -> &Stage {
        &self.stages[0]
    }

    /// Promises that copies of `post` come as `envelopes`, which share one identity.
    ///
    /// # Panics
    /// When there is no envelope.
    pub fn expect(&self, post: &Post, envelopes: &[Envelope]) {
        let entity = self.upper().key(&post.ledger);
        let dedup = DedupKey::of(&entity, envelopes.first().expect("at least one copy"));
        let more = matches!(post.act, Act::Reply | Act::SetAlarm | Act::SendUnsendable);
        let refused = post.trouble == Trouble::Refuses || post.act == Act::SendUnroutable;
        let expectation = Expectation {
            cause: post.cause.clone(),
            entity,
            dedup,
            message_ids: envelopes.iter().map(|envelope| envelope.message_id.clone()).collect(),
            outputs: usize::from(post.outputs) + usize::from(more),
            fate: if refused { Fate::DeadLetter } else { Fate::Effect },
        };
        self.world.ghost(|ghost| {
            ghost.expect(expectation);
            Ok(())
        });
    }

    /// Promises one message, and makes it. Its id is its cause.
    ///
    /// # Panics
    /// When the cause is not a valid id.
    #[must_use]
    pub fn promised(&self, post: &Post) -> Arc<Envelope> {
        let envelope = envelope_of(MessageId::parse(&post.cause).expect("a valid id"), post);
        self.expect(post, std::slice::from_ref(&envelope));
        Arc::new(envelope)
    }

    /// What the stores hold now.
    ///
    /// # Panics
    /// When a store without faults fails.
    pub async fn rest(&self) -> Rest {
        let (mut keys, mut dedup) = (Vec::new(), Vec::new());
        self.world.ghost(|ghost| {
            keys.extend(ghost.entities().cloned());
            dedup.extend(ghost.expected().iter().map(|expected| expected.dedup));
            Ok(())
        });
        let mut rest = Rest { dedup_entries: (self.dedup_entries)(), ..Rest::default() };
        for key in keys {
            let loaded = self.plain.entities().load(&key, &[]).await.expect("no faults");
            rest.entities.extend(loaded.stored.map(|stored| (key, stored.entity)));
        }
        rest.known = self.plain.dedup().contains(&dedup).await.expect("no faults");
        for stage in &self.stages {
            rest.pending.extend(self.pending(stage).await);
            const ALL: usize = 1_000_000;
            rest.dead_letters.extend(self.letters.list(&stage.endpoint, &Page::first(ALL)).await.expect("no faults"));
        }
        rest
    }

    async fn pending(&self, stage: &Stage) -> Vec<Pending> {
        const ALL: usize = 1_000_000;
        let scope = stage.managers[0].scope();
        self.plain.entities().pending(scope, Duration::ZERO, None, ALL).await.expect("no faults")
    }

    /// Delivers everything that waits and sweeps, without faults, until nothing is left to do.
    ///
    /// # Errors
    /// A violation, or that it does not end.
    pub async fn settle(&self) -> Result<(), String> {
        const ROUNDS_MAX: u32 = 1000;
        self.world.calm();
        for _ in 0..ROUNDS_MAX {
            for write in self.world.landing_all() {
                write.await;
            }
            for stage in &self.stages {
                for receipt in stage.queue.leased() {
                    stage.queue.expire(&receipt);
                }
                for (key, messages) in stage.route(0, stage.queue.take(1)) {
                    stage.deliver.deliver(&stage.managers[0], &key, messages).await;
                }
            }
            if self.stages.iter().any(|stage| !stage.queue.is_empty()) {
                continue;
            }
            if !self.sweep_all().await {
                return self.world.violation().map_or(Ok(()), Err);
            }
        }
        Err("it does not come to rest".into())
    }

    /// Sweeps both endpoints; says whether there was anything to sweep.
    async fn sweep_all(&self) -> bool {
        let mut any = false;
        for stage in &self.stages {
            for pending in self.pending(stage).await {
                any = true;
                stage.sweep_one(0, &pending, &self.world).await;
            }
        }
        any
    }

    /// Comes to rest and checks every sentence.
    ///
    /// # Errors
    /// The first sentence that is broken.
    pub async fn check_at_rest(&self) -> Result<(), String> {
        self.settle().await?;
        let rest = self.rest().await;
        self.world.ghost(|ghost| invariants::at_rest(ghost, &rest));
        self.world.violation().map_or(Ok(()), Err)
    }
}

impl Stage {
    /// The entity of a ledger.
    ///
    /// # Panics
    /// When the name is not a valid key.
    #[must_use]
    pub fn key(&self, ledger: &str) -> EntityKey {
        EntityKey::new(self.managers[0].scope().clone(), SagaKey::parse(ledger).expect("a valid key"))
    }

    /// Sorts deliveries by entity, in the order in which the entities come.
    ///
    /// # Panics
    /// When a message cannot be routed.
    #[must_use]
    pub fn route(&self, worker: usize, deliveries: Vec<Delivery>) -> Vec<(EntityKey, Vec<Incoming>)> {
        let mut groups: Vec<(EntityKey, Vec<Incoming>)> = Vec::new();
        for delivery in deliveries {
            let routed = self.managers[worker].route(&delivery.envelope, delivery.receipt, delivery.attempts);
            let (key, incoming) = routed.expect("the workload is well-formed");
            match groups.iter_mut().find(|(group, _)| *group == key) {
                Some((_, group)) => group.push(incoming),
                None => groups.push((key, vec![incoming])),
            }
        }
        groups
    }

    /// One sweep over everything pending, as the endpoint does it, with faults.
    pub async fn sweep(&self, worker: usize, stores: &Stores, world: &World) {
        const PAGE: usize = 100;
        let scope = self.managers[worker].scope();
        let Ok(pending) = stores.entities().pending(scope, Duration::ZERO, None, PAGE).await else { return };
        for pending in pending {
            self.sweep_one(worker, &pending, world).await;
        }
    }

    async fn sweep_one(&self, worker: usize, pending: &Pending, world: &World) {
        let attempts: Vec<AttemptId> = pending.entries.iter().map(|entry| entry.attempt).collect();
        self.managers[worker].pass(&pending.key, &mut [], &attempts).await;
        world.count(Seen::Swept);
    }

    /// The receipts of messages.
    #[must_use]
    pub fn receipts(messages: &[Incoming]) -> Vec<Receipt> {
        messages.iter().map(|message| message.receipt.clone()).collect()
    }
}

impl fmt::Debug for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig").field("world", &self.world).finish_non_exhaustive()
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
