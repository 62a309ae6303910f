//! Hashes that stand for longer things: what a handled message is remembered under, and what tells two messages of one id apart.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use sha2::{Digest, Sha256};

use super::{EntityKey, ID_BYTES_MAX, IdempotencyKey, InvalidId, NAME_BYTES_MAX, Scope, SequenceNumber};
use crate::envelope::Envelope;

/// Under what a handled message is remembered: endpoint, saga, saga key and the message's identity (its idempotency
/// key, or else its message id), each length-prefixed and hashed.
///
/// All four are needed: without the endpoint one receiver silences another (S55), without saga and key one handler
/// silences another (S56). The hash is SHA-256; 18 bytes of it are kept, after six bytes that are the message id's own
/// time where it has one (so that a store's index grows at its end) and more of the hash where not. A collision is
/// not silent either: the fingerprints differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DedupKey([u8; Self::BYTES]);

/// What a message is known by, see [`DedupKey::identity`]. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Its message id.
    Id,
    /// Its idempotency key: such a message may be kept in mind for longer than others.
    Keyed,
    /// Its [number](SequenceNumber) in a sequence of its sender's: such messages can be kept in mind for ever.
    Numbered,
}

/// Over bytes that are of a cryptographic hash already, or count.
impl Hash for DedupKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (mut middle, mut end) = ([0; 8], [0; 8]);
        middle.copy_from_slice(&self.0[Self::BYTES - 16..Self::BYTES - 8]);
        end.copy_from_slice(&self.0[Self::BYTES - 8..]);
        state.write_u64(u64::from_ne_bytes(middle) ^ u64::from_ne_bytes(end));
    }
}

impl DedupKey {
    /// Length of every dedup key, in bytes.
    pub const BYTES: usize = 24;
    /// Length of what tells identities apart, in bytes.
    const MARK: usize = 4;
    /// The first bytes of a numbered one: behind all times there will be.
    pub const NUMBERED: [u8; Self::MARK] = [0xff; Self::MARK];
    /// The first bytes of one with an idempotency key.
    pub const KEYED: [u8; Self::MARK] = [0xff, 0xff, 0xff, 0xfe];
    /// Where its number begins in a numbered one.
    const NUMBER: usize = Self::BYTES - size_of::<u64>();

