//! A crash before and after every port call of a delivery, and every pair of them: the second during the recovery from the
//! first. Then a clean worker takes over, and the sentences of the README hold.
//!
//! A crash is a future that is dropped where it stands. Between two port calls there is nothing that anybody else could
//! see, so these points are all there are. How many were found is printed, and the calls that a scenario is about must be
//! among them, so that an await that vanishes is noticed.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
};

use hapax::{
    Memory, Sqlite,
    ports::{Receiver, Settlement},
};
use hapax_model::{
    Call, Plan, Point, Side, World,
    ledger::{Act, Post, Trouble},
};
use hapax_tests::{Backend, MySqlTables, PostgresSchema, Rig, Scratch, Setup, Shape};

/// What is delivered, and at which calls it must have been crashed.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    name: &'static str,
    messages: u8,
    outputs: u8,
    act: Act,
    trouble: Trouble,
    /// The message is lost after its save; what is crashed is the sweeper.
    swept: bool,
    calls: &'static [Call],
}

const PLAIN: Scenario = Scenario {
    name: "",
    messages: 1,
    outputs: 1,
    act: Act::Nothing,
    trouble: Trouble::None,
    swept: false,
    calls: &[Call::Load, Call::Save, Call::Dispatch, Call::Settle],
};

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "nothing outgoing", outputs: 0, calls: &[Call::Load, Call::Save, Call::Settle], ..PLAIN },
    Scenario { name: "one outgoing", ..PLAIN },
    Scenario { name: "two outgoing", outputs: 2, ..PLAIN },
    Scenario { name: "a reply", act: Act::Reply, ..PLAIN },
    Scenario { name: "a timeout", act: Act::SetAlarm, ..PLAIN },
    Scenario {
        name: "a completion",
        act: Act::Close,
        calls: &[Call::Load, Call::Save, Call::Dispatch, Call::Settle],
        ..PLAIN
    },
    Scenario {
        name: "a dead letter",
        trouble: Trouble::Refuses,
        calls: &[Call::Load, Call::Version, Call::SetAside, Call::Settle],
        ..PLAIN
    },
    Scenario {
        name: "a message that can never be sent",
        act: Act::SendUnsendable,
        calls: &[Call::Load, Call::Save, Call::Dispatch, Call::SetAside, Call::Settle],
        ..PLAIN
    },
    Scenario { name: "a handler that fails once", trouble: Trouble::Fails(1), ..PLAIN },
    Scenario { name: "a pass of three", messages: 3, ..PLAIN },
    Scenario {
        name: "the sweeper",
        outputs: 2,
        swept: true,
        calls: &[Call::Pending, Call::Load, Call::Dispatch],
        ..PLAIN
    },
];

/// A rig with the scenario's messages in its queue; every run has names of its own.
async fn begin<B: Backend>(scenario: &Scenario, shape: Shape, store: &B, dedup: &B) -> Rig {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let world = World::new(Plan { seed: run, traced: true, ..Plan::default() });
    let rig = Rig::new(world, store, dedup, &Setup::new(shape));
    for message in 0..scenario.messages {
        let post = Post {
            ledger: format!("crashed-{run}"),
            cause: format!("crashed-{run}-{message}"),
            outputs: scenario.outputs,
            act: scenario.act,
            trouble: scenario.trouble,
        };
        rig.upper().queue.put(rig.promised(&post));
    }
    if scenario.swept {
        lose_after_save(&rig).await;
    }
    rig
}

/// Crashes the delivery before its first dispatch, and the broker forgets the message.
async fn lose_after_save(rig: &Rig) {
    let stage = rig.upper();
    rig.world.crash_on(Point { call: Call::Dispatch, side: Side::Before });
    let (key, messages) = stage.route(0, stage.queue.take(1)).pop().unwrap();
    let receipt = messages[0].receipt.clone();
    let stopped = rig.world.until_silent(stage.deliver.deliver(&stage.managers[0], &key, messages)).await;
    assert!(stopped.is_some(), "there is nothing to sweep");
    stage.queue.settle(&receipt, Settlement::Ack).await.unwrap();
    rig.world.clear_trace();
}

