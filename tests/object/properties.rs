//! Whatever happens, in any order, to any number of workers: the sentences of the README hold for a pair of stores too.

use std::sync::Arc;

use hapax::{Memory, ObjectDedup};
use hapax_model::{
    Fault, Plan,
    ledger::{Act, Trouble},
};
use hapax_tests::{Case, Driver, Order, Pair, Scratch, Shape};
use object_store::memory::InMemory;

fn order(random: &mut fastrand::Rng) -> Order {
    let acts = [
        Act::Nothing,
        Act::Nothing,
        Act::Nothing,
        Act::Reply,
        Act::SendUnsendable,
        Act::SendUnroutable,
        Act::SetAlarm,
        Act::CancelAlarm,
        Act::Close,
    ];
    let trouble =
        [Trouble::None, Trouble::None, Trouble::None, Trouble::Fails(1), Trouble::Panics(1), Trouble::Refuses];
    Order {
        ledger: random.u8(..3),
        outputs: random.u8(..4),
        act: acts[random.usize(..acts.len())],
        trouble: trouble[random.usize(..trouble.len())],
        copies: random.u8(1..5),
        alias: random.bool(),
        timed: random.bool(),
    }
}

fn case(seed: u64) -> Case {
    let mut random = fastrand::Rng::with_seed(seed);
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
    let budgets = faults.map(|fault| (fault, random.u32(..4)));
    Case {
        plan: Plan {
            seed,
            per_mille: random.u16(..200),
            budgets: budgets.into_iter().collect(),
            late_max: random.u64(1..60),
            yields: true,
            traced: false,
        },
        shape: Shape::Two,
        orders: (0..random.usize(1..9)).map(|_| order(&mut random)).collect(),
        workers: random.usize(1..5),
        batch: random.usize(1..5),
        drops: random.u32(..5),
        expiries: random.u32(..5),
        sweeps: random.u32(..5),
        ordered: random.bool(),
    }
}

/// Runs `cases`, and says the seed of one that fails.
fn check(cases: u64, open: impl AsyncFn() -> ObjectDedup) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = fastrand::u64(..);
    let mut met = Vec::new();
    runtime.block_on(async {
        let dedup = open().await;
        for seed in (0..cases).map(|number| first.wrapping_add(number)) {
            // Names contain the seed, so that runs share the objects.
            let pair = Pair { entities: Memory::new(), dedup: dedup.clone() };
            match Driver::new(&case(seed), &pair, &pair).run().await {
                Ok(coverage) => met.push(format!("{coverage:?}")),
                Err(broken) => panic!("seed {seed}: {broken}"),
            }
        }
    });
    assert_eq!(met.len() as u64, cases);
}

#[test]
fn every_message_takes_effect_once_with_dedup_entries_in_objects_in_memory() {
    let cases = if std::env::var_os("HAPAX_THOROUGH").is_some() { 20_000 } else { 400 };
    check(cases, async || ObjectDedup::options(Arc::new(InMemory::new()), "shop").open().await.unwrap());
}

#[test]
fn every_message_takes_effect_once_with_dedup_entries_in_an_object_directory() {
    let cases = if std::env::var_os("HAPAX_THOROUGH").is_some() { 500 } else { 15 };
    let scratch = Scratch::new("object-properties");
    let directory = ObjectDedup::directory(scratch.file("dedup")).create_if_missing(true);
    check(cases, async || directory.clone().open().await.unwrap());
}
