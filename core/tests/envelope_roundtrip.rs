//! Every format that carries an envelope gives back what it was given, and no bytes make any of them panic.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use hapax_core::{
    codec::record,
    entity::{Entity, LiveTimeout, OutboxEntry},
    envelope::{
        Envelope, Outgoing,
        cloudevents::{self, Source},
        plain::{self, Defaults},
    },
    ids::{AttemptId, DedupKey, Fingerprint},
    time::Timestamp,
};
use proptest::{collection::vec, prelude::*, sample::select};
use support::{config, envelope, message_id, outgoing};

fn source() -> Source {
    Source::parse("https://shop.example/orders").unwrap()
}

fn is_printable_without_blanks(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}

fn entry() -> impl Strategy<Value = Arc<OutboxEntry>> {
    let ids = (any::<[u8; DedupKey::BYTES]>(), any::<[u8; AttemptId::BYTES]>(), any::<[u8; Fingerprint::BYTES]>());
    (ids, any::<u64>(), any::<u64>(), vec(outgoing(), 0..=2), (any::<Option<u16>>(), any::<bool>())).prop_map(
        |((key, attempt, fingerprint), commit, saved_at, outgoing, (reply, reply_sent))| {
            Arc::new(OutboxEntry {
                key: DedupKey::from_bytes(key),
                attempt: AttemptId::from_bytes(attempt),
                fingerprint: Fingerprint::from_bytes(fingerprint),
                commit,
                saved_at: Timestamp::from_millis(saved_at),
                outgoing,
                reply: reply.map(u32::from),
                reply_sent: reply.is_some() && reply_sent,
            })
        },
    )
}

fn entity() -> impl Strategy<Value = Entity> {
    let timeout = (message_id(), any::<u64>())
        .prop_map(|(message_id, due)| LiveTimeout { message_id, due: Timestamp::from_millis(due) });
    (vec(any::<u8>(), 0..20), any::<bool>(), any::<u64>(), vec(timeout, 0..=2), vec(entry(), 0..=1)).prop_map(
        |(state, completed, commits, timeouts, outbox)| Entity {
            state: state.into(),
            completed,
            commits,
            timeouts,
            outbox,
        },
    )
}

/// Header names that mean something, and any others.
fn header_name() -> impl Strategy<Value = String> {
    let known = vec![
        "hapax-message-id",
        "HAPAX-TYPE",
        "hapax-due",
        "hapax-schema",
        "hapax-timeout",
        "hapax-reply-to",
        "Content-Type",
        "hapax-header-",
        "hapax-header-content-type",
        "hapax-later",
        "ce-id",
        "CE-Source",
        "ce-type",
        "ce-specversion",
        "ce-time",
        "ce-hapaxmessageid",
        "ce-hapaxheaders",
        "ce-hapaxdue",
        "ce-",
        "ce-data",
        "",
    ];
    prop_oneof![3 => select(known).prop_map(str::to_owned), 1 => any::<String>()]
}

fn header_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => select(vec!["1.0", "1", "true", "a", "%ff", "%", "\"a\\\"b\"", "\"", "\"\\\"", "endpoint:", "a=%ff&b&a=1&=&"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..40),
        1 => Just(vec![b'x'; 5000]),
    ]
}

