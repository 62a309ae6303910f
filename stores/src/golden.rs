//! What lies in stores, held still: an older version of the program has written it, or writes it beside this one. Each store has a `golden` test, and its
//! texts in the folder beside it.
//!
//! A test that fails there has changed what others read. Then what was written before is read as well, with its old text, and the new one has a text of
//! its own: a text that is there is never changed.
#![allow(clippy::unwrap_used, dead_code, reason = "each store needs a part of it")]

use std::{fmt::Display, sync::Arc};

use bytes::Bytes;
use hapax_core::{
    entity::{DedupEntry, Entity, LiveTimeout, OutboxEntry},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, CausationId, DedupKey, EntityKey, Fingerprint, Scope},
    ports::DeadLetter,
    time::Timestamp,
};

/// In milliseconds since 1970.
pub(crate) const NOW: u64 = 1_700_000_000_000;
/// As records, in hexadecimal digits: what [`entity`] has beside its state, the answer in it, and the messages. The format itself is held still in
/// `core/tests/golden.rs`.
pub(crate) const OUTBOX: &str = "7001000401000190163d8694739baea5966c26f8ad91f4d395ffbc3101040404040404040404040404040404040404040404040404141414\
    14141414141414141414141414333333333333333333333333333333330480d095ffbc3102010f73686f702e6974656d2d61646465640001\
    90163d8694739baea5966c26f8ad91000d73686f702e6164642d6974656d000000106170706c69636174696f6e2f6a736f6e01000d7b226f\
    72646572223a2237227d0000000000000000046465736b010a6f7264657220372fc3bc0108696e74656e7420310d73686f702e6164642d69\
    74656d010770726f636573730100f47ac10b58cc4372a5670e02b2c3d479010137106170706c69636174696f6e2f6a736f6e03040473686f\
    700a4bc3b66c6e2031303025056170706c6503326e640c636f6e74656e742d74797065046d696e650e68617061782d73657175656e63651c\
    3037303730373037303730373037303730373037303730372e323538197b226f72646572223a2237222c226e6f7465223a22c3bc227d0180\
    d095ffbc310181d095ffbc3101e0a499ffbc31010461636d65013730302d3061663736353139313663643433646438343438656232313163\
    3830333139632d623761643662373136393230333333312d30310100046465736b010101";
pub(crate) const ANSWER: &str = "700100046465736b010a6f7264657220372fc3bc0108696e74656e7420310d73686f702e6164642d6974656d010770726f636573730100f4\
    7ac10b58cc4372a5670e02b2c3d479010137106170706c69636174696f6e2f6a736f6e03040473686f700a4bc3b66c6e2031303025056170\
    706c6503326e640c636f6e74656e742d74797065046d696e650e68617061782d73657175656e63651c303730373037303730373037303730\
    3730373037303730372e323538197b226f72646572223a2237222c226e6f7465223a22c3bc227d0180d095ffbc310181d095ffbc3101e0a4\
    99ffbc31010461636d65013730302d30616637363531393136636434336464383434386562323131633830333139632d6237616436623731\
    36393230333333312d30310100046465736b01";
pub(crate) const SMALL: &str = "7001000190163d8694739baea5966c26f8ad91000d73686f702e6164642d6974656d000000106170706c69636174696f6e2f6a736f6e0100\
    0d7b226f72646572223a2237227d00000000000000";
pub(crate) const FULL: &str = "7001010a6f7264657220372fc3bc0108696e74656e7420310d73686f702e6164642d6974656d010770726f636573730100f47ac10b58cc43\
    72a5670e02b2c3d479010137106170706c69636174696f6e2f6a736f6e03040473686f700a4bc3b66c6e2031303025056170706c6503326e\
    640c636f6e74656e742d74797065046d696e650e68617061782d73657175656e63651c303730373037303730373037303730373037303730\
    3730372e323538197b226f72646572223a2237222c226e6f7465223a22c3bc227d0180d095ffbc310181d095ffbc3101e0a499ffbc310104\
    61636d65013730302d30616637363531393136636434336464383434386562323131633830333139632d6237616436623731363932303333\
    33312d30310100046465736b01";