/// One delivery of everything that waits, or one sweep.
async fn attempt(rig: &Rig, scenario: &Scenario) {
    const ALL: usize = 100;
    let stage = rig.upper();
    if scenario.swept {
        return stage.sweep(0, &rig.stores, &rig.world).await;
    }
    for (key, messages) in stage.route(0, stage.queue.take(ALL)) {
        stage.deliver.deliver(&stage.managers[0], &key, messages).await;
    }
}

/// Attempts the scenario as often as there are crashes, with one at the given point of each, then hands over to a clean
/// worker and checks. Gives where the last crash came; `None` when that attempt has no such point.
async fn crash<B: Backend>(
    scenario: &Scenario,
    shape: Shape,
    store: &B,
    dedup: &B,
    crashes: &[u32],
) -> Result<Option<Point>, String> {
    let rig = begin(scenario, shape, store, dedup).await;
    let mut stopped = None;
    for point in crashes {
        rig.world.crash_at(*point);
        stopped = rig.world.until_silent(attempt(&rig, scenario)).await;
        for receipt in rig.upper().queue.leased() {
            rig.upper().queue.expire(&receipt);
        }
    }
    let context = || format!("{}, {shape:?}, crashes at {crashes:?}, the last at {stopped:?}", scenario.name);
    rig.check_at_rest().await.map_err(|why| format!("{}: {why}", context()))?;
    Ok(stopped)
}

/// `HAPAX_THOROUGH`: also what takes minutes.
fn is_thorough() -> bool {
    std::env::var_os("HAPAX_THOROUGH").is_some()
}

/// Where each call takes its time, one scenario in so many is gone through for each push: others each time.
#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
const SAMPLED: usize = 3;

/// Every point of every scenario, and every pair of points if `pairs`.
async fn crash_everywhere<B: Backend>(backend: &str, pairs: bool, stores: impl Fn() -> (B, B)) {
    crash_in(SCENARIOS.iter(), backend, pairs, stores).await;
}

/// Every point of some scenarios; thorough: of all, and every pair of points if `pairs`.
#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
async fn crash_in_some<B: Backend>(backend: &str, pairs: bool, stores: impl Fn() -> (B, B)) {
    if is_thorough() {
        return crash_everywhere(backend, pairs, stores).await;
    }
    let first = fastrand::usize(..SAMPLED);
    println!("{backend}: every {SAMPLED}rd scenario from {first} on; all of them with HAPAX_THOROUGH=1");
    crash_in(SCENARIOS.iter().skip(first).step_by(SAMPLED), backend, false, stores).await;
}

async fn crash_in<B: Backend>(
    scenarios: impl Iterator<Item = &Scenario>,
    backend: &str,
    pairs: bool,
    stores: impl Fn() -> (B, B),
) {
    for scenario in scenarios {
        for &shape in Shape::of(&stores().1) {
            let (mut singles, mut doubles, mut found) = (0, 0, BTreeSet::new());
            for first in 0.. {
                let (store, dedup) = stores();
                match crash(scenario, shape, &store, &dedup, &[first]).await.unwrap() {
                    Some(point) => found.insert(point),
                    None => break,
                };
                singles += 1;
                for second in (0..).take_while(|_| pairs) {
                    let (store, dedup) = stores();
                    if crash(scenario, shape, &store, &dedup, &[first, second]).await.unwrap().is_none() {
                        break;
                    }
                    doubles += 1;
                }
            }
            println!("{backend}, {}, {shape:?}: {singles} crash points, {doubles} pairs", scenario.name);
            check_found(scenario, shape, singles, &found);
        }
    }
}

/// The calls that the scenario is about were crashed on both sides.
fn check_found(scenario: &Scenario, shape: Shape, singles: u32, found: &BTreeSet<Point>) {
    let by_shape: &[Call] = match shape {
        Shape::Two => &[Call::Contains],
        Shape::One if scenario.swept => &[Call::Finish],
        Shape::One => &[],
    };
    for &call in scenario.calls.iter().chain(by_shape) {
        for side in [Side::Before, Side::After] {
            let point = Point { call, side };
            assert!(found.contains(&point), "{}, {shape:?}: no crash at {point:?}, only {found:?}", scenario.name);
        }
    }
    let more = matches!(scenario.act, Act::Reply | Act::SetAlarm | Act::SendUnsendable);
    let between = found.contains(&Point { call: Call::Dispatch, side: Side::Between });
    assert_eq!(between, scenario.outputs + u8::from(more) > 1, "{}: {found:?}", scenario.name);
    assert!(singles as usize >= found.len() && singles >= 10, "{}: only {singles} points", scenario.name);
}

