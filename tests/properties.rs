//! Whatever happens, in any order, to any number of workers: the sentences of the README hold throughout and at rest.
//!
//! A run is drawn from a [`Case`]; one that fails is printed, shrunk, and its seed is kept in `proptest-regressions`, to
//! be tried first from then on. `HAPAX_THOROUGH=1` runs many more.
#![allow(clippy::unwrap_used)]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use hapax::{Memory, Sqlite};
use hapax_model::{
    Coverage, Fault, Plan, Seen,
    ledger::{Act, Trouble},
};
use hapax_tests::{Backend, Case, Driver, MySqlTables, Order, PostgresSchema, Scratch, Shape};
use proptest::{
    prelude::*,
    test_runner::{Config, FileFailurePersistence, TestRunner},
};

/// So many run on a server, beside other tests, in a few seconds.
const SERVER_CASES: u32 = 100;
/// Enough to have met everything.
const SERVER_CASES_MAX: u32 = 400;

/// What fails on a server is slow to run again.
const SHRINK_MILLIS_MAX: u32 = 120_000;

fn order() -> impl Strategy<Value = Order> {
    let act = prop_oneof![
        8 => Just(Act::Nothing),
        2 => Just(Act::Reply),
        1 => Just(Act::SendUnsendable),
        1 => Just(Act::SendUnroutable),
        3 => Just(Act::SetAlarm),
        2 => Just(Act::CancelAlarm),
        1 => Just(Act::Close),
    ];
    let trouble = prop_oneof![
        12 => Just(Trouble::None),
        2 => (1..3u8).prop_map(Trouble::Fails),
        1 => (1..3u8).prop_map(Trouble::Panics),
        1 => Just(Trouble::Refuses),
    ];
    let copies = prop_oneof![3 => Just(1u8), 3 => Just(2), 1 => 3..5u8];
    (0..3u8, 0..4u8, act, trouble, copies, any::<bool>(), any::<bool>()).prop_map(
        |(ledger, outputs, act, trouble, copies, alias, timed)| Order {
            ledger,
            outputs,
            act,
            trouble,
            copies,
            alias,
            timed,
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let faults = [
        Fault::Refused,
        Fault::UnknownApplied,
        Fault::UnknownNotApplied,
        Fault::Late,
        Fault::OwnConflict,
        Fault::CleanUpLeft,
        Fault::Stale,
        Fault::SilentBefore,
        Fault::SilentAfter,
    ];
    let budgets = proptest::collection::vec(0..4u32, faults.len());
    (any::<u64>(), 0..200u16, budgets, 1..60u64).prop_map(move |(seed, per_mille, budgets, late_max)| Plan {
        seed,
        per_mille,
        budgets: faults.into_iter().zip(budgets).collect::<BTreeMap<_, _>>(),
        late_max,
        yields: true,
        traced: false,
    })
}

fn case() -> impl Strategy<Value = Case> {
    let orders = proptest::collection::vec(order(), 1..9);
    let shape = prop_oneof![Just(Shape::One), Just(Shape::Two)];
    (plan(), shape, orders, 1..5usize, 1..5usize, 0..5u32, 0..5u32, 0..5u32, any::<bool>()).prop_map(
        |(plan, shape, orders, workers, batch, drops, expiries, sweeps, ordered)| Case {
            plan,
            shape,
            orders,
            workers,
            batch,
            drops,
            expiries,
            sweeps,
            ordered,
        },
    )
}

/// Runs `cases`, and as many again, at most until there are `cases_max`, until together they have met everything that can go
/// wrong on such a store. `stores` is told whether what it gives must be new: else runs may share it, since all names contain
/// their seeds.
fn check<B: Backend>(name: &'static str, cases: u32, cases_max: u32, stores: impl AsyncFn(bool) -> (B, B)) {
    let persistence: &'static str = Box::leak(format!("proptest-regressions/{name}.txt").into_boxed_str());
    let config = Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(persistence))),
        max_shrink_iters: 2000,
        max_shrink_time: SHRINK_MILLIS_MAX,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let coverage = RefCell::new(Coverage::default());
    // Names are repeated by a case that is shrunk, from the first failure on, and by those that are kept, with which each run begins.
    let (failed, begins) = (Cell::new(false), Cell::new(false));
    let together = Cell::new(true);
    let mut run = 0;
    let missing: Vec<Seen> = loop {
        begins.set(true);
        let result = TestRunner::new(config.clone()).run(&case(), |case| {
            let seen = runtime.block_on(async {
                let (store, dedup) = stores(failed.get() || begins.replace(false)).await;
                together.set(store.capabilities().together);
                // What takes no dedup entries of another store's entities is one store for both.
                let shape = Shape::of(&dedup).iter().find(|shape| **shape == case.shape).unwrap_or(&Shape::One);
                Driver::new(&Case { shape: *shape, ..case }, &store, &dedup).run().await
            });
            failed.set(failed.get() || seen.is_err());
            coverage.borrow_mut().add(&seen.map_err(TestCaseError::fail)?);
            Ok(())
        });
        if let Err(error) = result {
            panic!("{name}: {error}");
        }
        run += cases;
        let mut missing = coverage.borrow().missing();
        // Only a store that keeps both leaves a clean-up for later.
        missing.retain(|seen| together.get() || *seen != Seen::CleanUpLeft);
        if missing.is_empty() || run >= cases_max {
            break missing;
        }
    };
    println!("{name}: {run} cases met {:?}", coverage.into_inner());
    assert!(missing.is_empty(), "void: in {run} cases {missing:?} was never met");
}

