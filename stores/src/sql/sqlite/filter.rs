//! A filter over the keys of a closed generation: says for certain that a key is not there, and else that it may be.
//!
//! A split block Bloom filter (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007; in the
//! form of the Apache Parquet format specification): a key touches one block of 32 bytes, one bit in each of its eight
//! words, so that a look costs one line of the processor's cache.

use hapax_core::ids::DedupKey;

/// Bits for each key: about one look in 500 finds a key that is not there.
const BITS_PER_KEY: usize = 16;
/// First byte of a stored filter. Another one is of another version of hapax.
const FORMAT: u8 = 1;
/// Of which odd numbers the bits of a block are products: as in the specification.
const SALTS: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];
const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * 4;

type Block = [u32; WORDS];

/// Keys of a closed generation, nearly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter(Vec<Block>);

/// What of a dedup key goes into filters: its last eight bytes, which are of a cryptographic hash.
pub(super) fn hash_of(key: &DedupKey) -> u64 {
    let mut end = [0; 8];
    end.copy_from_slice(&key.as_bytes()[DedupKey::BYTES - 8..]);
    u64::from_be_bytes(end)
}

impl Filter {
    pub(super) fn of(hashes: &[u64]) -> Self {
        let blocks = (hashes.len() * BITS_PER_KEY).div_ceil(8 * BLOCK_BYTES).max(1);
        let mut filter = Self(vec![Block::default(); blocks]);
        for &hash in hashes {
            let at = filter.block_of(hash);
            for (word, mask) in filter.0[at].iter_mut().zip(masks(hash)) {
                *word |= mask;
            }
        }
        filter
    }

    /// Whether a key of this hash may be there. Never wrong about one that is.
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        self.0[self.block_of(hash)].iter().zip(masks(hash)).all(|(word, mask)| word & mask != 0)
    }

    /// What it takes in memory, and about what it takes in the file.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * BLOCK_BYTES
    }

    /// How many keys it was made of, about.
    pub(super) fn entries(&self) -> usize {
        self.bytes() * 8 / BITS_PER_KEY
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.bytes());
        bytes.push(FORMAT);
        self.0.as_flattened().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// `None` for what is no filter of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, blocks) = bytes.split_first()? else { return None };
        if blocks.is_empty() || !blocks.len().is_multiple_of(BLOCK_BYTES) {
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
        Some(Self(filter))
    }

    /// By the upper half of the hash, spread over all blocks.
    fn block_of(&self, hash: u64) -> usize {
        usize::try_from(((hash >> 32) * self.0.len() as u64) >> 32).unwrap_or_default()
    }
}

/// By the lower half of the hash: one bit for each word.
fn masks(hash: u64) -> Block {
    #[allow(clippy::cast_possible_truncation)] // The lower half is meant.
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
            assert!(hashes(1, count).into_iter().all(|hash| filter.may_hold(hash)), "{count}");
            let wrong = hashes(2, 100_000).into_iter().filter(|hash| filter.may_hold(*hash)).count();
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

    #[test]
    fn an_empty_generation_holds_nothing() {
        let filter = Filter::of(&[]);
        assert!(!hashes(4, 1000).into_iter().any(|hash| filter.may_hold(hash)));
    }

    /// A stored filter is read by later versions: its bits stay where they are.
    #[test]
    fn a_filter_keeps_its_bytes() {
        let bytes = Filter::of(&[0x0123_4567_89ab_cdef, u64::MAX, 0]).encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "010100840001008800014000400108800011000200010001040110000001001001");
    }
}
