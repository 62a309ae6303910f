//! The promises of an outbox table, asked for by hand; and tables that break one of them each, which must be noticed.

mod lying;

use std::{collections::HashSet, sync::Arc, time::Duration};

use hapax::{
    envelope::Outgoing,
    ports::{Claim, Claimed, Claiming, Ended, Instance, OutboxTable, Outcome, Tick, Ticked},
    time::Timestamp,
};
pub(crate) use lying::{Lie, Lying};

use super::{
    rig::{BESIDE, Outbox, Place},
    sink::{Placed, Sink},
};

/// What was noticed, if anything.
pub(crate) type Kept = Result<(), String>;

pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Over soon. What must not happen within it is looked at at once.
const SHORT: Duration = Duration::from_millis(150);

/// Who asks.
pub(crate) struct Relay<'t> {
    table: &'t dyn OutboxTable,
    instance: Arc<Instance>,
}

impl<'t> Relay<'t> {
    pub(crate) async fn new(table: &'t dyn OutboxTable, id: i64) -> Self {
        let instance = Instance { id, service: "test".into(), host: String::new(), process: 1 };
        let relay = Self { table, instance: Arc::new(instance) };
        relay.tick(Vec::new(), None, LONG, true).await;
        relay
    }

    async fn tick(&self, ended: Vec<Ended>, token: Option<i64>, lease: Duration, joins: bool) -> Ticked {
        let claiming = token.map(|token| Claiming { token, rows: 100, bytes: 1 << 20, again: false });
        let instance = self.instance.clone();
        let tick = Tick { instance, joins, stale: LONG * 10, ended, renewed: Vec::new(), lease, claiming };
        self.table.tick(&tick).await.unwrap()
    }

    /// All that it is given; where order is kept, a look may have gone for finding out what is its.
    pub(crate) async fn claim(&self, token: i64, lease: Duration) -> Vec<Claimed> {
        for _ in 0..2 {
            let ticked = self.tick(Vec::new(), Some(token), lease, false).await;
            if !ticked.claimed.is_empty() {
                return ticked.claimed;
            }
        }
        Vec::new()
    }

    pub(crate) async fn end(&self, claims: impl IntoIterator<Item = Claim>, outcome: Outcome) -> usize {
        let ended = claims.into_iter().map(|claim| Ended { claim, outcome: outcome.clone() }).collect();
        self.tick(ended, None, LONG, false).await.ended
    }
}

fn claims(rows: &[Claimed]) -> Vec<Claim> {
    rows.iter().map(|row| row.claim.clone()).collect()
}

pub(crate) fn orders(rows: &[Claimed]) -> Vec<u32> {
    let order = |row: &Claimed| {
        let outgoing = row.outgoing.as_ref().unwrap();
        serde_json::from_slice::<Placed>(&outgoing.envelope.body).unwrap().order
    };
    rows.iter().map(order).collect()
}

pub(crate) fn check(holds: bool, what: impl FnOnce() -> String) -> Kept {
    if holds { Ok(()) } else { Err(what()) }
}

/// Stores messages without a relay; those of one hundred have one key.
pub(crate) async fn store(
    place: &Place,
    outbox: &Outbox,
    orders: impl IntoIterator<Item = u32>,
    due: Option<Timestamp>,
) {
    let message = |order: u32| {
        let Outgoing { destination, envelope } = outbox.outgoing(&Placed { order }).unwrap();
        let mut envelope = (*envelope).clone();
        envelope.partition_key = Some(format!("key-{}", order / 100).parse().unwrap());
        envelope.due = due;
        Outgoing { destination, envelope: Arc::new(envelope) }
    };
    let messages: Vec<Outgoing> = orders.into_iter().map(message).collect();
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
}

/// 1. A row is given to one claim at a time.
async fn one_owner(place: &Place, outbox: &Outbox, table: &dyn OutboxTable) -> Kept {
    store(place, outbox, 0..10, None).await;
    let (one, other) = (Relay::new(table, 1).await, Relay::new(table, 2).await);
    let (first, second) = (one.claim(11, LONG).await, other.claim(22, LONG).await);
    let third = one.claim(12, LONG).await;
    let all: Vec<u32> = [first, second, third].iter().flat_map(|rows| orders(rows)).collect();
    let distinct: HashSet<u32> = all.iter().copied().collect();
    check(all.len() == 10 && distinct.len() == 10, || format!("given: {all:?}"))
}

