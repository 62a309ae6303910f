//! Ids are parsed where they enter, kept letter by letter, and never run into one another (S55, S56, S58).
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use hapax_core::{
    envelope::{
        ContentType, Destination, Envelope, HEADER_NAME_BYTES_MAX, HEADER_VALUE_BYTES_MAX, HEADERS_MAX, Headers,
    },
    ids::{
        CausationId, CorrelationId, DedupKey, EndpointName, EntityKey, Fingerprint, ID_BYTES_MAX, IdempotencyKey,
        InvalidId, MessageId, NAME_BYTES_MAX, PartitionKey, SagaKey, SagaName, Scope, TenantId, TraceParent, TypeName,
    },
    time::Timestamp,
};

type Parse = fn(&str) -> Result<String, InvalidId>;

fn parse<T: std::str::FromStr<Err = InvalidId> + ToString>(text: &str) -> Result<String, InvalidId> {
    text.parse::<T>().map(|id| id.to_string())
}

const NAMES: [(&str, Parse); 3] =
    [("endpoint name", parse::<EndpointName>), ("saga name", parse::<SagaName>), ("message type", parse::<TypeName>)];

const IDS: [(&str, Parse); 7] = [
    ("message id", parse::<MessageId>),
    ("saga key", parse::<SagaKey>),
    ("idempotency key", parse::<IdempotencyKey>),
    ("correlation id", parse::<CorrelationId>),
    ("partition key", parse::<PartitionKey>),
    ("tenant id", parse::<TenantId>),
    ("traceparent", parse::<TraceParent>),
];

fn all() -> impl Iterator<Item = (&'static str, Parse, usize)> {
    let names = NAMES.into_iter().map(|(what, parse)| (what, parse, NAME_BYTES_MAX));
    names.chain(IDS.into_iter().map(|(what, parse)| (what, parse, ID_BYTES_MAX)))
}

#[test]
fn empty_text_is_no_id() {
    for (what, parse, _) in all() {
        // Of a name it says what may be in one, too.
        let error = parse("").unwrap_err().to_string();
        assert!(error.starts_with(&format!("{what} is empty")), "{error}");
    }
}

#[test]
fn an_id_may_be_as_long_as_the_limit_and_no_longer() {
    for (what, parse, max) in all() {
        assert!(parse(&"x".repeat(max)).is_ok(), "{what}");
        let error = parse(&"x".repeat(max + 1)).unwrap_err().to_string();
        assert!(error.starts_with(what) && error.contains(&max.to_string()), "{error}");
    }
}

#[test]
fn the_limit_of_an_id_counts_bytes_not_characters() {
    for (what, parse) in IDS {
        assert!(parse(&"é".repeat(ID_BYTES_MAX / 2)).is_ok(), "{what}");
        assert!(parse(&"é".repeat(ID_BYTES_MAX / 2 + 1)).is_err(), "{what}");
    }
}

#[test]
fn an_id_holds_no_control_character() {
    for (what, parse, _) in all() {
        for control in ['\0', '\n', '\r', '\t', '\u{1b}', '\u{7f}', '\u{85}', '\u{9f}'] {
            for text in [format!("a{control}b"), format!("{control}a"), format!("a{control}")] {
                let error = parse(&text).unwrap_err().to_string();
                assert!(error.starts_with(what), "{error}");
                assert!(!error.contains(control), "an error must not print {control:?}");
            }
        }
    }
}

#[test]
fn a_name_holds_ascii_letters_digits_and_few_marks() {
    for (what, parse) in NAMES {
        assert!(parse("aZ09-_.:/").is_ok(), "{what}");
        for malformed in ["a b", " a", "a ", "é", "a%", "a|b", "a\\b", "a\"b", "a'b", "a,b", "a=b", "a;b", "😀"] {
            assert!(parse(malformed).unwrap_err().to_string().starts_with(what), "{what} {malformed:?}");
        }
    }
}

#[test]
fn an_id_keeps_its_text_one_to_one() {
    for (what, parse) in IDS {
        for text in [" a ", "A", "a", "é", "e\u{301}", "%25", "\u{feff}a", "00", "0"] {
            assert_eq!(parse(text).unwrap(), text, "{what}");
        }
    }
}

