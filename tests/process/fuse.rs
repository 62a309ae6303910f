//! Ports that kill their own process, or stand still in it.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::Outgoing,
    ids::{DedupKey, EndpointName, EntityKey, MessageId, Scope, TypeName},
    ports::{
        Care, Cared, Connected, DeadLetter, DeadLetters, DedupCapabilities, DedupStore, Delivery, DispatchError,
        Dispatcher, Due, EntityStore, Evicted, Finished, Instance, Known, Loaded, LongMemory, Next, OutboxState,
        OutboxTable, Page, Pending, Receipt, Receiver, Refused, Saved, Schedule, ScheduleCapabilities, Settled,
        Settlement, StoreCapabilities, StoreError, Take, Tick, Ticked, Transport, TransportCapabilities,
        TransportError,
    },
    relay::PushLine,
};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::Notify;

/// Counts port calls, and kills the process before or after one of them.
#[derive(Debug, Clone)]
pub(crate) struct Fuse(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Which calls are counted.
    name: String,
    calls: AtomicU32,
    burns_at: Option<(u32, Side)>,
    /// It stands still until somebody writes a line to it, instead of dying.
    holds: bool,
    /// It has come to where it burns.
    burnt: AtomicBool,
    loading: Notify,
    /// Calls that are not answered yet, but for those that wait for a message.
    under_way: AtomicU32,
}

/// Where a call is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Before,
    After,
}

impl Fuse {
    /// From text: `none`, or `NAME-N-before` or `NAME-N-after` for the N-th call of that name, the first being 0; `any` is
    /// every name. With `hold-` before it, the process stands still there until a line comes in.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (text, holds) = text.strip_prefix("hold-").map_or((text, false), |text| (text, true));
        let (name, burns_at) = match *text.split('-').collect::<Vec<_>>() {
            ["none"] => ("none", None),
            [name, number, "before"] => (name, Some((number.parse().ok()?, Side::Before))),
            [name, number, "after"] => (name, Some((number.parse().ok()?, Side::After))),
            _ => return None,
        };
        let (name, calls) = (name.to_owned(), AtomicU32::new(0));
        Some(Self(Arc::new(Inner {
            name,
            calls,
            burns_at,
            holds,
            burnt: AtomicBool::new(false),
            loading: Notify::new(),
            under_way: AtomicU32::new(0),
        })))
    }

    /// Waits until something is loaded for the first time.
    pub(crate) async fn first_load(&self) {
        self.0.loading.notified().await;
    }

    /// Whether it burns at a call of that name which has not come yet.
    pub(crate) fn waits_for(&self, name: &str) -> bool {
        self.0.name == name && !self.0.burnt.load(Ordering::Relaxed)
    }

    /// A place that is no call.
    pub(crate) fn pass(&self, name: &str) {
        if self.0.name == name {
            self.burn(self.0.calls.fetch_add(1, Ordering::Relaxed), Side::Before, name);
        }
    }

    /// Whether every call was answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.under_way.load(Ordering::Relaxed) == 0
    }

    async fn around<T>(&self, name: &str, call: impl Future<Output = T>) -> T {
        if name == "load" {
            self.0.loading.notify_one();
        }
        let counts = u32::from(name != "receive");
        self.0.under_way.fetch_add(counts, Ordering::Relaxed);
        let answer = self.around_one_of(&[name], call).await;
        self.0.under_way.fetch_sub(counts, Ordering::Relaxed);
        answer
    }

    /// A call that is several things at once.
    async fn around_one_of<T>(&self, names: &[&str], call: impl Future<Output = T>) -> T {
        let counted = names.iter().find(|name| self.0.name == "any" || self.0.name == **name);
        let Some(name) = counted else { return call.await };
        let number = self.0.calls.fetch_add(1, Ordering::Relaxed);
        self.burn(number, Side::Before, name);
        let answer = call.await;
        self.burn(number, Side::After, name);
        answer
    }

    /// SIGKILL: no destructor runs and nothing is flushed.
    fn burn(&self, number: u32, side: Side, name: &str) {
        if self.0.burns_at == Some((number, side)) {
            println!("{side:?} {name}");
            self.0.burnt.store(true, Ordering::Relaxed);
            if self.0.holds {
                let _ = std::io::stdin().read_line(&mut String::new());
                return;
            }
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            loop {
                std::thread::park(); // The signal is on its way.
            }
        }
    }
}

