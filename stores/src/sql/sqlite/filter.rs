//! A filter over the keys of a closed generation: says for certain that a key is not there, and else that it may be.
//!
//! A split block Bloom filter (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007; in the
//! form of the Apache Parquet format specification): a key touches one block of 32 bytes, one bit in each of its eight
//! words, so that a look costs one line of the processor's cache.

use hapax_core::ids::DedupKey;

/// Bits for each key: about one look in 500 finds a key that is not there.
const BITS_PER_KEY: usize = 16;
/// First byte of a stored filter: [`Hashes`] of which kind it is made of. Another one is of another version of hapax.
const FORMAT: u8 = 2;
/// Of before keys counted.
const OF_ENDS: u8 = 1;
/// Of which odd numbers the bits of a block are products: as in the specification.
const SALTS: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];
const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * 4;

type Block = [u32; WORDS];

/// Keys of a closed generation, nearly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    blocks: Vec<Block>,
    format: u8,
}

/// What of a dedup key goes into filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hashes {
    /// Its last eight bytes: of a cryptographic hash, or a number.
    end: u64,
    /// Of its last sixteen bytes.
    mixed: u64,
}

impl Hashes {
    pub(super) fn of(key: &DedupKey) -> Self {
        let (mut middle, mut end) = ([0; 8], [0; 8]);
        middle.copy_from_slice(&key.as_bytes()[DedupKey::BYTES - 16..DedupKey::BYTES - 8]);
        end.copy_from_slice(&key.as_bytes()[DedupKey::BYTES - 8..]);
        let (middle, end) = (u64::from_be_bytes(middle), u64::from_be_bytes(end));
        Self { end, mixed: mixed(middle, end) }
    }
}

/// Numbers of one sequence follow one another, so all bits of one have to count for all of the hash (the end of `SplitMix64`: Steele, Lea,
/// Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
pub(super) fn mixed(middle: u64, end: u64) -> u64 {
    let mut hash = middle ^ end;
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl Filter {
    /// Of keys with these [`mixed`] hashes.
    pub(super) fn of(hashes: &[u64]) -> Self {
        let blocks = (hashes.len() * BITS_PER_KEY).div_ceil(8 * BLOCK_BYTES).max(1);
        let mut filter = Self { blocks: vec![Block::default(); blocks], format: FORMAT };
        for &hash in hashes {
            let at = filter.block_of(hash);
            for (word, mask) in filter.blocks[at].iter_mut().zip(masks(hash)) {
                *word |= mask;
            }
        }
        filter
    }

    /// Whether a key of these hashes may be there. Never wrong about one that is.
    pub(super) fn may_hold(&self, hashes: Hashes) -> bool {
        self.holds(if self.format == OF_ENDS { hashes.end } else { hashes.mixed })
    }

    pub(super) fn holds(&self, hash: u64) -> bool {
        self.blocks[self.block_of(hash)].iter().zip(masks(hash)).all(|(word, mask)| word & mask != 0)
    }

    /// What it takes in memory, and about what it takes in the file.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// How many keys it was made of, about.
    pub(super) fn entries(&self) -> usize {
        self.bytes() * 8 / BITS_PER_KEY
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.bytes());
        bytes.push(self.format);
        self.blocks.as_flattened().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// `None` for what is no filter of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&format, blocks) = bytes.split_first()?;
        if !matches!(format, FORMAT | OF_ENDS) || blocks.is_empty() || !blocks.len().is_multiple_of(BLOCK_BYTES) {
            return None;
        }
        let mut filter = Vec::with_capacity(blocks.len() / BLOCK_BYTES);
        for block in blocks.chunks_exact(BLOCK_BYTES) {
            let mut words = Block::default();
            for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
                *word = u32::from_le_bytes(bytes.try_into().ok()?);
            }
            filter.push(words);
        }
        Some(Self { blocks: filter, format })
    }

    /// By the upper half of the hash, spread over all blocks.
    fn block_of(&self, hash: u64) -> usize {
        usize::try_from(((hash >> 32) * self.blocks.len() as u64) >> 32).unwrap_or_default()
    }
}

/// By the lower half of the hash: one bit for each word.
fn masks(hash: u64) -> Block {
    let low = hash as u32;
    SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hashes(seed: u64, count: usize) -> Vec<u64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| random.u64(..)).collect()
    }

    #[test]
    fn a_filter_is_never_wrong_about_what_is_there_and_seldom_about_what_is_not() {
        for count in [1, 2, 100, 262_144] {
            let filter = Filter::of(&hashes(1, count));
            assert!(hashes(1, count).into_iter().all(|hash| filter.holds(hash)), "{count}");
            let wrong = hashes(2, 100_000).into_iter().filter(|hash| filter.holds(*hash)).count();
            assert!(wrong < 500 || count < 100, "{count} keys: {wrong} of 100,000");
        }
    }

    #[test]
    fn a_stored_filter_is_the_same_and_what_is_none_is_refused() {
        let filter = Filter::of(&hashes(3, 1000));
        let bytes = filter.encode();
        assert_eq!(Filter::decode(&bytes), Some(filter));
        let cut = &bytes[..bytes.len() - 1];
        let other = [&[FORMAT + 1], &bytes[1..]].concat();
        for none in [&[][..], &[FORMAT], cut, &other] {
            assert_eq!(Filter::decode(none), None);
        }
    }

    /// Else each generation would be looked into for each of them.
    #[test]
    fn numbers_that_follow_one_another_are_told_apart_as_well() {
        let mut bytes = [7; DedupKey::BYTES];
        let mut number = |number: u64| {
            bytes[DedupKey::BYTES - 8..].copy_from_slice(&number.to_be_bytes());
            Hashes::of(&DedupKey::from_bytes(bytes))
        };
        let filter = Filter::of(&(0..10_000).map(|at| number(at).mixed).collect::<Vec<u64>>());
        assert!((0..10_000).all(|at| filter.may_hold(number(at))));
        let wrong = (10_000..110_000).filter(|at| filter.may_hold(number(*at))).count();
        assert!(wrong < 500, "{wrong} of 100,000");
    }

    /// A filter that an older version has made is asked as that one asks.
    #[test]
    fn filters_of_before_go_on() {
        let keys = hashes(5, 100);
        let mut bytes = Filter::of(&keys).encode();
        bytes[0] = OF_ENDS;
        let filter = Filter::decode(&bytes).unwrap();
        assert!(keys.iter().all(|end| filter.may_hold(Hashes { end: *end, mixed: 0 })));
        assert_eq!(filter.encode(), bytes);
    }

    #[test]
    fn an_empty_generation_holds_nothing() {
        let filter = Filter::of(&[]);
        assert!(!hashes(4, 1000).into_iter().any(|hash| filter.holds(hash)));
    }

    /// A stored filter is read by later versions: its bits stay where they are.
    #[test]
    fn a_filter_keeps_its_bytes() {
        let bytes = Filter::of(&[0x0123_4567_89ab_cdef, u64::MAX, 0]).encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "020100840001008800014000400108800011000200010001040110000001001001");
    }
}
