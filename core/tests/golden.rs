//! Stored bytes and hashes, held still. A test that fails here has changed what stored data means: add a record version
//! (or a new hash domain) and keep reading the old one; never change the bytes below.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use hapax_core::{
    codec::record,
    entity::{Entity, LiveTimeout, OutboxEntry},
    envelope::{
        ContentType, Destination, Envelope, Outgoing,
        cloudevents::{self, Source},
        plain,
    },
    ids::{AttemptId, CausationId, DedupKey, EntityKey, Fingerprint, MessageId, Scope, SequenceId, SequenceNumber},
    time::Timestamp,
};

/// [`small`] with a number.
const NUMBERED: &str = "7001000190163d8694739baea5966c26f8ad91000d73686f702e6164642d6974656d000000106170706c69636174696f6e2f6a736f6e\
    01010e68617061782d73657175656e63651c3037303730373037303730373037303730373037303730372e3235380d7b226f72646572223a2237227d00000000000000";
const UUID_V7: &str = "0190163d-8694-739b-aea5-966c26f8ad91";
const UUID_V4: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn small() -> Envelope {
    Envelope::new(UUID_V7.parse().unwrap(), "shop.add-item".parse().unwrap(), r#"{"order":"7"}"#)
}

fn full() -> Envelope {
    let mut envelope =
        Envelope::new(MessageId::parse("order-7").unwrap(), "shop.add-item".parse().unwrap(), "\u{1}\u{2}");
    envelope.idempotency_key = Some("intent".parse().unwrap());
    envelope.correlation_id = Some("process".parse().unwrap());
    envelope.causation_id = Some(CausationId(UUID_V4.parse().unwrap()));
    envelope.partition_key = Some("7".parse().unwrap());
    envelope.content_type = ContentType::MESSAGE_PACK;
    envelope.schema = 3;
    envelope.headers.set("shop", "é").unwrap();
    envelope.headers.set("a.b", "").unwrap();
    envelope.occurred_at = Some(Timestamp::from_millis(1_700_000_000_000));
    envelope.due = Some(Timestamp::from_millis(1_700_000_000_001));
    envelope.expires = Some(Timestamp::from_millis(0));
    envelope.tenant = Some("acme".parse().unwrap());
    envelope.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
    envelope.reply_to = Some(Destination::parse("endpoint:desk").unwrap());
    envelope.timeout = true;
    envelope
}

fn outgoing() -> Outgoing {
    Outgoing { destination: Destination::parse("topic:shop.item-added").unwrap(), envelope: Arc::new(small()) }
}

fn entity() -> Entity {
    let entry = OutboxEntry {
        key: DedupKey::from_bytes([0x11; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([0x22; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0x33; Fingerprint::BYTES]),
        commit: 300,
        saved_at: Timestamp::from_millis(1_700_000_000_000),
        outgoing: vec![
            outgoing(),
            Outgoing { destination: Destination::parse("endpoint:desk").unwrap(), envelope: Arc::new(full()) },
        ],
        reply: Some(1),
        reply_sent: false,
    };
    Entity {
        state: Bytes::from_static(b"\x01\x01{}"),
        completed: true,
        commits: 301,
        timeouts: vec![
            LiveTimeout { message_id: UUID_V7.parse().unwrap(), due: Timestamp::from_millis(1) },
            LiveTimeout { message_id: MessageId::parse("t").unwrap(), due: Timestamp::from_millis(300) },
        ],
        outbox: vec![Arc::new(entry)],
    }
}

/// All there is: a number too, which records have elsewhere.
fn all() -> Envelope {
    Envelope { sequence: Some("070707070707070707070707.258".parse().unwrap()), ..full() }
}

fn entity_key() -> EntityKey {
    let scope = Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
    EntityKey::new(Arc::new(scope), "7".parse().unwrap())
}

/// Written by postcard's rules: lengths and numbers as varints, an enum's variant, then 0 or 1 before an optional field.
const SMALL: &str = "7001000190163d8694739baea5966c26f8ad91000d73686f702e6164642d6974656d000000106170706c69636174696f6e2f\
    6a736f6e01000d7b226f72646572223a2237227d00000000000000";
const FULL: &str = "700101076f726465722d370106696e74656e740d73686f702e6164642d6974656d010770726f636573730100f47ac10b58cc\
    4372a5670e02b2c3d479010137136170706c69636174696f6e2f6d73677061636b03020473686f7002c3a903612e62000201\
    020180d095ffbc310181d095ffbc310100010461636d65013730302d30616637363531393136636434336464383434386562\
    323131633830333139632d623761643662373136393230333333312d30310100046465736b01";
const OUTGOING: &str = "7001010f73686f702e6974656d2d6164646564000190163d8694739baea5966c26f8ad91000d73686f702e6164642d697465\
    6d000000106170706c69636174696f6e2f6a736f6e01000d7b226f72646572223a2237227d00000000000000";
const OUTBOX: &str = "700101ad0202000190163d8694739baea5966c26f8ad9101010174ac02011111111111111111111111111111111111111111\
    111111112222222222222222222222222222222233333333333333333333333333333333ac0280d095ffbc3102010f73686f\
    702e6974656d2d6164646564000190163d8694739baea5966c26f8ad91000d73686f702e6164642d6974656d000000106170\
    706c69636174696f6e2f6a736f6e01000d7b226f72646572223a2237227d0000000000000000046465736b01076f72646572\
    2d370106696e74656e740d73686f702e6164642d6974656d010770726f636573730100f47ac10b58cc4372a5670e02b2c3d4\
    79010137136170706c69636174696f6e2f6d73677061636b03020473686f7002c3a903612e62000201020180d095ffbc3101\
    81d095ffbc310100010461636d65013730302d30616637363531393136636434336464383434386562323131633830333139\
    632d623761643662373136393230333333312d30310100046465736b010101";

/// As messages travel on brokers, whose own golden texts say what they add.
const PLAIN: [(&str, &str); 18] = [
    ("content-type", "application/msgpack"),
    ("hapax-message-id", "order-7"),
    ("hapax-type", "shop.add-item"),
    ("hapax-idempotency-key", "intent"),
    ("hapax-correlation-id", "process"),
    ("hapax-causation-id", UUID_V4),
    ("hapax-partition-key", "7"),
    ("hapax-schema", "3"),
    ("hapax-occurred-at", "2023-11-14T22:13:20.000Z"),
    ("hapax-due", "2023-11-14T22:13:20.001Z"),
    ("hapax-expires", "1970-01-01T00:00:00.000Z"),
    ("hapax-tenant", "acme"),
    ("hapax-traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("hapax-reply-to", "endpoint:desk"),
    ("hapax-timeout", "true"),
    ("hapax-sequence", "070707070707070707070707.258"),
    ("shop", "%C3%A9"),
    ("a.b", ""),
];
const BINARY: [(&str, &str); 21] = [
    ("content-type", "application/msgpack"),
    ("ce-specversion", "1.0"),
    ("ce-id", "order-7"),
    ("ce-source", "/shop"),
    ("ce-hapaxmessageid", "order-7"),
    ("ce-type", "shop.add-item"),
    ("ce-hapaxidempotencykey", "intent"),
    ("ce-correlationid", "process"),
    ("ce-causationid", UUID_V4),
    ("ce-partitionkey", "7"),
    ("ce-hapaxschema", "3"),
    ("ce-time", "2023-11-14T22:13:20.000Z"),
    ("ce-hapaxdue", "2023-11-14T22:13:20.001Z"),
    ("ce-expirytime", "1970-01-01T00:00:00.000Z"),
    ("ce-hapaxtenant", "acme"),
    ("ce-traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("ce-hapaxreplyto", "endpoint:desk"),
    ("ce-hapaxtimeout", "true"),
    ("ce-hapaxsequence", "070707070707070707070707.258"),
    ("ce-shop", "%C3%A9"),
    ("ce-hapaxheaders", "shop&a.b="),
];
const STRUCTURED: &str = r#"{"specversion":"1.0","id":"order-7","source":"/shop","hapaxmessageid":"order-7","type":"shop.add-item","hapaxidempotencykey":"intent","correlationid":"process","causationid":"f47ac10b-58cc-4372-a567-0e02b2c3d479","partitionkey":"7","hapaxschema":3,"time":"2023-11-14T22:13:20.000Z","hapaxdue":"2023-11-14T22:13:20.001Z","expirytime":"1970-01-01T00:00:00.000Z","hapaxtenant":"acme","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","hapaxreplyto":"endpoint:desk","hapaxtimeout":true,"hapaxsequence":"070707070707070707070707.258","shop":"é","hapaxheaders":"shop&a.b=","datacontenttype":"application/msgpack","data_base64":"AQI="}"#;

fn source() -> Source {
    Source::parse("/shop").unwrap()
}

fn owned(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// All of both is printed where they differ.
#[track_caller]
fn same(read: &Envelope, sent: &Envelope) {
    assert!(read == sent, "read {read:+?}\nsent {sent:+?}");
}

#[test]
fn plain_headers_keep_their_names_and_values() {
    assert_eq!(plain::to_headers(&all()), owned(&PLAIN));
    same(&plain::from_headers(PLAIN, full().body, &plain::Defaults::default()).unwrap(), &all());
}

#[test]
fn attributes_of_an_event_keep_their_names_and_values() {
    assert_eq!(cloudevents::to_binary(&all(), &source()), owned(&BINARY));
    same(&cloudevents::from_binary(BINARY, full().body).unwrap(), &all());
}

#[test]
fn an_event_in_json_keeps_its_bytes() {
    assert_eq!(String::from_utf8(cloudevents::to_structured(&all(), &source())).unwrap(), STRUCTURED);
    same(&cloudevents::from_structured(STRUCTURED.as_bytes()).unwrap(), &all());
}

#[test]
fn an_envelope_with_little_keeps_its_bytes() {
    assert_eq!(hex(&record::encode_envelope(&small()).unwrap()), SMALL);
}

#[test]
fn an_envelope_with_everything_keeps_its_bytes() {
    assert_eq!(hex(&record::encode_envelope(&full()).unwrap()), FULL);
}

#[test]
fn an_outgoing_message_keeps_its_bytes() {
    assert_eq!(hex(&record::encode_outgoing(&outgoing()).unwrap()), OUTGOING);
}

#[test]
fn an_outbox_with_everything_keeps_its_bytes() {
    assert_eq!(hex(&record::encode_outbox(&entity()).unwrap()), OUTBOX);
}

/// A bit beside the number of the answer, so that programs from before it can read the rest.
#[test]
fn an_answer_that_has_been_sent_keeps_its_bytes() {
    let mut sent = entity();
    Arc::make_mut(&mut sent.outbox[0]).reply_sent = true;
    let bytes = format!("{}8180808008", OUTBOX.strip_suffix("01").unwrap());
    assert_eq!(hex(&record::encode_outbox(&sent).unwrap()), bytes);
    assert_eq!(record::decode_outbox(sent.state.clone(), &unhex(&bytes)).unwrap(), sent);
}

#[test]
fn an_empty_outbox_keeps_its_bytes() {
    assert_eq!(hex(&record::encode_outbox(&Entity::default()).unwrap()), "700100000000");
}

#[test]
fn bytes_stored_once_are_read_for_ever() {
    assert_eq!(record::decode_envelope(&unhex(SMALL)).unwrap(), small());
    assert_eq!(record::decode_envelope(&unhex(FULL)).unwrap(), full());
    assert_eq!(record::decode_outgoing(&unhex(OUTGOING)).unwrap(), outgoing());
    assert_eq!(record::decode_outbox(entity().state, &unhex(OUTBOX)).unwrap(), entity());
}

#[test]
fn a_dedup_key_by_a_time_ordered_id_keeps_its_bytes() {
    assert_eq!(DedupKey::of(&entity_key(), &small()).to_string(), "0190163d86948f8492cb1b990b92608ea61b69890f5e1c3c");
}

#[test]
fn a_dedup_key_by_a_random_id_keeps_its_bytes() {
    let message = Envelope::new(UUID_V4.parse().unwrap(), "t".parse().unwrap(), "");
    assert_eq!(DedupKey::of(&entity_key(), &message).to_string(), "1f89fa80622dbac66022b0f740ae347c3a9000fc29db2963");
}

#[test]
fn a_dedup_key_by_a_textual_id_keeps_its_bytes() {
    let message = Envelope::new("order-7".parse().unwrap(), "t".parse().unwrap(), "");
    assert_eq!(DedupKey::of(&entity_key(), &message).to_string(), "b4b64fb63fd9f378df2d5f0b734edca372d337f192a47ba6");
}

#[test]
fn a_dedup_key_by_an_idempotency_key_keeps_its_bytes() {
    assert_eq!(DedupKey::of(&entity_key(), &full()).to_string(), "fffffffee15aaeeb5e66e28ff0f0b0f254a26a31ee3d7b4b");
}

/// The last eight bytes are the number: what follows it in its sequence is the next key.
#[test]
fn a_dedup_key_by_a_number_keeps_its_bytes() {
    let sequence = SequenceId::from_bytes([7; SequenceId::BYTES]);
    let mut message = small();
    let mut key = |number| {
        message.sequence = Some(SequenceNumber { sequence, number });
        DedupKey::of(&entity_key(), &message)
    };
    assert_eq!(key(258).to_string(), "ffffffffa6fff236013cb0a749b99e7c0000000000000102");
    assert_eq!(key(258).next_number(), Some(key(259)));
    assert_eq!(key(u64::MAX).next_number(), None);
}

/// Written as a header that no message can have.
#[test]
fn a_number_is_stored_and_read_for_ever() {
    let numbered = Envelope { sequence: Some("070707070707070707070707.258".parse().unwrap()), ..small() };
    let bytes = record::encode_envelope(&numbered).unwrap();
    assert_eq!(hex(&bytes), NUMBERED);
    assert_eq!(record::decode_envelope(&bytes).unwrap(), numbered);
}

#[test]
fn a_fingerprint_keeps_its_bytes() {
    assert_eq!(hex(Fingerprint::of(&small()).as_bytes()), "8a4422f3c8c8204adc577e11a24e2341");
    assert_eq!(hex(Fingerprint::of(&full()).as_bytes()), "4e149ecb75c5f221403ae2b9e1f0ce75");
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
