//! Outgoing messages that wait: what they cost those that are handled meanwhile, and how fast they go.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Endpoint, InProcess, Message, MessageId, Saga,
    codec::{Codec, FRAME_BYTES},
    endpoint::Settings,
    entity::{Entity, Expected, OutboxEntry},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, SagaKey, SagaName, Scope, TypeName},
    metrics::{Event, Metrics},
    ports::{EntityStore, Saved},
    time::Timestamp,
};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};
use uuid::Uuid;

use super::{Load, Place, anchor::Hand, candidate};
use crate::{
    AnyError,
    candidate::endpoint::ENDPOINT,
    run::Run,
    workload::{Account, Changed, Deposit},
};

/// Calls at a time that fill the store.
const AT_A_TIME: usize = 1024;
/// Parts of a drain whose speed is compared.
const PARTS: u64 = 10;
/// A drain of which nothing is heard for so long is stuck.
const STUCK: Duration = Duration::from_secs(60);
/// Rows of one step of the hand-written drain.
const STEP: i64 = 100;
const OUTGOING_BYTES: usize = 200;

/// How a drain went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    /// Messages a second.
    pub(super) rate: f64,
    /// Speed of the last tenth over that of the first.
    pub(super) last_to_first: f64,
}

/// Handling while `load.backlog` entities wait to be sent from, and then the drain of those.
pub(super) async fn handled_and_drained<P: Place>(place: &P, load: &Load) -> Result<(Run, Drain), AnyError> {
    let store = P::open_usual(place.address(), true).await?;
    fill(&store, load.backlog).await?;
    P::close(store).await;
    place.is_filled().await?;
    let run = candidate::run(place, load).await?;
    let drain = drained(place, load.backlog).await?;
    Ok((run, drain))
}

/// Puts in so many entities with one outgoing message each, which no delivery is for.
async fn fill(store: &impl EntityStore, backlog: u64) -> Result<(), AnyError> {
    let scope = Arc::new(Scope { endpoint: EndpointName::parse(ENDPOINT)?, saga: SagaName::parse(Account::NAME)? });
    let message_type = TypeName::parse(Changed::TYPE)?;
    let mut state = vec![Codec::Json.id(), Account::SCHEMA];
    debug_assert_eq!(state.len(), FRAME_BYTES);
    serde_json::to_writer(&mut state, &Account::usual())?;
    let (scope, message_type, state) = (&scope, &message_type, &bytes::Bytes::from(state));
    let saves = (0..backlog).map(|number| async move {
        let key = EntityKey::new(scope.clone(), SagaKey::parse(format!("waiting-{number:09}"))?);
        let entry = Arc::new(waiting(&key, message_type)?);
        let entity = Entity { state: state.clone(), outbox: vec![entry], ..Entity::default() };
        match store.save(&key, &Expected::Absent, &entity, &[]).await? {
            Saved::At(_) => Ok::<_, AnyError>(()),
            Saved::Conflict => Err("an entity was there already".into()),
        }
    });
    stream::iter(saves).buffer_unordered(AT_A_TIME).try_collect().await
}

fn waiting(key: &EntityKey, message_type: &TypeName) -> Result<OutboxEntry, AnyError> {
    let incoming = Envelope::new(MessageId::from(Uuid::new_v4()), TypeName::parse(Deposit::TYPE)?, "{}");
    let body = vec![b' '; OUTGOING_BYTES];
    let envelope = Arc::new(Envelope::new(MessageId::from(Uuid::new_v4()), message_type.clone(), body));
    Ok(OutboxEntry {
        key: DedupKey::of(key, &incoming),
        attempt: AttemptId::from_bytes(Uuid::new_v4().into_bytes()),
        fingerprint: Fingerprint::of(&incoming),
        commit: 1,
        saved_at: Timestamp::now(),
        outgoing: vec![Outgoing { destination: Destination::Topic(message_type.clone()), envelope }],
        reply: None,
        reply_sent: false,
    })
}

/// An endpoint whose sweeper takes all, as after a crash.
async fn sweeper<P: Place>(store: &P::Store, progress: &Arc<Swept>) -> Result<Endpoint, AnyError> {
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(store.clone())
        .transport(InProcess::new(ENDPOINT))
        .saga::<Account>(|account| account.starts::<Deposit>())
        .settings(Settings { sweep_age: Duration::ZERO, ..Settings::default() })
        .metrics(progress.clone());
    Ok(endpoint.start().await?)
}