    /// The key under which `entity` remembers `message`.
    #[must_use]
    pub fn of(entity: &EntityKey, message: &Envelope) -> Self {
        if let (None, Some(number)) = (&message.idempotency_key, &message.sequence) {
            return Self::numbered(entity.scope(), number);
        }
        let mut preimage = Preimage::new(b"hapax dedup\0");
        preimage.prefixed(entity.scope().endpoint.as_str());
        preimage.prefixed(entity.scope().saga.as_str());
        preimage.prefixed(entity.key().as_str());
        let time = if let Some(key) = &message.idempotency_key {
            preimage.prefixed("idempotency key");
            preimage.prefixed(key.as_str());
            None // Copies of one intent differ in message id and so in its time.
        } else {
            preimage.prefixed("message id");
            message.message_id.add_to(&mut preimage);
            message.message_id.time_prefix()
        };
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&preimage.hash()[..Self::BYTES]);
        if let Some(time) = time {
            bytes[..6].copy_from_slice(&time);
        } else if message.idempotency_key.is_some() {
            bytes[..Self::MARK].copy_from_slice(&Self::KEYED);
        }
        Self(bytes)
    }

    /// The key of a message that its sender has numbered: its sequence as `scope` sees it, and behind that the number, so that
    /// numbers that follow one another are keys that do. Neither the saga key nor the message id is in it: of one number there
    /// is one message, and its saga key is a function of it.
    fn numbered(scope: &Scope, number: &SequenceNumber) -> Self {
        let mut preimage = Preimage::new(b"hapax numbered\0");
        preimage.prefixed(scope.endpoint.as_str());
        preimage.prefixed(scope.saga.as_str());
        preimage.push(number.sequence.as_bytes());
        let mut bytes = [0; Self::BYTES];
        bytes[..Self::MARK].copy_from_slice(&Self::NUMBERED);
        bytes[Self::MARK..Self::NUMBER].copy_from_slice(&preimage.hash()[..Self::NUMBER - Self::MARK]);
        bytes[Self::NUMBER..].copy_from_slice(&number.number.to_be_bytes());
        Self(bytes)
    }

    /// What the message was known by. Others have these first bytes too, rarely: by chance, or with a time eight thousand years
    /// ahead. They are remembered for longer than they have to be.
    #[must_use]
    pub fn identity(&self) -> Identity {
        match self.0.first_chunk() {
            Some(&Self::NUMBERED) => Identity::Numbered,
            Some(&Self::KEYED) => Identity::Keyed,
            _ => Identity::Id,
        }
    }

    /// The key right behind this one, if both are [numbered](Identity::Numbered) in one sequence.
    #[must_use]
    pub fn next_number(&self) -> Option<Self> {
        let (sequence, number) = self.0.split_at(Self::NUMBER);
        let next = u64::from_be_bytes(number.try_into().ok()?).checked_add(1)?;
        let mut bytes = self.0;
        bytes[..Self::NUMBER].copy_from_slice(sequence);
        bytes[Self::NUMBER..].copy_from_slice(&next.to_be_bytes());
        (self.identity() == Identity::Numbered).then_some(Self(bytes))
    }

    /// A key from its digits, as `Display` writes them; `None` for anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }

    /// A key from bytes that a store has kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes to store; their order is the order of the keys.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// A name for an outside effect of handling this message, see [`Context::idempotency_key`](crate::Context::idempotency_key).
    pub(crate) fn named(&self, name: &str) -> String {
        let mut hash = Sha256::new_with_prefix(b"hapax idempotency key\0");
        hash.update(self.0);
        prefixed(&mut hash, name);
        hex(&hash.finalize()[..16])
    }
}

impl IdempotencyKey {
    /// The key `key` of one scope: for names that come from outside and are somebody's own, as the `Idempotency-Key` of an HTTP
    /// request is of its caller and its route. The same only where all parts are the same; 64 hexadecimal digits, whatever the parts.
    ///
    /// ```
    /// # use hapax_core::ids::IdempotencyKey;
    /// let ann = IdempotencyKey::scoped(&["ann", "POST /orders"], "order-1");
    /// assert_eq!(ann, IdempotencyKey::scoped(&["ann", "POST /orders"], "order-1"));
    /// assert_ne!(ann, IdempotencyKey::scoped(&["bob", "POST /orders"], "order-1"));
    /// ```
    #[must_use]
    pub fn scoped(scope: &[&str], key: &str) -> Self {
        let mut hash = Sha256::new_with_prefix(b"hapax scoped key\0");
        for part in scope {
            prefixed(&mut hash, part);
        }
        prefixed(&mut hash, key);
        Self(hex(&hash.finalize()).into())
    }
}

impl fmt::Display for DedupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for DedupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a message says: a hash over its type and its body bytes as they came. Two messages of one identity with
/// different fingerprints are a sender's mistake and never dropped in silence (S59).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; Self::BYTES]);

impl Fingerprint {
    /// Length of every fingerprint, in bytes.
    pub const BYTES: usize = 16;

    /// The fingerprint of `message`.
    #[must_use]
    pub fn of(message: &Envelope) -> Self {
        let mut preimage = Preimage::new(b"");
        preimage.prefixed(message.message_type.as_str());
        // In one piece where there is room for it: a hash that is fed in pieces copies each of them first.
        let hash: [u8; 32] = if preimage.has_room_for(message.body.len()) {
            preimage.push(&message.body);
            preimage.hash()
        } else {
            let mut hash = preimage.begin();
            hash.update(&message.body);
            hash.finalize().into()
        };
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&hash[..Self::BYTES]);
        Self(bytes)
    }

    /// A fingerprint from bytes that a store has kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    /// As hexadecimal digits, which [`from_str`](std::str::FromStr::from_str) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl std::str::FromStr for Fingerprint {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        unhex(text).map(Self).ok_or_else(|| InvalidId::new("fingerprint", "is not 32 hexadecimal digits"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One save of one handled message. Kept in the outbox entry and in the dedup entry, so that nobody removes or