fn json_event() -> impl Strategy<Value = String> {
    let name = header_name().prop_map(|name| name.to_lowercase().trim_start_matches("ce-").to_owned());
    let known =
        select(vec!["id", "source", "type", "specversion", "data", "data_base64", "datacontenttype", "hapaxmessageid"])
            .prop_map(str::to_owned);
    let value = select(vec![
        "null",
        "\"1.0\"",
        "\"a\"",
        "1",
        "{}",
        "[[]]",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"text/plain\"",
        "\"YQ\"",
        "true",
        "",
    ]);
    vec((prop_oneof![name, known], value), 0..10).prop_map(|members| {
        let members = members.iter().map(|(name, value)| format!("{}:{value}", serde_json::json!(name)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn plain_headers_and_body_give_the_envelope_back(envelope in envelope()) {
        let headers = plain::to_headers(&envelope);
        let read = plain::from_headers(headers, envelope.body.clone(), &Defaults::default());
        prop_assert_eq!(read, Ok(envelope));
    }

    #[test]
    fn plain_headers_may_change_case_on_the_way(envelope in envelope()) {
        let headers = plain::to_headers(&envelope).into_iter().map(|(name, value)| (name.to_uppercase(), value));
        let read = plain::from_headers(headers, envelope.body.clone(), &Defaults::default());
        prop_assert_eq!(read, Ok(envelope));
    }

    #[test]
    fn values_of_headers_are_printable_ascii_without_blanks(envelope in envelope()) {
        for (name, value) in plain::to_headers(&envelope).into_iter().chain(cloudevents::to_binary(&envelope, &source())) {
            prop_assert!(name == "content-type" || is_printable_without_blanks(&value), "{}: {}", name, value);
        }
    }

    #[test]
    fn a_binary_cloud_event_gives_the_envelope_back(envelope in envelope()) {
        let headers = cloudevents::to_binary(&envelope, &source());
        prop_assert_eq!(cloudevents::from_binary(headers, envelope.body.clone()), Ok(envelope));
    }

    #[test]
    fn attributes_of_a_cloud_event_have_legal_names_and_are_there_once(envelope in envelope()) {
        let headers = cloudevents::to_binary(&envelope, &source());
        let mut names: Vec<_> = headers.iter().filter_map(|(name, _)| name.strip_prefix("ce-")).collect();
        prop_assert_eq!(names.len() + 1, headers.len());
        for name in &names {
            prop_assert!(name.len() <= 20 && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{}", name);
        }
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len() + 1, headers.len());
    }

    #[test]
    fn a_structured_cloud_event_gives_the_envelope_back(envelope in envelope()) {
        let json = cloudevents::to_structured(&envelope, &source());
        prop_assert_eq!(cloudevents::from_structured(&json), Ok(envelope));
    }

    #[test]
    fn records_give_back_what_they_were_given(envelope in envelope(), outgoing in outgoing(), entity in entity()) {
        prop_assert_eq!(record::decode_envelope(&record::encode_envelope(&envelope).unwrap()).unwrap(), envelope);
        prop_assert_eq!(record::decode_outgoing(&record::encode_outgoing(&outgoing).unwrap()).unwrap(), outgoing);
        let bytes = record::encode_outbox(&entity).unwrap();
        prop_assert_eq!(record::decode_outbox(entity.state.clone(), &bytes).unwrap(), entity);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(mut bytes in vec(any::<u8>(), 0..300), framed in any::<bool>()) {
        if framed && bytes.len() > 1 {
            bytes[..2].copy_from_slice(&[0x70, 1]);
        }
        let _ = record::decode_envelope(&bytes);
        let _ = record::decode_outgoing(&bytes);
        let _ = record::decode_outbox(Bytes::new(), &bytes);
        let _ = cloudevents::from_structured(&bytes);
    }

    #[test]
    fn damage_to_good_bytes_makes_no_decoder_panic(entity in entity(), at in any::<usize>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut record = record::encode_outbox(&entity).unwrap();
        damage(&mut record, at, byte, cut);
        let _ = record::decode_outbox(Bytes::new(), &record);
        if let Some(Outgoing { envelope, .. }) = entity.outbox.first().and_then(|entry| entry.outgoing.first()) {
            let mut record = record::encode_envelope(envelope).unwrap();
            damage(&mut record, at, byte, cut);
            let _ = record::decode_envelope(&record);
            let mut json = cloudevents::to_structured(envelope, &source());
            damage(&mut json, at, byte, cut);
            let _ = cloudevents::from_structured(&json);
        }
    }

    #[test]
    fn no_headers_make_a_reader_panic(
        headers in vec((header_name(), header_value()), 0..80),
        id in message_id(),
        json in json_event(),
    ) {
        let mut defaults = Defaults::default();
        let _ = plain::from_headers(headers.clone(), "", &defaults);
        defaults.message_id = Some(id);
        defaults.message_type = Some("t".parse().unwrap());
        let read: Vec<Envelope> = [
            plain::from_headers(headers.clone(), "", &defaults).ok(),
            cloudevents::from_binary(headers, "").ok(),
            cloudevents::from_structured(json.as_bytes()).ok(),
        ]
        .into_iter()
        .flatten()
        .collect();
        // What was read can be passed on in every format, whatever it was.
        for envelope in read {
            let headers = plain::to_headers(&envelope);
            prop_assert_eq!(plain::from_headers(headers, envelope.body.clone(), &Defaults::default()), Ok(envelope.clone()));
            let json = cloudevents::to_structured(&envelope, &source());
            prop_assert_eq!(cloudevents::from_structured(&json), Ok(envelope.clone()));
            prop_assert_eq!(record::decode_envelope(&record::encode_envelope(&envelope).unwrap()).unwrap(), envelope);
        }
    }
}

#[test]
fn the_last_time_gives_itself_back() {
    assert_eq!(Timestamp::parse(&Timestamp::MAX.to_string()), Ok(Timestamp::MAX));
}

fn damage(bytes: &mut Vec<u8>, at: usize, byte: u8, cut: bool) {
    let at = at % bytes.len();
    bytes[at] = byte;
    if cut {
        bytes.truncate(at);
    }
}