/// Removes what rivals have left to the sweeper: entries that are marked, whose clean-up has met others too often. What was
/// not sent is sent here, and missing in the books of those who should have.
pub(super) async fn swept<P: Place>(place: &P) -> Result<(), AnyError> {
    if place.left().await?.waiting == 0 {
        return Ok(());
    }
    let store = P::open_usual(place.address(), false).await?;
    let endpoint = sweeper::<P>(&store, &Arc::default()).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (ended, left) = tokio::join!(endpoint.run_until(stopped), async {
        let end = Instant::now() + STUCK;
        while place.left().await?.waiting > 0 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(stop);
        Ok::<_, AnyError>(())
    });
    P::close(store).await;
    ended?;
    left
}

/// The sweeper of an endpoint takes all, as after a crash.
async fn drained<P: Place>(place: &P, backlog: u64) -> Result<Drain, AnyError> {
    let store = P::open_usual(place.address(), false).await?;
    let progress = Arc::new(Swept { all: backlog, ..Swept::default() });
    let endpoint = sweeper::<P>(&store, &progress).await?;
    let begun = Instant::now();
    let mut is_stuck = false;
    endpoint
        .run_until(async {
            while progress.swept.load(Ordering::Relaxed) < backlog && !is_stuck {
                is_stuck = timeout(STUCK, progress.part.notified()).await.is_err();
            }
        })
        .await?;
    P::close(store).await;
    let swept = progress.swept.load(Ordering::Relaxed);
    if swept != backlog {
        return Err(format!("{swept} of {backlog} waiting messages were sent").into());
    }
    let left = place.left().await?.waiting;
    if left != 0 {
        return Err(format!("{left} outbox entries are left after the drain").into());
    }
    let times = progress.times.lock().unwrap_or_else(PoisonError::into_inner);
    Drain::of(backlog, begun, &times)
}

impl Drain {
    fn of(count: u64, begun: Instant, ends: &[Instant]) -> Result<Self, AnyError> {
        let (Some(first), Some([before, last])) = (ends.first(), ends.last_chunk::<2>()) else {
            return Err("a drain of too few messages has no speed".into());
        };
        let last_to_first = (*first - begun).as_secs_f64() / (*last - *before).as_secs_f64();
        Ok(Self { rate: count as f64 / (*last - begun).as_secs_f64(), last_to_first })
    }
}

/// Counts what the sweeper has finished.
#[derive(Debug, Default)]
struct Swept {
    all: u64,
    swept: AtomicU64,
    /// When each tenth was over.
    times: Mutex<Vec<Instant>>,
    part: Notify,
}

impl Metrics for Swept {
    fn observe(&self, event: Event<'_>) {
        let Event::Swept(_, entries) = event else { return };
        let now = self.swept.fetch_add(entries as u64, Ordering::Relaxed) + entries as u64;
        let part = (self.all / PARTS).max(1);
        if now.is_multiple_of(part) {
            self.times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        }
        if now.is_multiple_of(part) || now >= self.all {
            self.part.notify_one();
        }
    }
}

/// A hand-written drain of as many rows: one connection that remembers how far it came.
pub(super) async fn drained_by_hand<P: Place>(place: &P, backlog: u64) -> Result<Drain, AnyError> {
    place.fill_outbox(backlog, OUTGOING_BYTES).await?;
    let mut hand = place.hand().await?;
    let begun = Instant::now();
    let (mut last, mut done, mut ends) = (0_i64, 0_u64, Vec::new());
    while done < backlog {
        // The sending itself is nothing.
        let Some((rows, end)) = hand.look_outbox(last, STEP).await? else {
            return Err("rows are missing from the hand-written outbox".into());
        };
        hand.sent_up_to(last, end).await?;
        let before = done * PARTS / backlog;
        (last, done) = (end, done + rows);
        if done * PARTS / backlog > before {
            ends.push(Instant::now());
        }
    }
    Drain::of(backlog, begun, &ends)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_drain_is_as_fast_as_all_of_it_and_its_ends_are_compared() {
        let begun = Instant::now();
        let ends: Vec<Instant> = [1, 2, 3, 5].iter().map(|seconds| begun + Duration::from_secs(*seconds)).collect();
        let drain = Drain::of(1000, begun, &ends).unwrap();
        assert_eq!((drain.rate, drain.last_to_first), (200.0, 0.5));
        assert!(Drain::of(1000, begun, &ends[..1]).is_err());
    }
}