/// finishes the work of another attempt (S34).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId([u8; Self::BYTES]);

impl AttemptId {
    /// Length of every attempt id, in bytes.
    pub const BYTES: usize = 16;

    /// An attempt id from its digits, as `Display` writes them; `None` for anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }

    /// An attempt id from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) fn prefixed(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

/// What is hashed into an id, put together first: many small updates of a hash cost more than the hash itself, and ids
/// are made several times a message.
pub(super) struct Preimage {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl Preimage {
    /// A domain, two names, two ids and their length prefixes.
    const BYTES_MAX: usize = 2 * (NAME_BYTES_MAX + ID_BYTES_MAX) + 128;

    pub(super) fn new(domain: &[u8]) -> Self {
        let mut preimage = Self { bytes: [0; Self::BYTES_MAX], len: 0 };
        preimage.push(domain);
        preimage
    }

    /// Appends `bytes`. The limits of the ids keep it within its array; beyond it would panic, never truncate.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    const fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= Self::BYTES_MAX - self.len
    }

    pub(super) fn prefixed(&mut self, text: &str) {
        self.push(&(text.len() as u64).to_be_bytes());
        self.push(text.as_bytes());
    }

    pub(super) fn hash(&self) -> [u8; 32] {
        Sha256::digest(&self.bytes[..self.len]).into()
    }

    /// A hash that has begun with it.
    fn begin(&self) -> Sha256 {
        Sha256::new_with_prefix(&self.bytes[..self.len])
    }
}

/// What [`hex`] wrote. Not by the standard library's parser, which takes a sign for a digit.
pub(super) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes?.try_into().ok()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kept as long as what it names is remembered: a change of these digits doubles effects during an upgrade.
    #[test]
    fn a_scoped_key_keeps_its_digits_and_tells_its_parts_apart() {
        let key = IdempotencyKey::scoped(&["ann", "POST /orders"], "order-1");
        assert_eq!(key.as_str(), "eb4dc1ff9508eb259134c5384e789210c052f96b21a30d2e3cecd7dee446b7de");
        for (scope, other) in [
            (&["annP", "OST /orders"][..], "order-1"),
            (&["annPOST /orders"], "order-1"),
            (&["ann", "POST /orders", "order-1"], ""),
            (&["ann"], "order-1"),
        ] {
            assert_ne!(IdempotencyKey::scoped(scope, other), key, "{scope:?} {other}");
        }
    }

    /// An outside service remembers it: whoever handles the message again after an upgrade has to be known there.
    #[test]
    fn the_key_of_an_outside_effect_keeps_its_digits() {
        let named = |name| DedupKey::from_bytes([7; DedupKey::BYTES]).named(name);
        assert_eq!(named("mail"), "fea05ea2d5113d2b14db5e3cb0acdc72");
        assert_ne!(named("mail"), named("card"));
    }

    #[test]
    fn a_key_is_read_from_the_digits_that_it_is_written_in_and_from_nothing_else() {
        let key = DedupKey::from_bytes(std::array::from_fn(|byte| 11 * byte as u8));
        let text = key.to_string();
        assert_eq!(DedupKey::from_hex(&text), Some(key));
        let signed = format!("+f{}", &text[2..]);
        let split = format!("é{}", &text[2..]);
        for other in ["", &text[1..], &text[2..], &format!("{text}00"), &signed, &split, &text.replace('b', "g")] {
            assert_eq!(DedupKey::from_hex(other), None, "{other}");
        }
    }
}
