//! Where order is kept: which lane a message is in, and which part of all lanes that is.

/// How many parts there are: enough to share them out evenly between tens of relays, few enough to be counted.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::sql) const PARTITIONS: u64 = 10_000;

/// The number of a lane, by which it is locked and shared out: FNV-1a, since it must be the same in every process and in every
/// version, and of the server too.
pub(in crate::sql) fn number(lane: &str) -> u64 {
    lane.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The part of all lanes that `lane` belongs to.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::sql) fn partition(lane: &str) -> i64 {
    (number(lane) % PARTITIONS).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_of_lanes_stay() {
        // Of the algorithm's authors.
        assert_eq!(
            [number(""), number("a"), number("foobar")],
            [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]
        );
    }
}
