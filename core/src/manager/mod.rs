//! The heart: one pass over one saga instance.
//!
//! ```text
//! load ─> check dedup ─> handle ─> save(state + outbox entry) ─> dispatch ─> add dedup ─> clean up   (then deliver acks)
//! ```
//!
//! Effects of handling a message happen once, and its outgoing messages are sent at least once under ids that never
//! change. Why each edge is where it is, and what goes wrong without it:
//!
//! 1. *Load before check.* Were the check first, another worker could finish the message between the two: we would load
//!    the entity without its entry, having been told "not seen", and handle it again. So the check begins when the load
//!    has returned, also for an entity that is not there. What has been folded since is asked for last: it is there before its entry goes.
//! 2. *Seen: not again.* What is over is acknowledged; only its reply is sent again. A left-over entry **of the same
//!    attempt** is removed; an entry of another attempt is real work and is sent.
//! 3. *Entry there: not handled again.* The stored messages are sent, so it does not matter whether the handler would
//!    decide the same a second time.
//! 4. *Handle on a copy, save by compare-and-set.* State and outgoing messages change together or not at all. Of two
//!    workers one wins; the other starts over from the load. Even "nothing changed, nothing to send" is saved: without
//!    it, a twin that decides otherwise could still win after this one has been marked.
//! 5. *Dispatch after the save was confirmed.* Sent before, a lost race would leave messages of a world that never was.
//! 6. *Add to the dedup store after everything was dispatched.* Added before, a crash in between would lose messages:
//!    the next copy would be told "seen" and stop.
//! 7. *Clean up after the add was confirmed.* Cleaned before, the next copy would find neither entry nor mark and handle
//!    the message again. Clean-up is best effort: an entry that stays is removed by the next save of the entity
//!    (helping) or by the sweeper, whose pass is this one without a message.
//! 8. *Ack last*, in [`deliver`](crate::deliver).
//!
//! Where one database keeps both, a message with nothing outgoing has nothing between save and mark, so both are one
//! commit and there is no entry. A message's mark is never in or before the commit that saves *its own* unsent messages.
//!
//! The manager awaits nothing but ports, keeps nothing between passes and asks no clock and no random source of its own:
//! what it does is a function of the messages and the ports' replies, so that a model can explore this very code.
//!
//! # Source
//! T. Masternak, S. Pobiega, "Improving the Outbox" and the other posts of the "Exactly Once" series
//! (exactly-once.github.io), with the safeguards numbered S01 to S78 in `tests/README.md`.

mod draft;
mod judge;
mod limits;
mod outcome;
mod passes;
mod replies;
mod spill;
mod stores;
mod tail;
mod timeouts;
mod verdicts;

use std::{fmt, sync::Arc};

use draft::Draft;
pub use limits::{Limits, Ports};
pub(crate) use outcome::WithBody;
pub use outcome::{Again, Incoming, Outcome};
pub(crate) use passes::text_of;
pub use passes::{Passes, Passing};
use smallvec::SmallVec;
pub use stores::Stores;
pub(crate) use timeouts::TIMEOUT_OF_NO_SAGA;
use verdicts::Verdicts;

use crate::{
    claim::Spill,
    codec::Codec,
    context::Services,
    entity::Expected,
    handler_error::chain,
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, InvalidId, Scope},
    metrics::Event,
    ports::{ErrorKind, Loaded, Saved, StoreError},
    registry::{ClosedRegistry, Registry},
    saga::{Needs, Saga},
    seal::Seals,
    time::Monotonic,
};

/// Handles the messages of one saga, each once. See the [module](self) for the protocol.
pub struct SagaManager<T> {
    scope: Arc<Scope>,
    registry: ClosedRegistry<T>,
    ports: Ports,
    limits: Limits,
    codec: Codec,
    services: Arc<Services>,
    seals: Seals,
    /// Where large bodies go; `None`: they travel.
    spill: Option<Arc<Spill>>,
}

/// Most passes are over one message, and then none of their lists needs an allocation.
type Few<T> = SmallVec<[T; 1]>;

/// The part of its deadline after which a pass begins no further handler: the rest of it is for the save and for sending.
const HANDLING_SHARE: u32 = 2;

/// How often a clean-up that met a conflict loads and tries again, before it leaves the entry to others.
const CLEAN_UP_TRIES: u32 = 2;