#[test]
fn a_message_id_keeps_the_way_its_uuid_is_written() {
    let canonical = "0190163d-8694-739b-aea5-966c26f8ad91";
    let others = [
        canonical.to_uppercase(),
        canonical.replace('-', ""),
        format!("{{{canonical}}}"),
        format!("urn:uuid:{canonical}"),
        "0190163D-8694-739b-aea5-966c26f8ad91".to_owned(),
    ];
    let first = MessageId::parse(canonical).unwrap();
    assert_eq!(first.to_string(), canonical);
    for text in others {
        let other = MessageId::parse(&text).unwrap();
        assert_eq!(other.to_string(), text);
        assert_ne!(other, first, "{text}");
    }
}

#[test]
fn a_message_id_from_a_uuid_is_the_one_from_its_text() {
    let uuid = uuid::Uuid::from_u128(0x0190_163d_8694_739b_aea5_966c_26f8_ad91);
    assert_eq!(MessageId::from(uuid), MessageId::parse(&uuid.to_string()).unwrap());
}

#[test]
fn random_message_ids_differ_and_come_in_the_order_of_time() {
    let ids: Vec<_> = (0..100).map(|_| MessageId::random()).collect();
    assert!(ids.is_sorted());
    assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
}

#[test]
fn a_destination_reads_what_it_writes_and_nothing_else() {
    for text in ["endpoint:shop", "topic:shop.add-item", "topic:a:b"] {
        assert_eq!(Destination::parse(text).unwrap().to_string(), text);
    }
    for malformed in ["", "shop", "endpoint", "endpoint:", "Endpoint:shop", "queue:shop", "topic:a b", "\0:\0"] {
        let error = Destination::parse(malformed).unwrap_err().to_string();
        assert!(!error.contains('\0'), "{error}");
    }
}

#[test]
fn a_content_type_is_printable_ascii() {
    assert_eq!(ContentType::parse("application/json").unwrap(), ContentType::JSON);
    assert_eq!(ContentType::parse("text/plain; charset=utf-8").unwrap().as_str(), "text/plain; charset=utf-8");
    for malformed in ["", "text/é", "text/plain\n", &"x".repeat(101)] {
        assert!(ContentType::parse(malformed).is_err(), "{malformed:?}");
    }
}

#[test]
fn headers_refuse_what_brokers_or_the_envelope_could_not_carry() {
    let mut headers = Headers::default();
    let long_name = "n".repeat(HEADER_NAME_BYTES_MAX + 1);
    for name in ["", "Upper", "a b", "é", "hapax-type", "hapax-", "ce-id", "ce-", "a:b", &long_name] {
        assert!(headers.set(name, "v").is_err(), "{name:?}");
    }
    for value in ["\n", "a\0", "\u{85}", &"v".repeat(HEADER_VALUE_BYTES_MAX + 1)] {
        assert!(headers.set("n", value).is_err(), "{value:?}");
    }
    assert!(headers.is_empty());
    for index in 0..HEADERS_MAX {
        headers.set(&format!("n{index}"), "").unwrap();
    }
    assert!(headers.set("one-more", "").is_err());
    headers.set("n0", "changed").unwrap();
    assert_eq!(headers.value("n0"), Some("changed"));
    assert_eq!(headers.iter().count(), HEADERS_MAX);
}

fn key(endpoint: &str, saga: &str, key: &str, message: &Envelope) -> DedupKey {
    let scope = Scope { endpoint: endpoint.parse().unwrap(), saga: saga.parse().unwrap() };
    DedupKey::of(&EntityKey::new(Arc::new(scope), key.parse().unwrap()), message)
}

fn message(id: &str) -> Envelope {
    Envelope::new(id.parse().unwrap(), "t".parse().unwrap(), "{}")
}

fn intent(id: &str, idempotency_key: &str) -> Envelope {
    Envelope { idempotency_key: Some(idempotency_key.parse().unwrap()), ..message(id) }
}