/// 2. A claim that was overtaken changes nothing any more.
async fn fenced(place: &Place, outbox: &Outbox, table: &dyn OutboxTable) -> Kept {
    store(place, outbox, 0..10, None).await;
    let relay = Relay::new(table, 1).await;
    let first = relay.claim(11, SHORT).await;
    tokio::time::sleep(SHORT * 2).await;
    let second = relay.claim(12, LONG).await;
    check(second.len() == 10, || format!("given again: {:?}", orders(&second)))?;
    for outcome in [Outcome::Sent, Outcome::Failed("no".into()), Outcome::GivenBack, Outcome::Expired] {
        let ended = relay.end(claims(&first), outcome.clone()).await;
        check(ended == 0, || format!("{ended} are {outcome:?} by claims that were overtaken"))?;
    }
    let ended = relay.end(claims(&second), Outcome::Sent).await;
    check(ended == 10, || format!("only {ended} are sent by those who have them"))
}

/// 3. Attempts are counted with the claim.
async fn counted_before(place: &Place, outbox: &Outbox, table: &dyn OutboxTable) -> Kept {
    store(place, outbox, 0..1, None).await;
    let relay = Relay::new(table, 1).await;
    let mut counted = Vec::new();
    for token in 1..=3 {
        counted.extend(relay.claim(token, SHORT).await.iter().map(|row| row.attempts));
        tokio::time::sleep(SHORT * 2).await; // Who has it is gone, and has said nothing.
    }
    check(counted == [1, 2, 3], || format!("attempts: {counted:?}"))
}

/// 4. What was not reported as sent is given again, or is kept as failed.
async fn never_forgotten(place: &Place, outbox: &Outbox, table: &dyn OutboxTable) -> Kept {
    store(place, outbox, [0, 100, 200, 300], None).await;
    let relay = Relay::new(table, 1).await;
    let rows = relay.claim(1, SHORT).await;
    let of = |order: u32| {
        let at = orders(&rows).iter().position(|one| *one == order);
        at.map(|at| rows[at].claim.clone())
    };
    relay.end(of(0), Outcome::Later(Duration::ZERO, "for now".into())).await;
    relay.end(of(100), Outcome::GivenBack).await;
    relay.end(of(200), Outcome::Failed("for good".into())).await;
    tokio::time::sleep(SHORT * 2).await; // Nothing is said of 300.
    let again: HashSet<u32> = orders(&relay.claim(2, LONG).await).into_iter().collect();
    let failed = table.state().await.unwrap().failed;
    check(again == HashSet::from([0, 100, 300]) && failed == 1, || format!("again {again:?}, failed {failed}"))
}

/// 5. Where order is kept: all of a key in order, and nothing behind one that is to be tried again or has failed.
async fn in_order(place: &Place, outbox: &Outbox, table: &dyn OutboxTable) -> Kept {
    store(place, outbox, 0..5, None).await;
    store(place, outbox, 100..105, None).await;
    let relay = Relay::new(table, 1).await;
    let rows = relay.claim(1, LONG).await;
    let of = |rows: &[Claimed], key: u32| -> Vec<u32> {
        orders(rows).into_iter().filter(|order| order / 100 == key).collect()
    };
    let given = [of(&rows, 0), of(&rows, 1)];
    check(given == [vec![0, 1, 2, 3, 4], vec![100, 101, 102, 103, 104]], || format!("given: {given:?}"))?;
    let (first, others): (Vec<Claimed>, Vec<Claimed>) = rows.into_iter().partition(|row| {
        let order = orders(std::slice::from_ref(row))[0];
        order.is_multiple_of(100)
    });
    relay.end(claims(&others), Outcome::GivenBack).await;
    let [later, failed] = [0, 1].map(|at| first.get(at).map(|row| row.claim.clone()));
    relay.end(later, Outcome::Later(LONG, "for now".into())).await;
    relay.end(failed, Outcome::Failed("for good".into())).await;
    let behind = orders(&relay.claim(2, LONG).await);
    check(behind.is_empty(), || format!("{behind:?} have overtaken what they come behind"))
}

/// 6. Nothing is given before its time.
async fn not_before(place: &Place, outbox: &Outbox, table: &dyn OutboxTable) -> Kept {
    store(place, outbox, [0], Some(Timestamp::now().after(LONG))).await;
    store(place, outbox, [100], None).await;
    let relay = Relay::new(table, 1).await;
    let rows = relay.claim(1, LONG).await;
    check(orders(&rows) == [100], || format!("given: {:?}", orders(&rows)))?;
    relay.end(claims(&rows), Outcome::Later(LONG, "for now".into())).await;
    let early = orders(&relay.claim(2, LONG).await);
    check(early.is_empty(), || format!("{early:?} came before their back-off was over"))
}

