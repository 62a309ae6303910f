//! Passes take numbers beside each other.

use std::sync::Arc;

use super::*;
use crate::sync::explored::{all, exhaust, explore};

/// Goal: no number is given twice and none is left out, or two messages would be taken for one, or none of those behind be forgotten.
fn numbers_of(passes: usize, of_each: usize) {
    let sequences = Arc::new(Sequences::default());
    let taken = all((0..passes).map(|_| {
        let sequences = sequences.clone();
        async move {
            let (to, kind) = (Destination::parse("endpoint:billing"), "shop.placed".parse::<TypeName>());
            let (to, kind) = (to.expect("it is one"), kind.expect("it is one"));
            let number = || sequences.next(&to, &kind).map_or(0, |number| number.number);
            (0..of_each).map(|_| number()).collect::<Vec<_>>()
        }
    }));
    for own in &taken {
        assert!(own.is_sorted(), "{own:?}");
    }
    let mut taken: Vec<u64> = taken.concat();
    taken.sort_unstable();
    assert_eq!(taken, (1..=(passes * of_each) as u64).collect::<Vec<_>>());
}

#[test]
fn numbers_that_are_taken_beside_each_other_follow_one_another() {
    exhaust(|| numbers_of(2, 2));
    explore(|| numbers_of(3, 3));
}
