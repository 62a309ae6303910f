//! Commits push while the relay takes, and stops.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{sync::watch, time::Instant};

use super::{Counted, PushLine, Pushed, RelayOptions, TableRelay, Ticket};
use crate::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{MessageId, TypeName},
    ports::{
        Care, Cared, Claim, DispatchError, Dispatcher, Instance, OutboxState, OutboxTable, Outcome, Refused,
        StoreError, Tick, Ticked,
    },
    sync::{
        explored::{Timers, all, block_on, explore, spawn, step},
        mpsc,
    },
};

/// Of what is born, as a timer: none of the tests waits for it.
const LEASE: Duration = Duration::from_secs(60);

/// Sends everything at once, and knows what.
#[derive(Debug, Default)]
struct Broker(Mutex<Vec<MessageId>>);

#[async_trait]
impl Dispatcher for Broker {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        step();
        let ids = outgoing.iter().map(|outgoing| outgoing.envelope.message_id.clone());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
        outgoing.iter().map(|_| Ok(())).collect()
    }
}

fn pushed(body: impl Into<Bytes>) -> Pushed {
    let id = MessageId::random();
    let envelope = Envelope::new(id.clone(), TypeName::parse("t").expect("it is one"), body);
    let destination = Destination::parse("endpoint:billing").expect("it is one");
    let outgoing = Outgoing { destination, envelope: Arc::new(envelope) };
    Pushed { claim: Claim { id, token: 1 }, until: Instant::now() + LEASE, outgoing }
}

/// More than may wait, alone.
fn large() -> Pushed {
    static BODY: OnceLock<Bytes> = OnceLock::new();
    pushed(BODY.get_or_init(|| Bytes::from(vec![0; 65 << 20])).clone())
}

fn line(places: usize) -> (Arc<PushLine>, mpsc::Receiver<Pushed>, Arc<Counted>) {
    let counted = Arc::<Counted>::default();
    let (line, queue) = PushLine::new(1, LEASE, Arc::<Broker>::default(), places, counted.clone());
    (line, queue, counted)
}

/// As the relay takes it.
async fn take(line: Arc<PushLine>, mut queue: mpsc::Receiver<Pushed>) {
    while let Some(pushed) = queue.recv().await {
        line.has_left(&pushed);
    }
}

#[test]
fn what_is_pushed_is_taken_or_counted_as_dropped_and_given_back() {
    explore(|| {
        let (line, mut queue, counted) = line(1);
        let pushing: Vec<_> = (0..3)
            .map(|_| {
                let line = line.clone();
                spawn(async move { line.push(pushed("")) })
            })
            .collect();
        let taking = line.clone();
        let taken = block_on(async move {
            let mut taken = 0;
            for takes in 0.. {
                if takes == 1 {
                    queue.close();
                }
                let Some(pushed) = queue.recv().await else { break };
                taking.has_left(&pushed);
                taken += 1;
            }
            taken
        });
        pushing.into_iter().for_each(|pushing| block_on(pushing).expect("it ends"));
        let dropped = counted.dropped.load(Ordering::Relaxed);
        assert_eq!(taken + dropped, 3, "{dropped} were dropped");
        assert_eq!(line.take_returned().len() as u64, dropped);
        assert_eq!(line.bytes.load(Ordering::Relaxed), 0);
    });
}

/// What is pushed and refused takes up room for a moment: who waits for room must not go to sleep over it.
#[test]
fn who_waits_for_room_gets_it_when_what_took_it_up_has_gone() {
    let _timers = Timers::up_to(Duration::from_secs(1));
    explore(|| {
        let (line, queue, _) = line(10);
        line.push(large());
        drop(spawn(take(line.clone(), queue)));
        let (pushes, hands) = (line.clone(), line);
        let pushing = spawn(async move { pushes.push(large()) });
        assert!(block_on(hands.hand(pushed(""))));
        block_on(pushing).expect("it ends");
    });
}