macro_rules! promises {
    ($($promise:ident, $lie:ident, $ordered:expr;)*) => {$(
        #[tokio::test]
        async fn $promise() {
            for ordered in $ordered {
                let place = if ordered { Place::ordered().await } else { Place::new().await };
                let outbox = place.outbox().await;
                assert_eq!(super::$promise(&place, &outbox, &outbox).await, Ok(()), "ordered: {ordered}");
                // Where it is broken, that is noticed.
                let place = if ordered { Place::ordered().await } else { Place::new().await };
                let outbox = place.outbox().await;
                let lying = Lying::new(&outbox, Lie::$lie);
                let noticed = super::$promise(&place, &outbox, &lying).await;
                assert!(noticed.is_err(), "ordered: {ordered}: nobody has noticed {:?}", Lie::$lie);
            }
        }
    )*};
}

/// However many keys have more than is claimed at a time, each has its turn.
#[tokio::test]
async fn no_key_waits_for_those_that_are_looked_at_before_it() {
    let place = Place::ordered().await;
    let outbox = place.outbox().await;
    for order in 0..3 {
        store(&place, &outbox, (0..250).map(|key| key * 100 + order), None).await;
    }
    let relay = Relay::new(&outbox, 1).await;
    let mut served = HashSet::new();
    for token in 1..=3 {
        let rows = relay.claim(token, LONG).await;
        served.extend(orders(&rows).iter().map(|order| order / 100));
        // Those go on at once, with what comes behind in their keys.
        relay.end(claims(&rows), Outcome::Sent).await;
    }
    assert_eq!(served.len(), 250);
}

/// What a relay says of a row after it was forgotten and has begun anew does not hold up, nor free, what others are about to
/// send.
#[tokio::test]
async fn who_begins_anew_has_no_say_in_what_was_his() {
    let place = Place::ordered().await;
    let outbox = place.outbox().await;
    store(&place, &outbox, 0..2, None).await;
    let before = Relay::new(&outbox, 1).await;
    let rows = before.claim(1, LONG).await;
    place.run("DELETE FROM hapax.outbox_relay").await; // As others do with one that was not heard of.
    let anew = Relay::new(&outbox, 2).await;
    for outcome in [Outcome::Failed("no".into()), Outcome::GivenBack, Outcome::Later(LONG, "no".into())] {
        assert_eq!(anew.end(claims(&rows), outcome.clone()).await, 0, "{outcome:?}");
    }
}

/// A claim whose answer was lost is found beside transactions that have not committed what they have stored.
#[tokio::test]
async fn who_asks_again_waits_for_nobody() {
    if !BESIDE {
        return; // There is one writer at a time: others wait before they have stored anything.
    }
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    store(&place, &outbox, 0..3, None).await;
    let relay = Relay::new(&outbox, 1).await;
    assert_eq!(relay.claim(1, LONG).await.len(), 3);
    let running = super::sink::relay(&outbox, &sink, super::sink::patient());
    let (open, ticket) = place.order(&outbox, 3).await;
    let claiming = Some(Claiming { token: 1, rows: 100, bytes: 1 << 20, again: true });
    let tick = Tick {
        instance: relay.instance.clone(),
        joins: false,
        stale: LONG,
        ended: Vec::new(),
        renewed: Vec::new(),
        lease: LONG,
        claiming,
    };
    let again = tokio::time::timeout(Duration::from_secs(2), outbox.tick(&tick)).await;
    assert_eq!(orders(&again.expect("it waits for the open transaction").unwrap().claimed), [0, 1, 2]);
    outbox.commit(open, ticket).await.unwrap();
    running.stop().await.unwrap();
}

mod kept {
    use super::{Lie, Lying, Place};

    promises! {
        one_owner, TwoOwners, [false]; // Where order is kept, see `ordered::relays_share_the_keys_and_take_over_from_one_that_dies`.
        fenced, Unfenced, [false, true];
        counted_before, Uncounted, [false, true];
        never_forgotten, Forgets, [false, true];
        in_order, Unordered, [true];
        not_before, Early, [false, true];
    }
}