/// With nothing but what every message has.
pub(crate) fn small() -> Envelope {
    let message_id = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
    Envelope::new(message_id, "shop.add-item".parse().unwrap(), r#"{"order":"7"}"#)
}

/// With all that a message may have.
pub(crate) fn full() -> Envelope {
    let message_type = "shop.add-item".parse().unwrap();
    let mut envelope = Envelope::new("order 7/ü".parse().unwrap(), message_type, r#"{"order":"7","note":"ü"}"#);
    envelope.idempotency_key = Some("intent 1".parse().unwrap());
    envelope.correlation_id = Some("process".parse().unwrap());
    envelope.causation_id = Some(CausationId("f47ac10b-58cc-4372-a567-0e02b2c3d479".parse().unwrap()));
    envelope.partition_key = Some("7".parse().unwrap());
    envelope.schema = 3;
    for (name, value) in [("shop", "Köln 100%"), ("apple", "2nd"), ("content-type", "mine")] {
        envelope.headers.set(name, value).unwrap();
    }
    envelope.occurred_at = Some(Timestamp::from_millis(NOW));
    envelope.due = Some(Timestamp::from_millis(NOW + 1));
    envelope.expires = Some(Timestamp::from_millis(NOW + 60_000));
    envelope.tenant = Some("acme".parse().unwrap());
    envelope.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
    envelope.reply_to = Some(Destination::parse("endpoint:desk").unwrap());
    envelope.timeout = true;
    envelope.sequence = Some("070707070707070707070707.258".parse().unwrap());
    envelope
}

pub(crate) fn outgoing(to: &str, envelope: Envelope) -> Outgoing {
    Outgoing { destination: Destination::parse(to).unwrap(), envelope: Arc::new(envelope) }
}

pub(crate) fn key() -> EntityKey {
    let scope = Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
    EntityKey::new(Arc::new(scope), "7".parse().unwrap())
}

/// Of the message number `number` of an entity, with what it sends.
pub(crate) fn entry(number: u8, outgoing: Vec<Outgoing>) -> OutboxEntry {
    OutboxEntry {
        key: DedupKey::from_bytes([number; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([number + 0x10; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0x33; Fingerprint::BYTES]),
        commit: number.into(),
        saved_at: Timestamp::from_millis(NOW),
        outgoing,
        reply: None,
        reply_sent: false,
    }
}

/// With a state, a timeout, and an entry that sends a message and an answer.
pub(crate) fn entity() -> Entity {
    let sends = vec![outgoing("topic:shop.item-added", small()), outgoing("endpoint:desk", full())];
    Entity {
        state: Bytes::from_static(b"\x01\x01{\"items\":[\"tea\"]}"),
        completed: false,
        commits: 4,
        timeouts: vec![LiveTimeout { message_id: small().message_id, due: Timestamp::from_millis(NOW + 500) }],
        outbox: vec![Arc::new(OutboxEntry { reply: Some(1), ..entry(4, sends) })],
    }
}

/// Nothing is left but that it was.
pub(crate) fn tombstone() -> Entity {
    Entity { completed: true, commits: 5, ..Entity::default() }
}

/// Of what is in the outbox of [`entity`], once it is over.
pub(crate) fn mark() -> DedupEntry {
    entity().outbox[0].to_dedup_entry()
}

/// About the full message, with all that a letter may have.
pub(crate) fn letter() -> DeadLetter {
    DeadLetter {
        envelope: Arc::new(full()),
        endpoint: "shop".parse().unwrap(),
        saga: Some("order".parse().unwrap()),
        destination: Some(Destination::parse("topic:shop.item-added").unwrap()),
        reason: "it is\nof no use: 100 %".to_owned(),
        attempts: 5,
        time: Timestamp::from_millis(NOW + 2),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(digits).collect()
}

/// In hexadecimal digits, where one byte that is there very often is told as `BYTE*TIMES`.
pub(crate) fn short_hex(bytes: &[u8]) -> String {
    const OFTEN: usize = 64;
    let part = |run: &[u8]| match run.len() {
        times if times < OFTEN => hex(run),
        times => format!(" {}*{times} ", hex(&run[..1])),
    };
    let text: String = bytes.chunk_by(|one, other| one == other).map(part).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What [`short_hex`] was given.
pub(crate) fn short_unhex(text: &str) -> Vec<u8> {
    let part = |part: &str| match part.split_once('*') {
        Some((byte, times)) => unhex(byte).repeat(times.parse().unwrap()),
        None => unhex(part),
    };
    text.split_whitespace().flat_map(part).collect()
}

/// As a text has it: a line `NAME: VALUE` for each, in which a value of several lines goes on behind two blanks.
pub(crate) fn text(lines: impl IntoIterator<Item = (impl Display, impl Display)>) -> String {
    let lines = lines.into_iter();
    lines.map(|(name, value)| format!("{name}: {}\n", value.to_string().replace('\n', "\n  "))).collect()
}

/// What [`text`] was given.
pub(crate) fn lines(text: &str) -> Vec<(&str, String)> {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        if let (Some(more), Some((_, value))) = (line.strip_prefix("  "), lines.last_mut()) {
            value.push('\n');
            value.push_str(more);
        } else {
            let (name, value) = line.split_once(": ").unwrap();
            lines.push((name, value.to_owned()));
        }
    }
    lines
}

/// Both are printed where they differ.
#[track_caller]
pub(crate) fn same(written: &str, kept: &str) {
    assert!(written == kept, "written:\n{written}\nkept:\n{kept}");
}

/// The same of what was read from what is kept.
#[track_caller]
pub(crate) fn same_read<T: PartialEq + std::fmt::Debug>(read: &T, kept: &T) {
    assert!(read == kept, "read: {read:+#?}\nkept: {kept:+#?}");
}
