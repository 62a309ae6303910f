//! An environment that may do anything at any moment, drawn from a seed: it finds what nobody thought of, and finds it again.

use std::{collections::BTreeMap, sync::Arc};

use hapax::{
    envelope::Envelope,
    ids::{IdempotencyKey, MessageId},
    ports::Receipt,
    time::Timestamp,
};
use hapax_model::{
    Coverage, Plan, Scheduler, Seen, Step, World,
    ledger::{Act, Post, Trouble, envelope_of},
};

use crate::{Backend, Rig, Setup, Shape, Stage};

/// One random run: what comes, who handles it, what goes wrong.
#[derive(Debug, Clone)]
pub struct Case {
    /// Seed and budgets of everything that goes wrong in a port.
    pub plan: Plan,
    /// One store or two.
    pub shape: Shape,
    /// What comes.
    pub orders: Vec<Order>,
    /// Deliveries at the same time, each with a manager of its own.
    pub workers: usize,
    /// Messages received at a time.
    pub batch: usize,
    /// Tasks dropped at some await.
    pub drops: u32,
    /// Leases that run out while their holder is alive.
    pub expiries: u32,
    /// Sweeps while messages are under way.
    pub sweeps: u32,
    /// Outgoing messages of a ledger leave in order.
    pub ordered: bool,
}

/// One message and its copies.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// Which ledger.
    pub ledger: u8,
    /// Messages it sends on.
    pub outputs: u8,
    /// What else it does.
    pub act: Act,
    /// What goes wrong in its handler.
    pub trouble: Trouble,
    /// How often it comes.
    pub copies: u8,
    /// Every other copy has another message id; an idempotency key makes them one.
    pub alias: bool,
    /// It says when it happened, which is the same for all copies of one id.
    pub timed: bool,
}

/// Runs a case to its end: the environment that may do anything at any moment.
#[derive(Debug)]
pub struct Driver {
    case: Case,
    rig: Rig,
    scheduler: Scheduler,
    /// Copies that have not come yet.
    coming: Vec<Arc<Envelope>>,
    /// Which messages each task has.
    holding: BTreeMap<u64, (usize, Vec<Receipt>)>,
}

/// Steps after which a run is taken for one that never ends.
const STEPS_MAX: u32 = 200_000;

impl Driver {
    /// A run of `case` on `store`; `dedup` is used where there are two.
    #[must_use]
    pub fn new<B: Backend>(case: &Case, store: &B, dedup: &B) -> Self {
        let world = World::new(case.plan.clone());
        let setup = Setup { workers: case.workers, ordered: case.ordered, ..Setup::new(case.shape) };
        let rig = Rig::new(world.clone(), store, dedup, &setup);
        let mut coming = Vec::new();
        for (index, order) in case.orders.iter().enumerate() {
            let (post, copies) = order.copies(case.plan.seed, index);
            rig.expect(&post, &copies);
            coming.extend(copies.into_iter().map(Arc::new));
        }
        Self { case: case.clone(), rig, scheduler: Scheduler::new(world), coming, holding: BTreeMap::new() }
    }

    /// Runs it, and checks every sentence throughout and at rest.
    ///
    /// # Errors
    /// The sentence that is broken.
    pub async fn run(mut self) -> Result<Coverage, String> {
        for _ in 0..STEPS_MAX {
            if let Some(violation) = self.rig.world.violation() {
                return Err(violation);
            }
            for write in self.rig.world.landing() {
                self.scheduler.start(write);
            }
            if !self.act() && self.scheduler.tasks().next().is_none() {
                let landing = self.rig.world.landing_all();
                if landing.is_empty() {
                    self.rig.check_at_rest().await?;
                    return Ok(self.rig.world.coverage());
                }
                for write in landing {
                    self.scheduler.start(write);
                }
            }
            match self.scheduler.step().await {
                Step::Ended(task) => drop(self.holding.remove(&task)),
                Step::Pending(task) => {
                    if self.rig.world.take_silent().is_some() {
                        self.drop_task(task);
                    }
                }
                Step::Idle => {}
            }
        }
        Err("it does not end".into())
    }

