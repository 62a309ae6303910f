//! What stands in a request that has messages stored, as Kafka's protocol lays it out; and what is found in any by where it is.

/// Kind of the request, and the first version whose lengths are short.
pub(crate) const PRODUCE: (i16, i16) = (0, 9);
/// From the beginning of a batch to the id of its producer, which is followed by its epoch and the number of the batch's first message.
const PRODUCER_AT: usize = 43;

/// A batch of messages that somebody asks a broker to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Produced {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// How many replicas are waited for: -1 is all.
    pub(crate) acks: i16,
    pub(crate) producer: i64,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
}

/// What is read, in its order.
pub(crate) struct Bytes<'a> {
    left: &'a [u8],
    has_short_lengths: bool,
}

impl<'a> Bytes<'a> {
    /// Where lengths are not short.
    pub(crate) fn of(left: &'a [u8]) -> Self {
        Self { left, has_short_lengths: false }
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, left) = self.left.split_at(count);
        self.left = left;
        taken
    }

    pub(crate) fn short(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    pub(crate) fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    /// Seven bits in each byte, the lowest first.
    fn varint(&mut self) -> usize {
        let (mut value, mut at) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            value |= usize::from(byte & 0x7f) << at;
            if byte < 0x80 {
                return value;
            }
            at += 7;
        }
    }

    /// A length or a count; of nothing it is 0.
    fn count(&mut self, long: impl FnOnce(&mut Self) -> i64) -> usize {
        if self.has_short_lengths { self.varint().saturating_sub(1) } else { long(self).try_into().unwrap_or(0) }
    }

    pub(crate) fn text(&mut self) -> String {
        let count = self.count(|bytes| bytes.short().into());
        String::from_utf8(self.take(count).to_vec()).unwrap()
    }

    fn many(&mut self) -> usize {
        self.count(|bytes| bytes.int().into())
    }

    /// Fields that a later version has; clients send none.
    fn tags(&mut self) {
        if self.has_short_lengths {
            assert_eq!(self.varint(), 0);
        }
    }
}

/// Of any request, the batches that it has stored.
pub(crate) fn produced(request: &[u8]) -> Vec<Produced> {
    let mut bytes = Bytes::of(request);
    let (kind, version) = (bytes.short(), bytes.short());
    if kind != PRODUCE.0 {
        return Vec::new();
    }
    bytes.int(); // The number of the request.
    bytes.text(); // Whose it is: long in any version.
    bytes.has_short_lengths = version >= PRODUCE.1;
    bytes.tags();
    bytes.text(); // Of a transaction.
    let acks = bytes.short();
    bytes.int(); // How long it may take.
    let mut all = Vec::new();
    for _ in 0..bytes.many() {
        let topic = bytes.text();
        for _ in 0..bytes.many() {
            let partition = bytes.int();
            let length = bytes.many();
            let mut batch = Bytes::of(&bytes.take(length)[PRODUCER_AT..]);
            let producer = i64::from_be_bytes(batch.take(8).try_into().unwrap());
            let (epoch, sequence) = (batch.short(), batch.int());
            all.push(Produced { topic: topic.clone(), partition, acks, producer, epoch, sequence });
            bytes.tags();
        }
        bytes.tags();
    }
    all
}

pub(crate) fn number(of: &[u8], at: usize) -> [u8; 4] {
    of[at..at + 4].try_into().unwrap()
}

pub(crate) fn short(of: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([of[at], of[at + 1]])
}

/// Where a name ends.
pub(crate) fn behind(of: &[u8], name: &str) -> Option<usize> {
    of.windows(name.len()).position(|part| part == name.as_bytes()).map(|at| at + name.len())
}
