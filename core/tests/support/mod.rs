//! Random envelopes, with the characters and names that formats trip over drawn often.

use hapax_core::{
    envelope::{ContentType, Destination, Envelope, Headers, Outgoing},
    ids::{CausationId, MessageId},
    time::Timestamp,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// A case that fails is printed in its smallest form; nothing is written beside the sources.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

fn character() -> impl Strategy<Value = char> {
    prop_oneof![
        3 => select("% \"&=;:,+?#\\/'{}[]éß€😀\u{a0}\u{2028}\u{feff}\u{fffe}".chars().collect::<Vec<_>>()),
        5 => prop::char::range(' ', '~'),
        1 => any::<char>().prop_map(|c| if c.is_control() { '\u{a0}' } else { c }),
    ]
}

fn text(chars: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = String> {
    prop_oneof![
        6 => vec(character(), chars).prop_map(String::from_iter),
        1 => select(vec!["%25", "%", "a%20b", " ", "%zz", "true", "a=b&c", "-1"]).prop_map(str::to_owned),
    ]
}

/// Short, because ids are many and limits have tests of their own.
fn id_text() -> impl Strategy<Value = String> {
    text(1..=12)
}

fn name() -> impl Strategy<Value = String> {
    vec(select("abcxyzABC0189-_.:/".chars().collect::<Vec<_>>()), 1..=12).prop_map(String::from_iter)
}

pub(crate) fn message_id() -> impl Strategy<Value = MessageId> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(|bytes| MessageId::from(uuid::Uuid::from_bytes(bytes))),
        any::<[u8; 16]>().prop_map(|bytes| uuid::Uuid::from_bytes(bytes).simple().to_string().parse().unwrap()),
        id_text().prop_map(|text| text.parse().unwrap()),
    ]
}

/// The last time that has a text.
const LAST: u64 = 253_402_207_200_000;

fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![4 => 0..=LAST, 1 => select(vec![0, LAST])].prop_map(Timestamp::from_millis)
}

fn destination() -> impl Strategy<Value = Destination> {
    prop_oneof![
        name().prop_map(|name| Destination::Endpoint(name.parse().unwrap())),
        name().prop_map(|name| Destination::Topic(name.parse().unwrap())),
    ]
}

/// Names that some format uses for something else.
const TAKEN: &[&str] = &[
    "content-type",
    "unknown-hapax-later",
    "unknown-hapax-type",
    "unknown-hapax-header-content-type",
    "unknown-hapax-",
    "unknown-ce-id",
    "id",
    "source",
    "type",
    "time",
    "specversion",
    "data",
    "data_base64",
    "datacontenttype",
    "dataschema",
    "subject",
    "correlationid",
    "hapaxmessageid",
    "hapaxdue",
    "hapaxheaders",
    "hapaxlater",
    "hapax_type",
];

fn headers() -> impl Strategy<Value = Headers> {
    let any_name = vec(select("abcxyz0189-_.".chars().collect::<Vec<_>>()), 1..=24).prop_map(String::from_iter);
    let name = prop_oneof![any_name, select(TAKEN).prop_map(str::to_owned)];
    let value = prop_oneof![4 => text(0..=20), 1 => Just("https://schema.example/1".to_owned())];
    vec((name, value), 0..6).prop_map(|pairs| {
        let mut headers = Headers::default();
        for (name, value) in pairs {
            headers.set(&name, &value).unwrap();
        }
        headers
    })
}

fn content_type() -> impl Strategy<Value = ContentType> {
    prop_oneof![
        select(vec![ContentType::JSON, ContentType::MESSAGE_PACK, ContentType::BINCODE]),
        select(vec!["text/plain; charset=utf-8", "APPLICATION/JSON", "application/vnd.x+json;v=1", "%41"])
            .prop_map(|text| ContentType::parse(text).unwrap()),
        vec(prop::char::range(' ', '~'), 1..=20)
            .prop_map(|chars| ContentType::parse(&String::from_iter(chars)).unwrap()),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let json =
        vec!["{}", " {}", "{ \"b\": 1.0, \"a\": [1e3, \"\\u00e9\"] }", "null", "\"\\ud800\"", "1", "[", "{}\n", "{}x"];
    prop_oneof![
        vec(any::<u8>(), 0..40),
        select(json).prop_map(|text| text.as_bytes().to_vec()),
        text(0..=40).prop_map(|text| serde_json::to_vec(&text).unwrap()),
    ]
}

pub(crate) fn envelope() -> impl Strategy<Value = Envelope> {
    let ids = (message_id(), name(), option::of(id_text()), option::of(id_text()), option::of(message_id()));
    let more_ids = (option::of(id_text()), option::of(id_text()), option::of(id_text()), option::of(destination()));
    let content = (content_type(), prop_oneof![Just(1), any::<u8>()], headers(), body());
    let times = (option::of(time()), option::of(time()), option::of(time()), any::<bool>());
    (ids, more_ids, content, times).prop_map(|(ids, more_ids, content, times)| {
        let mut envelope = Envelope::new(ids.0, ids.1.parse().unwrap(), content.3);
        envelope.idempotency_key = ids.2.map(|text| text.parse().unwrap());
        envelope.correlation_id = ids.3.map(|text| text.parse().unwrap());
        envelope.causation_id = ids.4.map(CausationId);
        envelope.partition_key = more_ids.0.map(|text| text.parse().unwrap());
        envelope.tenant = more_ids.1.map(|text| text.parse().unwrap());
        envelope.traceparent = more_ids.2.map(|text| text.parse().unwrap());
        envelope.reply_to = more_ids.3;
        envelope.content_type = content.0;
        envelope.schema = content.1;
        envelope.headers = content.2;
        (envelope.occurred_at, envelope.due, envelope.expires, envelope.timeout) = times;
        envelope
    })
}

pub(crate) fn outgoing() -> impl Strategy<Value = Outgoing> {
    (destination(), envelope())
        .prop_map(|(destination, envelope)| Outgoing { destination, envelope: std::sync::Arc::new(envelope) })
}