impl<T: Saga> SagaManager<T> {
    /// A manager for the saga of `registry` at `endpoint`.
    ///
    /// # Errors
    /// [`InvalidId`] for a malformed name or a message type that is registered twice.
    pub fn new(
        endpoint: &EndpointName,
        registry: Registry<T>,
        ports: Ports,
        limits: Limits,
        codec: Codec,
    ) -> Result<Self, InvalidId> {
        let (saga, registry) = registry.close()?;
        let scope = Arc::new(Scope { endpoint: endpoint.clone(), saga });
        let (services, seals) = (Arc::default(), Seals::default());
        Ok(Self { scope, registry, ports, limits, codec, services, seals, spill: None })
    }

    /// The same with a service that handlers may [`get`](crate::Context::get), shared with other managers.
    #[must_use]
    pub fn with_service<C: Send + Sync + 'static>(mut self, service: Arc<C>) -> Self {
        Arc::make_mut(&mut self.services).share(service);
        self
    }

    /// The first of `needs` that this manager was not given.
    #[must_use]
    pub fn missing(&self, needs: &Needs) -> Option<&'static str> {
        self.services.missing(needs)
    }

    pub(crate) fn with_services(mut self, services: Arc<Services>) -> Self {
        self.services = services;
        self
    }

    pub(crate) fn with_seals(mut self, seals: Seals) -> Self {
        self.seals = seals;
        self
    }

    pub(crate) fn with_spill(mut self, spill: Option<Arc<Spill>>) -> Self {
        self.spill = spill;
        self
    }

    /// One pass: judges `messages`, which are all for `key`, and finishes the outbox entries listed in `sweep`. One
    /// outcome for each message, in the same order.
    pub async fn pass(&self, key: &EntityKey, messages: &mut [Incoming], sweep: &[AttemptId]) -> Vec<Outcome> {
        let mut verdicts = Verdicts::open(messages.len());
        if let Err(again) = self.run(key, messages, sweep, &mut verdicts).await {
            self.tell_sweep(key, sweep, Err(&again.to_string()));
            verdicts.undecided_again(again);
        }
        verdicts.close()
    }

    async fn run(
        &self,
        key: &EntityKey,
        messages: &mut [Incoming],
        sweep: &[AttemptId],
        verdicts: &mut Verdicts,
    ) -> Result<(), Again> {
        let Ports { stores, clock, .. } = &self.ports;
        let (now, start) = clock.now().await;
        let deadline = start.after(self.limits.deadline);
        let enough = start.after(self.limits.deadline / HANDLING_SHARE);

        // 1. Load; and only then ask what is over.
        let asked: Few<DedupKey> = messages.iter().map(|message| message.key).collect();
        let unread = |error| self.unread(key, error);
        let Loaded { stored, known } = stores.entities.load(key, &asked).await.map_err(unread)?;
        let known = match known {
            Some(known) => known,
            None => stores.dedup.contains(&Draft::<T>::keys_to_check(&asked, stored.as_ref())).await.map_err(unread)?,
        };
        let known = stores.recall(known, &asked).await.map_err(unread)?;

        // 2. to 4. Judge each message; handlers change the draft.
        let mut draft = Draft::new(stored, &known);
        Box::pin(self.judge(&mut draft, key, messages, &known, (now, enough), verdicts)).await;

        // 4. Save, if anything was handled. Nothing has been sent so far.
        if draft.is_changed() {
            if let Err(late) = self.in_time(deadline).await {
                return Err(Box::pin(self.unless_overtaken(key, &draft.expected(), late)).await);
            }
            Box::pin(self.save(key, &mut draft, verdicts)).await?;
        } else if verdicts.need_fresh_load() {
            self.confirm_fresh(key, draft.expected(), verdicts).await?;
        }

        // 5. to 7., in a box that is gone when they are over.
        Box::pin(self.send(key, &mut draft, messages, sweep, deadline, verdicts)).await
    }

    /// A store did not let the pass read. What it cannot make sense of, it has read.
    fn unread(&self, key: &EntityKey, error: StoreError) -> Again {
        let again = Again::from(error);
        if matches!(again, Again::Unavailable(_)) {
            self.ports.metrics.observe(Event::Unread(key));
        }
        again
    }

    /// The second half of a pass, which may be repeated by whoever comes next.
    async fn send(
        &self,
        key: &EntityKey,
        draft: &mut Draft<T>,
        messages: &mut [Incoming],
        sweep: &[AttemptId],
        deadline: Monotonic,
        verdicts: &mut Verdicts,
    ) -> Result<(), Again> {
        // 5. Dispatch what this pass is to finish, entry by entry, in commit order; then the answers that are to be sent beside it.
        let (done, left) = self.dispatch_entries(key, draft, messages, sweep, deadline, verdicts).await;
        let replies = verdicts.replies(messages, |attempt| {
            let mut entries = done.iter().chain(left.iter().map(|(entry, _)| entry));
            entries.find(|entry| entry.attempt == attempt).map(|entry| &**entry)
        });
        if !replies.is_empty() {
            Box::pin(self.answer(key, messages, &replies, deadline, verdicts)).await;
        }
        left.iter().for_each(|(entry, why)| verdicts.unsent(entry, messages, why));

        // 6. and 7. Mark what was dispatched, then clean up.
        self.finish(key, draft, &done).await.inspect_err(|e| verdicts.unmarked(&done, e))?;
        verdicts.finished(&done);
        let swept = done.iter().map(|entry| entry.attempt).filter(|attempt| sweep.contains(attempt));
        self.tell_sweep(key, &swept.collect::<Few<_>>(), Ok(()));
        Ok(())
    }

    /// Saves the draft by compare-and-set. A lost race and an unknown outcome both mean: load again.
    async fn save(&self, key: &EntityKey, draft: &mut Draft<T>, verdicts: &mut Verdicts) -> Result<(), Again> {
        let (expected, processed) = (draft.expected(), draft.processed());
        match self.ports.stores.entities.save(key, &expected, draft.entity(), processed).await {
            Ok(Saved::At(version)) => {
                draft.saved_at(version);
                verdicts.saved();
                self.ports.metrics.observe(Event::Saved(key));
                Ok(())
            }
            Ok(Saved::Conflict) => Err(Again::Conflict),
            Err(e) if e.kind() == ErrorKind::TooLarge => {
                Err(Box::pin(self.unless_overtaken(key, &expected, Again::TooLarge(chain(&e)))).await)
            }
            Err(e) => {
                self.ports.metrics.observe(Event::Unsaved(key));
                Err(e.into())
            }
        }
    }

    /// A verdict without a save counts only if the entity is still what was loaded. Else it stays open, and its message comes
    /// again.
    async fn confirm_fresh(&self, key: &EntityKey, loaded: Expected, verdicts: &mut Verdicts) -> Result<(), Again> {
        if self.is_still(key, &loaded).await? {
            verdicts.saved();
        }
        Ok(())
    }

    /// Why the pass ends without its save: `ended`, unless somebody else has saved meanwhile. Whoever is too slow or too
    /// large may be set aside in the end, and a twin may have handled the same message. What cannot be read says nothing.
    async fn unless_overtaken(&self, key: &EntityKey, loaded: &Expected, ended: Again) -> Again {
        match self.is_still(key, loaded).await {
            Ok(true) => ended,
            Ok(false) => Again::Conflict,
            Err(unread) => unread,
        }
    }

    /// Whether the entity is still what was loaded, as the primary has it.
    async fn is_still(&self, key: &EntityKey, loaded: &Expected) -> Result<bool, Again> {
        let current = self.ports.stores.entities.version(key).await?;
        Ok(current.map_or(Expected::Absent, Expected::Version) == *loaded)
    }

    /// A sweep has no message whose outcome would tell how it ended.
    fn tell_sweep(&self, key: &EntityKey, entries: &[AttemptId], ended: Result<(), &str>) {
        if entries.is_empty() {
            return;
        }
        self.ports.metrics.observe(match ended {
            Ok(()) => Event::Swept(key, entries.len()),
            Err(why) => {
                tracing::warn!(entity = %key, entries = entries.len(), why, "sweeping failed; tried again at the next sweep");
                Event::SweepFailed(key, why)
            }
        });
    }

    async fn in_time(&self, deadline: Monotonic) -> Result<(), Again> {
        if self.ports.clock.monotonic().await < deadline { Ok(()) } else { Err(Again::Deadline) }
    }
}

impl<T> fmt::Debug for SagaManager<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaManager").field("scope", &self.scope).finish_non_exhaustive()
    }
}
