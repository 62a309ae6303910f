//! What lies on brokers and in their tables, held still: a message that an older version has sent is read for as long as it lies there, and programs that
//! are not hapax read it too. Each broker has a `golden.rs`, and its texts in the folder beside it.
//!
//! A test that fails there has changed what others see. Then what they wrote before is read as well, with its old text, and the new one has a text of its
//! own: a text that is there is never changed.
#![allow(clippy::unwrap_used)]

use std::{fmt::Display, sync::Arc};

use hapax_core::{
    envelope::{Destination, Envelope},
    ids::CausationId,
    ports::DeadLetter,
    time::Timestamp,
};

/// With nothing but what every message has.
pub(crate) fn small() -> Envelope {
    let message_id = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
    Envelope::new(message_id, "shop.add-item".parse().unwrap(), r#"{"order":"7"}"#)
}

/// With all that a message may have, and text that brokers do not take as it is.
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
    envelope.occurred_at = Some(Timestamp::from_millis(1_700_000_000_000));
    envelope.due = Some(Timestamp::from_millis(1_700_000_000_001));
    envelope.expires = Some(Timestamp::from_millis(1_700_000_060_000));
    envelope.tenant = Some("acme".parse().unwrap());
    envelope.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
    envelope.reply_to = Some(Destination::parse("endpoint:desk").unwrap());
    envelope.timeout = true;
    envelope.sequence = Some("070707070707070707070707.258".parse().unwrap());
    envelope
}

/// The full message as a record, in hexadecimal digits: in queues of SQL databases.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) const FULL: &str = "7001010a6f7264657220372fc3bc0108696e74656e7420310d73686f702e6164642d6974656d010770726f636573730100f47ac10b58cc\
    4372a5670e02b2c3d479010137106170706c69636174696f6e2f6a736f6e03040473686f700a4bc3b66c6e2031303025056170706c6503\
    326e640c636f6e74656e742d74797065046d696e650e68617061782d73657175656e63651c303730373037303730373037303730373037\
    3037303730372e323538197b226f72646572223a2237222c226e6f7465223a22c3bc227d0180d095ffbc310181d095ffbc3101e0a499ff\
    bc31010461636d65013730302d30616637363531393136636434336464383434386562323131633830333139632d623761643662373136\
    393230333333312d30310100046465736b01";

/// About the full message, with all that a letter may have.
pub(crate) fn letter() -> DeadLetter {
    DeadLetter {
        envelope: Arc::new(full()),
        endpoint: "shop".parse().unwrap(),
        saga: Some("order".parse().unwrap()),
        destination: Some(Destination::parse("topic:shop.item-added").unwrap()),
        reason: "it is\nof no use: 100 %".to_owned(),
        attempts: 5,
        time: Timestamp::from_millis(1_700_000_000_002),
    }
}

/// When the messages are sent.
pub(crate) const fn now() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_002)
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

/// The same with all that is in them.
#[track_caller]
pub(crate) fn same_message(read: &Envelope, sent: &Envelope) {
    assert!(read == sent, "read: {read:+#?}\nsent: {sent:+#?}");
}

#[track_caller]
pub(crate) fn same_letter(read: &DeadLetter, kept: &DeadLetter) {
    assert!(read == kept, "read: {read:+#?}\nkept: {kept:+#?}");
}
