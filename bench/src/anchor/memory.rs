//! The loop without framework and without I/O: the same codec over the same bytes, a map and a set.

use std::{
    collections::{HashMap, HashSet},
    hint::black_box,
};

use crate::{
    AnyError,
    books::Books,
    measure::Window,
    run::{Run, Shape},
    workload::{Account, Deposit, key_of},
};

/// Deliveries between two looks at the clock.
const BATCH: usize = 100;

pub(crate) fn run(shape: &Shape) -> Result<Run, AnyError> {
    let mut workload = shape.workload();
    let mut states: HashMap<String, Vec<u8>> = HashMap::new();
    let mut seen: HashSet<[u8; 16]> = HashSet::new();
    for entity in 0..shape.entities {
        states.insert(key_of(entity), serde_json::to_vec(&Account::default())?);
    }
    let (mut deliveries, mut sent) = (0, 0);
    let window = Window::open();
    let end = std::time::Instant::now() + shape.time;
    while std::time::Instant::now() < end {
        for _ in 0..BATCH {
            let message = workload.next();
            let deposit: Deposit = serde_json::from_slice(&message.body)?;
            deliveries += 1;
            if !seen.insert(message.id) {
                continue;
            }
            let state = states.get_mut(deposit.account()).ok_or("an account is missing")?;
            let mut account: Account = serde_json::from_slice(state)?;
            let changed = account.apply(deposit);
            *state = serde_json::to_vec(&account)?;
            black_box(serde_json::to_vec(&changed)?); // A null send.
            sent += 1;
        }
    }
    let sample = window.close(deliveries);
    let effects = states.values().map(|state| Ok(serde_json::from_slice::<Account>(state)?.effects));
    let books = Books {
        distinct: workload.distinct,
        effects: effects.sum::<Result<u64, AnyError>>()?,
        dedup_entries: Some(seen.len() as u64),
        sent,
        sent_each: 1,
        ..Books::default()
    };
    Ok(Run { sample, books })
}