fn cases(few: u32, many: u32) -> u32 {
    if std::env::var_os("HAPAX_THOROUGH").is_some() { many } else { few }
}

#[test]
fn every_message_takes_effect_once_on_memory() {
    let cases = cases(3000, 200_000);
    check("memory", cases, cases, async |_| (Memory::new(), Memory::new()));
}

#[test]
fn every_message_takes_effect_once_on_sqlite() {
    let (scratch, runs) = (Scratch::new("properties"), Cell::new(0));
    let cases = cases(200, 10_000);
    check("sqlite", cases, cases, async |_| {
        let run = runs.replace(runs.get() + 1);
        let store = Sqlite::open(scratch.file(&format!("{run}.db"))).await.unwrap();
        (store.clone(), store)
    });
}

/// Stores that are opened once, as long as they need not be new.
async fn once<B: Backend>(kept: &RefCell<Option<(B, B)>>, anew: bool, open: impl AsyncFnOnce() -> (B, B)) -> (B, B) {
    if let Some(stores) = kept.borrow().clone().filter(|_| !anew) {
        return stores;
    }
    let stores = open().await;
    kept.replace(Some(stores.clone()));
    stores
}

/// Far fewer, for each of their writes is a commit on a disk.
fn cases_on_a_server() -> [u32; 2] {
    [cases(SERVER_CASES, 2000), cases(SERVER_CASES_MAX, 4000)]
}

#[test]
fn every_message_takes_effect_once_on_postgres() {
    let (schemas, kept) = (RefCell::new(Vec::new()), RefCell::new(None));
    let [cases, cases_max] = cases_on_a_server();
    check("postgres", cases, cases_max, async |anew| {
        once(&kept, anew, async || {
            let [store, dedup] = [PostgresSchema::new(), PostgresSchema::new()];
            let stores = (store.open().await, dedup.open().await);
            schemas.borrow_mut().extend([store, dedup]);
            stores
        })
        .await
    });
}

#[cfg(feature = "dynamodb")]
#[test]
fn every_message_takes_effect_once_on_dynamodb() {
    let kept = RefCell::new(None);
    let [cases, cases_max] = cases_on_a_server();
    check("dynamodb", cases, cases_max, async |anew| {
        once(&kept, anew, async || {
            let open = || async { hapax_tests::DynamoDbTable::new().open().await };
            (open().await, open().await)
        })
        .await
    });
}

#[cfg(feature = "cosmos")]
fn every_message_takes_effect_once_on_cosmos(name: &'static str, layout: hapax::stores::cosmos::Layout) {
    let kept = RefCell::new(None);
    let [cases, cases_max] = cases_on_a_server();
    check(name, cases, cases_max, async |anew| {
        once(&kept, anew, async || {
            let open = || async { hapax_tests::CosmosDatabase::new(layout).open().await };
            (open().await, open().await)
        })
        .await
    });
}

#[cfg(feature = "cosmos")]
#[test]
fn every_message_takes_effect_once_on_cosmos_together() {
    every_message_takes_effect_once_on_cosmos("cosmos-together", hapax::stores::cosmos::Layout::Together);
}

#[cfg(feature = "cosmos")]
#[test]
fn every_message_takes_effect_once_on_cosmos_apart() {
    every_message_takes_effect_once_on_cosmos("cosmos-apart", hapax::stores::cosmos::Layout::Apart);
}

#[test]
fn every_message_takes_effect_once_on_mysql() {
    let (tables, kept) = (RefCell::new(Vec::new()), RefCell::new(None));
    let [cases, cases_max] = cases_on_a_server();
    check("mysql", cases, cases_max, async |anew| {
        once(&kept, anew, async || {
            let [store, dedup] = [MySqlTables::new(), MySqlTables::new()];
            let stores = (store.open().await, dedup.open().await);
            tables.borrow_mut().extend([store, dedup]);
            stores
        })
        .await
    });
}