#[test]
fn each_of_several_who_wait_for_room_gets_it_also_if_one_gives_up() {
    let _timers = Timers::up_to(Duration::from_secs(1));
    explore(|| {
        let (line, queue, _) = line(1);
        line.push(large());
        drop(spawn(take(line.clone(), queue)));
        let hands = |until: Duration| {
            let line = line.clone();
            spawn(async move { line.hand(Pushed { until: Instant::now() + until, ..pushed("") }).await })
        };
        let (one, hurried, other) = (hands(LEASE), hands(Duration::ZERO), hands(LEASE));
        assert!(block_on(one).expect("it ends") && block_on(other).expect("it ends"));
        block_on(hurried).expect("it ends");
    });
}

#[test]
fn no_two_claims_have_the_same_token() {
    explore(|| {
        let (line, _queue, _) = line(1);
        let tokens = all((0..3).map(|_| {
            let line = line.clone();
            async move { line.token() }
        }));
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 3);
    });
}

/// Keeps what it is told.
#[derive(Debug, Default)]
struct Table {
    line: crate::sync::Mutex<Option<Arc<PushLine>>>,
    ended: Mutex<Vec<(MessageId, Outcome)>>,
}

#[async_trait]
impl OutboxTable for Table {
    fn name(&self) -> &str {
        "table"
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn is_told(&self) -> bool {
        true
    }

    fn attach(&self, line: &Arc<PushLine>) -> bool {
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.clone());
        true
    }

    fn detach(&self, _: &Arc<PushLine>) {
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        step();
        let ended = tick.ended.iter().map(|ended| (ended.claim.id.clone(), ended.outcome.clone()));
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).extend(ended);
        Ok(Ticked { ended: tick.ended.len(), ..Ticked::default() })
    }

    async fn care(&self, _: &Care) -> Result<Cared, StoreError> {
        Ok(Cared::default())
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        Ok(OutboxState::default())
    }

    async fn leave(&self, _: &Instance) -> Result<(), StoreError> {
        Ok(())
    }
}

/// As an adapter commits: the line is had before, and pushed to after.
async fn commit(table: Arc<Table>) -> Option<MessageId> {
    let line = table.line.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    let row = pushed("");
    let id = row.claim.id.clone();
    Ticket::born(line, vec![row], false).committed();
    Some(id)
}

/// The whole relay. No row that was born for it is without an end: the table has heard that it was sent, or that it is free.
#[test]
fn what_is_committed_as_a_relay_stops_is_sent_or_given_back_or_counted_as_dropped() {
    let _timers = Timers::up_to(Duration::ZERO);
    explore(|| {
        let (table, broker) = (Arc::<Table>::default(), Arc::<Broker>::default());
        let instance = Instance { id: 1, service: String::new(), host: String::new(), process: 1 };
        let options = RelayOptions::default().bounded();
        let relay = TableRelay::attach(table.clone(), broker.clone(), options, instance).expect("it is the only one");
        let (counted, (stop, stopped)) = (relay.counted(), watch::channel(false));
        let running = spawn(relay.run(stopped));
        let committing: Vec<_> = (0..2).map(|_| spawn(commit(table.clone()))).collect();
        let stopping = spawn(async move {
            step();
            stop.send_replace(true);
            stop // Or the relay would see it gone.
        });
        let born: HashSet<MessageId> =
            committing.into_iter().filter_map(|committing| block_on(committing).expect("it ends")).collect();
        block_on(running).expect("it ends");
        drop(block_on(stopping));
        let ended = table.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: HashSet<MessageId> = ended.iter().map(|(id, _)| id.clone()).collect();
        assert_eq!(ids.len(), ended.len(), "each has one end");
        let sent = ended.iter().filter(|(_, outcome)| *outcome == Outcome::Sent).count();
        assert_eq!(sent, broker.0.lock().unwrap_or_else(PoisonError::into_inner).len());
        let dropped = usize::try_from(counted.dropped.load(Ordering::Relaxed)).expect("few");
        assert!(ids.is_subset(&born));
        // What is dropped may have been given back as well.
        let without = born.difference(&ids).count();
        assert!(without <= dropped, "{without} rows have no end, and {dropped} were dropped");
    });
}