    /// Something happens besides the tasks, or not. Says whether more may happen.
    fn act(&mut self) -> bool {
        let world = self.rig.world.clone();
        let waiting = self.rig.stages.iter().any(|stage| stage.queue.has_waiting());
        let idle = self.scheduler.tasks().next().is_none();
        let free = self.holding.len() < self.case.workers;
        if !self.coming.is_empty() && (world.chance(100) || (idle && !waiting)) {
            let next = self.coming.swap_remove(world.below(self.coming.len()));
            self.rig.upper().queue.put(next);
        } else if waiting && free && (world.chance(200) || idle) {
            self.begin(world.below(self.rig.stages.len()));
        } else if self.case.drops > 0 && world.chance(15) && !idle {
            let tasks: Vec<u64> = self.scheduler.tasks().filter(|task| self.holding.contains_key(task)).collect();
            if let Some(task) = tasks.get(world.below(tasks.len())) {
                self.case.drops -= 1;
                world.count(Seen::Dropped);
                self.drop_task(*task);
            }
        } else if self.case.expiries > 0 && world.chance(15) {
            self.expire();
        } else if self.case.sweeps > 0 && world.chance(15) {
            self.case.sweeps -= 1;
            self.sweep(world.below(self.rig.stages.len()));
        }
        !self.coming.is_empty() || self.rig.stages.iter().any(|stage| stage.queue.has_waiting())
    }

    /// A worker receives and delivers, one task for each entity.
    fn begin(&mut self, index: usize) {
        let world = &self.rig.world;
        let stage = &self.rig.stages[index];
        let worker = world.below(stage.managers.len());
        for (key, messages) in stage.route(worker, stage.queue.take(1 + world.below(self.case.batch))) {
            let (deliver, manager) = (stage.deliver.clone(), stage.managers[worker].clone());
            let receipts = Stage::receipts(&messages);
            let task = self.scheduler.start(async move { deliver.deliver(&manager, &key, messages).await });
            self.holding.insert(task, (index, receipts));
        }
    }

    fn sweep(&mut self, index: usize) {
        let (stage, stores, world) = (self.rig.stages[index].clone(), self.rig.stores.clone(), self.rig.world.clone());
        let worker = world.below(stage.managers.len());
        let task = self.scheduler.start(async move { stage.sweep(worker, &stores, &world).await });
        self.holding.insert(task, (index, Vec::new()));
    }

    fn drop_task(&mut self, task: u64) {
        self.scheduler.drop_task(task);
        let Some((stage, receipts)) = self.holding.remove(&task) else { return };
        for receipt in receipts {
            self.rig.stages[stage].queue.expire(&receipt);
        }
    }

    fn expire(&mut self) {
        let stage = &self.rig.stages[self.rig.world.below(self.rig.stages.len())];
        let leased = stage.queue.leased();
        if let Some(receipt) = leased.get(self.rig.world.below(leased.len())) {
            self.case.expiries -= 1;
            self.rig.world.count(Seen::LeaseExpired);
            stage.queue.expire(receipt);
        }
    }
}

impl Order {
    /// The posting and its copies. All names contain the seed, so that runs can share a store.
    fn copies(&self, seed: u64, index: usize) -> (Post, Vec<Envelope>) {
        /// 2026-01-01.
        const START: u64 = 1_767_225_600_000;
        let post = Post {
            ledger: format!("ledger-{seed:x}-{}", self.ledger),
            cause: format!("cause-{seed:x}-{index}"),
            outputs: self.outputs,
            act: self.act,
            trouble: self.trouble,
        };
        let copy = |copy: u8| {
            let id = if self.alias { format!("{}-{}", post.cause, copy % 2) } else { post.cause.clone() };
            let mut envelope = envelope_of(MessageId::parse(&id).expect("a valid id"), &post);
            if self.alias {
                envelope.idempotency_key = IdempotencyKey::parse(post.cause.as_str()).ok();
            }
            if self.timed {
                envelope.occurred_at = Some(Timestamp::from_millis(START + u64::from(copy % 2 * u8::from(self.alias))));
            }
            envelope
        };
        let copies = (0..self.copies).map(copy).collect();
        (post, copies)
    }
}