#[test]
fn messages_are_remembered_for_each_endpoint_saga_key_and_identity_alone() {
    let keys = [
        key("e", "s", "k", &message("i")),
        key("f", "s", "k", &message("i")),
        key("e", "t", "k", &message("i")),
        key("e", "s", "l", &message("i")),
        key("e", "s", "k", &message("j")),
        key("e", "s", "k", &message("I")),
        key("e", "s", "k", &intent("i", "i")),
        key("e", "s", "k", &intent("i", "j")),
        // The same texts in other places, and with their borders shifted.
        key("s", "e", "k", &message("i")),
        key("e", "k", "s", &message("i")),
        key("es", "k", "i", &message("i")),
        key("e", "sk", "i", &message("i")),
        key("a", "bc", "k", &message("i")),
        key("ab", "c", "k", &message("i")),
        key("e", "a", "bc", &message("i")),
        key("e", "ab", "c", &message("i")),
        key("e", "s", "a", &message("bc")),
        key("e", "s", "ab", &message("c")),
        key("e", "s", "a", &intent("i", "bc")),
        key("e", "s", "ab", &intent("i", "c")),
        key("e", "s", "a|b", &message("c")),
        key("e", "s", "a", &message("b|c")),
        key("e", "s", "k", &message("message id")),
        key("e", "s", "message id", &message("k")),
        key("e", "s", "k", &intent("i", "message id")),
    ];
    let different: std::collections::HashSet<_> = keys.iter().collect();
    assert_eq!(different.len(), keys.len());
}

#[test]
fn copies_of_one_message_are_remembered_as_one() {
    let mut copy = message("i");
    copy.body = "other".into();
    copy.message_type = "u".parse().unwrap();
    copy.headers.set("x", "y").unwrap();
    copy.occurred_at = Some(Timestamp::from_millis(1));
    copy.due = Some(Timestamp::from_millis(2));
    copy.causation_id = Some(CausationId("c".parse().unwrap()));
    copy.correlation_id = Some("c".parse().unwrap());
    assert_eq!(key("e", "s", "k", &copy), key("e", "s", "k", &message("i")));
}

#[test]
fn one_intent_under_two_message_ids_is_remembered_as_one() {
    let (first, second) = (MessageId::random().to_string(), "0190163d-8694-739b-aea5-966c26f8ad91");
    assert_eq!(key("e", "s", "k", &intent(&first, "once")), key("e", "s", "k", &intent(second, "once")));
}

#[test]
fn dedup_keys_of_time_ordered_ids_come_in_the_order_of_time() {
    let v7 = |millis: u64| {
        let seconds = uuid::Timestamp::from_unix(uuid::NoContext, millis / 1000, (millis % 1000 * 1_000_000) as u32);
        uuid::Uuid::new_v7(seconds).to_string()
    };
    let millis = [1, 2, 1_000, 1_700_000_000_000, 1_700_000_000_001, 2_000_000_000_000];
    let keys: Vec<_> = millis.iter().map(|&millis| key("e", "s", "k", &message(&v7(millis)))).collect();
    assert!(keys.is_sorted());
    assert_eq!(keys[3].as_bytes()[..6], 1_700_000_000_000_u64.to_be_bytes()[2..]);
}

#[test]
fn dedup_keys_of_one_millisecond_differ() {
    let ids = ["0190163d-8694-739b-aea5-966c26f8ad91", "0190163d-8694-739b-aea5-966c26f8ad92"];
    assert_ne!(key("e", "s", "k", &message(ids[0])), key("e", "s", "k", &message(ids[1])));
}

#[test]
fn an_id_in_upper_case_is_text_and_has_no_time() {
    let id = "0190163D-8694-739B-AEA5-966C26F8AD91";
    let key = key("e", "s", "k", &message(id));
    assert_ne!(key.as_bytes()[..6], [0x01, 0x90, 0x16, 0x3d, 0x86, 0x94]);
}

#[test]
fn a_fingerprint_is_of_type_and_body_and_nothing_else() {
    let mut copy = message("j");
    copy.headers.set("x", "y").unwrap();
    copy.content_type = ContentType::MESSAGE_PACK;
    assert_eq!(Fingerprint::of(&copy), Fingerprint::of(&message("i")));

    let of = |message_type: &str, body: &'static str| {
        Fingerprint::of(&Envelope::new("i".parse().unwrap(), message_type.parse().unwrap(), body))
    };
    assert_ne!(of("t", "{}"), of("u", "{}"));
    assert_ne!(of("t", "{}"), of("t", "{} "));
    assert_ne!(of("a", "bc"), of("ab", "c"));
}
