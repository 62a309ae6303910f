//! Whole runs of two endpoints over the store, with everything that may go wrong at a port: the sentences of the README
//! hold throughout and at rest.

use hapax::stores::cosmos::Layout;
use hapax_model::{
    Fault, Plan,
    ledger::{Act, Trouble},
};
use hapax_tests::{Case, CosmosDatabase, Driver, Order, Shape};

use super::numbered::Numbered;

/// Few, for the emulator shares the machine with what asks it. `HAPAX_THOROUGH=1` runs many more.
const CASES: u32 = 30;
const CASES_THOROUGH: u32 = 1_000;

const FAULTS: [Fault; 9] = [
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
const ACTS: [Act; 6] = [Act::Nothing, Act::Nothing, Act::Reply, Act::SetAlarm, Act::SendUnsendable, Act::Close];
const TROUBLES: [Trouble; 5] = [Trouble::None, Trouble::None, Trouble::None, Trouble::Fails(1), Trouble::Refuses];

fn case(seed: u64, shape: Shape) -> Case {
    let mut draw = fastrand::Rng::with_seed(seed);
    let budgets = FAULTS.map(|fault| (fault, draw.u32(0..4))).into_iter().collect();
    let order = |draw: &mut fastrand::Rng| Order {
        ledger: draw.u8(0..3),
        outputs: draw.u8(0..4),
        act: ACTS[draw.usize(..ACTS.len())],
        trouble: TROUBLES[draw.usize(..TROUBLES.len())],
        copies: draw.u8(1..4),
        alias: draw.bool(),
        timed: draw.bool(),
    };
    Case {
        plan: Plan {
            seed,
            per_mille: draw.u16(0..200),
            budgets,
            late_max: draw.u64(1..60),
            yields: true,
            traced: false,
        },
        shape,
        orders: (0..draw.usize(1..7)).map(|_| order(&mut draw)).collect(),
        workers: draw.usize(1..5),
        batch: draw.usize(1..5),
        drops: draw.u32(0..5),
        expiries: draw.u32(0..5),
        sweeps: draw.u32(0..5),
        ordered: draw.bool(),
    }
}

async fn run_worlds(shape: Shape, layout: Layout) {
    let store = Numbered::new(CosmosDatabase::new(layout).open().await);
    let cases = if std::env::var_os("HAPAX_THOROUGH").is_some() { CASES_THOROUGH } else { CASES };
    for _ in 0..cases {
        let seed = fastrand::u64(..);
        let case = case(seed, shape);
        if let Err(why) = Driver::new(&case, &store, &store).run().await {
            panic!("seed {seed}: {why}\n{case:?}");
        }
    }
}

#[tokio::test]
async fn every_message_takes_effect_once_where_marks_are_with_their_entity() {
    run_worlds(Shape::One, Layout::Together).await;
}

#[tokio::test]
async fn every_message_takes_effect_once_where_marks_are_apart() {
    run_worlds(Shape::Two, Layout::Apart).await;
}