#[tokio::test]
async fn a_crash_at_any_point_and_at_any_pair_of_points_is_made_good_on_memory() {
    crash_everywhere("memory", true, || (Memory::new(), Memory::new())).await;
}

#[tokio::test]
async fn a_crash_at_any_point_is_made_good_on_sqlite() {
    let scratch = Scratch::new("crash-points");
    let store = Sqlite::open(scratch.file("crash-points.db")).await.unwrap();
    // Pairs take minutes here, for every commit waits for the disk.
    crash_everywhere("sqlite", is_thorough(), || (store.clone(), store.clone())).await;
}

#[tokio::test]
async fn a_crash_at_any_point_is_made_good_on_postgres() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    crash_everywhere("postgres", is_thorough(), || (store.clone(), store.clone())).await;
}

#[tokio::test]
async fn a_crash_at_any_point_is_made_good_on_mysql() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    crash_everywhere("mysql", is_thorough(), || (store.clone(), store.clone())).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test]
async fn a_crash_at_any_point_is_made_good_on_dynamodb() {
    let store = hapax_tests::DynamoDbTable::new().open().await;
    crash_in_some("dynamodb", true, || (store.clone(), store.clone())).await;
}

#[cfg(feature = "cosmos")]
async fn crash_everywhere_on_cosmos(backend: &str, layout: hapax::stores::cosmos::Layout) {
    let store = hapax_tests::CosmosDatabase::new(layout).open().await;
    crash_in_some(backend, true, || (store.clone(), store.clone())).await;
}

#[cfg(feature = "cosmos")]
#[tokio::test]
async fn a_crash_at_any_point_is_made_good_on_cosmos_together() {
    crash_everywhere_on_cosmos("cosmos, together", hapax::stores::cosmos::Layout::Together).await;
}

#[cfg(feature = "cosmos")]
#[tokio::test]
async fn a_crash_at_any_point_is_made_good_on_cosmos_apart() {
    crash_everywhere_on_cosmos("cosmos, apart", hapax::stores::cosmos::Layout::Apart).await;
}

/// The dedup entries apart from their entities: in objects, in memory and in a folder.
#[cfg(feature = "object")]
mod object {
    use std::{sync::Arc, time::Duration};

    use hapax::ObjectDedup;
    use hapax_tests::Pair;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn a_crash_at_any_point_is_made_good_with_dedup_entries_in_objects() {
        let objects = Arc::new(InMemory::new());
        let dedup = ObjectDedup::options(objects.clone(), "crashes").second(objects);
        let dedup = dedup.clock_margin(Duration::ZERO).open().await.unwrap();
        let pair = Pair { entities: Memory::new(), dedup };
        crash_everywhere("objects", is_thorough(), || (pair.clone(), pair.clone())).await;
    }

    #[tokio::test]
    async fn a_crash_at_any_point_is_made_good_with_dedup_entries_in_a_folder() {
        let scratch = Scratch::new("crash-points-folder");
        let dedup = ObjectDedup::directory(scratch.file("dedup")).create_if_missing(true).open().await.unwrap();
        let pair = Pair { entities: Memory::new(), dedup };
        crash_everywhere("a folder", is_thorough(), || (pair.clone(), pair.clone())).await;
    }

    #[cfg(feature = "dynamodb")]
    #[tokio::test]
    async fn a_crash_at_any_point_is_made_good_with_entities_in_dynamodb_and_dedup_entries_in_objects() {
        let objects = Arc::new(InMemory::new());
        let dedup = ObjectDedup::options(objects.clone(), "crashes").second(objects);
        let dedup = dedup.clock_margin(Duration::ZERO).open().await.unwrap();
        let pair = Pair { entities: hapax_tests::DynamoDbTable::new().open().await, dedup };
        crash_in_some("dynamodb and objects", false, || (pair.clone(), pair.clone())).await;
    }
}
