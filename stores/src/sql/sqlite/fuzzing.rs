//! A door for the tests of decoders: filters.

use super::filter::Filter;

/// Filters of what is remembered for long, as a file may hold them.
#[doc(hidden)]
pub fn fuzz_filter(data: &[u8]) {
    let Some(filter) = Filter::decode(data) else { return };
    assert_eq!(filter.encode(), data);
    let hash = data.iter().fold(0, |hash: u64, byte| hash.rotate_left(7) ^ u64::from(*byte));
    let _ = filter.holds(hash);
}