/// A port on a fuse.
pub(crate) struct Fused<P: ?Sized> {
    pub(crate) port: Arc<P>,
    pub(crate) fuse: Fuse,
}

impl<P: ?Sized> fmt::Debug for Fused<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fused").field("fuse", &self.fuse).finish_non_exhaustive()
    }
}

#[async_trait]
impl<P: EntityStore + ?Sized> EntityStore for Fused<P> {
    fn capabilities(&self) -> StoreCapabilities {
        self.port.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.fuse.around("load", self.port.load(key, ids)).await
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.fuse.around("save", self.port.save(key, expected, entity, processed)).await
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.fuse.around("finish", self.port.finish(key, done, clean_up)).await
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.fuse.around("version", self.port.version(key)).await
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.fuse.around("pending", self.port.pending(scope, older_than, after, limit)).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.fuse.around("purge", self.port.purge(scope, older_than, limit)).await
    }
}

#[async_trait]
impl<P: DedupStore + ?Sized> DedupStore for Fused<P> {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.port.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.fuse.around("contains", self.port.contains(keys)).await
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.fuse.around("insert", self.port.insert(entries)).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.fuse.around("evict", self.port.evict(retention)).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        self.port.long_memory()
    }
}

#[async_trait]
impl<P: DeadLetters + ?Sized> DeadLetters for Fused<P> {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.fuse.around("add", self.port.add(letter)).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.fuse.around("list", self.port.list(endpoint, page)).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.fuse.around("discard", self.port.discard(letters)).await
    }
}

#[async_trait]
impl<P: Schedule + ?Sized> Schedule for Fused<P> {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        self.port.schedule_capabilities()
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        self.fuse.around("put", self.port.put(endpoint, messages)).await
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        self.fuse.around("cancel", self.port.cancel(endpoint, ids)).await
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        self.fuse.around("take", self.port.take_due(endpoint, take)).await
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        self.fuse.around("done", self.port.done(endpoint, receipts)).await
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        self.fuse.around("next", self.port.next(endpoint)).await
    }
}

#[async_trait]
impl<P: Receiver + ?Sized> Receiver for Fused<P> {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        self.fuse.around("receive", self.port.receive(max)).await
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.fuse.around("extend", self.port.extend(receipts)).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        self.fuse.around("settle", self.port.settle(receipt, settlement)).await
    }
}

#[async_trait]
impl<P: Dispatcher + ?Sized> Dispatcher for Fused<P> {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.port.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        self.fuse.around("dispatch", self.port.dispatch(outgoing)).await
    }
}

#[async_trait]
impl<P: OutboxTable + ?Sized> OutboxTable for Fused<P> {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn is_ordered(&self) -> bool {
        self.port.is_ordered()
    }

    fn is_told(&self) -> bool {
        self.port.is_told()
    }

    fn attach(&self, line: &Arc<PushLine>) -> bool {
        self.port.attach(line)
    }

    fn detach(&self, line: &Arc<PushLine>) {
        self.port.detach(line);
    }

    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        let asked = [
            ("join", tick.joins),
            ("tell", !tick.ended.is_empty()),
            ("renew", !tick.renewed.is_empty()),
            ("claim", tick.claiming.is_some()),
        ];
        let names: Vec<&str> = asked.iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| *name).collect();
        let ticked = self.fuse.around_one_of(&names, self.port.tick(tick)).await;
        if ticked.as_ref().is_ok_and(|ticked| !ticked.claimed.is_empty()) {
            self.fuse.pass("claimed");
        }
        ticked
    }

    async fn care(&self, care: &Care) -> Result<Cared, StoreError> {
        self.fuse.around("care", self.port.care(care)).await
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        self.fuse.around("state", self.port.state()).await
    }

    async fn leave(&self, instance: &Instance) -> Result<(), StoreError> {
        self.fuse.around("leave", self.port.leave(instance)).await
    }
}

/// A transport whose ends are on a fuse.
#[async_trait]
impl<P: Transport + ?Sized> Transport for Fused<P> {
    fn capabilities(&self) -> TransportCapabilities {
        self.port.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.fuse.around("connect", self.port.connect(endpoint, types)).await?;
        let fuse = &self.fuse;
        Ok(Connected {
            receiver: Arc::new(Fused { port: connected.receiver, fuse: fuse.clone() }),
            dispatcher: Arc::new(Fused { port: connected.dispatcher, fuse: fuse.clone() }),
            dead_letters: connected.dead_letters,
            marks: connected.marks,
        })
    }
}
