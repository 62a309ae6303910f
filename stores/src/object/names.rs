//! The names of objects.
//!
//! Below the prefix: `d/` entries by key, `t/` their marks by time, `r/` the retentions asked for, `e/` whose turn it is to
//! evict, `p/` probes of the start, `now` what tells the service's time.

use hapax_core::ids::DedupKey;
use object_store::path::Path;

/// Makes names below a prefix.
#[derive(Debug, Clone)]
pub(super) struct Names {
    prefix: Path,
}

/// A stretch of time by the service's clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket {
    pub(super) start: i64,
    pub(super) length: i64,
}

impl Bucket {
    /// The bucket of `length` milliseconds that `time` is in.
    pub(super) const fn of(time: i64, length: i64) -> Self {
        Self { start: time.div_euclid(length) * length, length }
    }

    /// The first moment after it.
    pub(super) const fn end(self) -> i64 {
        self.start.saturating_add(self.length)
    }
}

impl Names {
    pub(super) const fn new(prefix: Path) -> Self {
        Self { prefix }
    }

    fn below(&self, parts: &[&str]) -> Path {
        parts.iter().fold(self.prefix.clone(), |path, part| path.join(*part))
    }

    pub(super) fn entry(&self, key: &DedupKey) -> Path {
        let hex = key.to_string();
        // By the last byte: the first ones are a time, in most keys, and writers at the same time would meet in one folder.
        self.below(&["d", &hex[hex.len() - 2..], &hex])
    }

    /// The folders of entries.
    pub(super) fn folders(&self) -> impl Iterator<Item = Path> + use<'_> {
        (0..=u8::MAX).map(|byte| self.below(&["d", &format!("{byte:02x}")]))
    }

    /// Where the buckets are.
    pub(super) fn buckets(&self) -> Path {
        self.below(&["t"])
    }

    pub(super) fn bucket(&self, bucket: Bucket) -> Path {
        self.below(&["t", &format!("{:015}-{}", bucket.start, bucket.length)])
    }

    pub(super) fn mark(&self, bucket: Bucket, key: &DedupKey) -> Path {
        self.bucket(bucket).join(key.to_string())
    }

    pub(super) fn retentions(&self) -> Path {
        self.below(&["r"])
    }

    pub(super) fn retention(&self, millis: u64) -> Path {
        self.below(&["r", &format!("{millis:020}")])
    }

    pub(super) fn turns(&self) -> Path {
        self.below(&["e"])
    }

    pub(super) fn turn(&self, number: u64, over: bool) -> Path {
        let mut name = format!("{number:020}");
        if over {
            name.push_str("-over");
        }
        self.below(&["e", &name])
    }

    pub(super) fn probe(&self, run: &str, name: &str) -> Path {
        self.below(&["p", run, name])
    }

    pub(super) fn probes(&self, run: &str) -> Path {
        self.below(&["p", run])
    }

    pub(super) fn now(&self) -> Path {
        self.below(&["now"])
    }

    /// What [`bucket`](Self::bucket) named; `None` for what somebody else has put there.
    pub(super) fn to_bucket(path: &Path) -> Option<Bucket> {
        let (start, length) = path.filename()?.split_once('-')?;
        let bucket = Bucket { start: start.parse().ok()?, length: length.parse().ok()? };
        (bucket.length > 0).then_some(bucket)
    }

    /// Whose mark it is.
    pub(super) fn to_key(path: &Path) -> Option<DedupKey> {
        DedupKey::from_hex(path.filename()?)
    }

    /// What [`retention`](Self::retention) named, in milliseconds.
    pub(super) fn to_retention(path: &Path) -> Option<u64> {
        path.filename()?.parse().ok()
    }

    /// What [`turn`](Self::turn) named.
    pub(super) fn to_turn(path: &Path) -> Option<(u64, bool)> {
        let name = path.filename()?;
        let number = name.strip_suffix("-over");
        Some((number.unwrap_or(name).parse().ok()?, number.is_some()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_tell_what_they_were_made_of() {
        let names = Names::new(Path::from("shop/dedup"));
        let key = DedupKey::from_bytes(std::array::from_fn(|i| i as u8 * 11));
        let bucket = Bucket::of(1_700_000_000_123, 3_600_000);
        assert_eq!(Names::to_bucket(&names.bucket(bucket)), Some(bucket));
        assert_eq!(Names::to_key(&names.mark(bucket, &key)), Some(key));
        assert_eq!(Names::to_retention(&names.retention(u64::MAX)), Some(u64::MAX));
        assert_eq!(Names::to_turn(&names.turn(7, false)), Some((7, false)));
        assert_eq!(Names::to_turn(&names.turn(7, true)), Some((7, true)));
        let entry = names.entry(&key).to_string();
        assert!(entry.starts_with("shop/dedup/d/fd/00"), "{entry}");
        for path in ["x", "x-", "-5", "1-0", "1--1"] {
            assert_eq!(Names::to_bucket(&Path::from(path)), None, "{path}");
        }
    }

    #[test]
    fn objects_keep_their_names() {
        let names = Names::new(Path::from("shop/dedup"));
        let (key, hex) = (DedupKey::from_bytes([4; DedupKey::BYTES]), "04".repeat(DedupKey::BYTES));
        let bucket = Bucket::of(1_700_000_000_123, 3_600_000);
        for (name, kept) in [
            (names.entry(&key), format!("shop/dedup/d/04/{hex}")),
            (names.bucket(bucket), "shop/dedup/t/001699999200000-3600000".to_owned()),
            (names.mark(bucket, &key), format!("shop/dedup/t/001699999200000-3600000/{hex}")),
            (names.retention(604_800_000), "shop/dedup/r/00000000000604800000".to_owned()),
            (names.turn(7, false), "shop/dedup/e/00000000000000000007".to_owned()),
            (names.turn(7, true), "shop/dedup/e/00000000000000000007-over".to_owned()),
            (names.now(), "shop/dedup/now".to_owned()),
        ] {
            assert_eq!(name.to_string(), kept);
        }
    }

    #[test]
    fn a_bucket_holds_the_time_it_was_made_of() {
        for time in [-5, 0, 1, 3_599_999, 3_600_000, 1_700_000_000_123] {
            let bucket = Bucket::of(time, 3_600_000);
            assert!(bucket.start <= time && time < bucket.end(), "{time} {bucket:?}");
        }
    }
}
