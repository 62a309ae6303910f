//! Everything that reads bytes from outside, each given any bytes: it may refuse them, and must neither panic nor take more memory than they are worth.
//! What is read is written again and read as the same, where there is a writer.
//!
//! For the targets of `cargo xtask fuzz`, and for `corpus.rs`, which gives them what was found and kept.

use std::{fmt, str::FromStr, sync::LazyLock};

use hapax::{
    endpoint::Calendar,
    operator::{masked, masked_url, with_causes},
    otel::OtelTraces,
    stores::postgres::outbox::DebeziumConnector,
    trace::Traces,
    transports::fuzzing::parts,
};
use hapax_core::{
    claim::{BODY_IN, Claim},
    codec::record,
    envelope::{
        ContentType, Destination, Envelope,
        cloudevents::{self, Source},
        plain,
    },
    ids::{
        CorrelationId, DedupKey, EndpointName, IdempotencyKey, MessageId, PartitionKey, SagaKey, SagaName, TenantId,
        TraceParent, TypeName,
    },
    ports::{BodyName, BodyRecord},
    seal::{Deflate, Seal, Seals},
};
use tracing::{
    Dispatch, Event, Metadata, Subscriber, dispatcher,
    span::{Attributes, Id, Record},
};

/// A decoder by the name of its target and of its folder in `corpus/`.
pub(crate) type Named = (&'static str, fn(&[u8]));

pub(crate) const ALL: [Named; 13] = [
    ("records", records),
    ("bodies", bodies),
    ("states", states),
    ("stores", stores),
    ("rows", rows),
    ("plain", plain),
    ("cloudevents", cloudevents),
    ("ids", ids),
    ("brokers", brokers),
    ("configuration", configuration),
    ("places", places),
    ("calendars", calendars),
    ("traceparents", traceparents),
];

/// What stores and queues have kept of entities, outgoing messages and envelopes.
pub(crate) fn records(data: &[u8]) {
    if let Ok(entity) = record::decode_outbox(Default::default(), data) {
        let again = record::encode_outbox(&entity).expect("what was read can be written");
        assert_eq!(record::decode_outbox(Default::default(), &again).expect("and read"), entity);
    }
    if let Ok(outgoing) = record::decode_outgoing(data) {
        let again = record::encode_outgoing(&outgoing).expect("what was read can be written");
        assert_eq!(record::decode_outgoing(&again).expect("and read"), outgoing);
    }
    if let Ok(envelope) = record::decode_envelope(data) {
        let again = record::encode_envelope(&envelope).expect("what was read can be written");
        assert_eq!(record::decode_envelope(&again).expect("and read"), envelope);
    }
}

/// Users' states and bodies in their frames, in every codec.
pub(crate) fn states(data: &[u8]) {
    hapax_core::codec::fuzz(data);
}

/// What travels in the place of a body: itself, compressed, or a claim on one that is elsewhere.
pub(crate) fn bodies(data: &[u8]) {
    /// What was compressed may be a thousand times as long.
    const BYTES_MAX: usize = 64 << 10;
    let message = |body: &[u8]| {
        let (id, message_type) = ("1".parse().expect("an id"), "fuzz.body".parse().expect("a type"));
        Envelope::new(id, message_type, body.to_vec())
    };
    let (mut came, deflate) = (message(data), Deflate::from_bytes(0));
    // Not by `Seals`, where a panic is an error like any other.
    if let Ok(opened) = deflate.open(&came, None, BYTES_MAX) {
        assert!(opened.len() <= BYTES_MAX, "{} bytes", opened.len());
        let (mut again, seals) = (message(&opened), Seals::sealed_by(deflate));
        seals.seal(&mut again).expect("what was opened can be sealed");
        assert_eq!(seals.open(&again).expect("and opened").body, opened);
    }
    came.headers.set(BODY_IN, "fuzz").expect("a header");
    if let Some(Ok(claim)) = Claim::of(&came)
        && let Ok(name) = claim.name()
    {
        assert_eq!(BodyName::parse(name.as_str()), Ok(name));
    }
}

/// What stores have of their own around records: items, documents, objects, filters, the server's log.
pub(crate) fn stores(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    match which % 5 {
        0 => {
            let (attributes, rest) = parts(data);
            hapax::stores::dynamodb::fuzz(&attributes, &rest);
        }
        1 => hapax::stores::cosmos::fuzz(data),
        2 => hapax::stores::object::fuzz(data),
        3 => hapax::stores::sqlite::fuzz_filter(data),
        _ => hapax::stores::postgres::outbox::fuzz_log(data),
    }
}

/// Rows of queues in SQL.
pub(crate) fn rows(data: &[u8]) {
    hapax::transports::sqlite_queue::fuzz(data);
}

/// Headers in the plain form, as any program may send them.
pub(crate) fn plain(data: &[u8]) {
    let (headers, body) = parts(data);
    let defaults = plain::Defaults {
        message_id: "default".parse().ok(),
        message_type: "default".parse().ok(),
        content_type: None,
    };
    for defaults in [defaults, plain::Defaults::default()] {
        let Ok(envelope) = plain::from_headers(headers.clone(), body.clone(), &defaults) else { continue };
        let again = plain::from_headers(plain::to_headers(&envelope), body.clone(), &plain::Defaults::default());
        assert_eq!(again.expect("what was read can be written, and read"), envelope);
    }
}

/// Events in both modes.
pub(crate) fn cloudevents(data: &[u8]) {
    let source = Source::parse("fuzz").expect("a source");
    let (headers, body) = parts(data);
    if let Ok(envelope) = cloudevents::from_binary(headers, body.clone()) {
        let again = cloudevents::from_binary(cloudevents::to_binary(&envelope, &source), body);
        assert_eq!(again.expect("what was read can be written, and read"), envelope);
    }
    if let Ok(envelope) = cloudevents::from_structured(data) {
        let again = cloudevents::from_structured(&cloudevents::to_structured(&envelope, &source));
        assert_eq!(again.expect("what was read can be written, and read"), envelope);
    }
}

fn comes_back<T: FromStr + fmt::Display + fmt::Debug + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse::<T>().ok(), Some(value));
    }
}

/// Names and ids, as they come in headers, rows and addresses.
pub(crate) fn ids(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    comes_back::<MessageId>(text);
    comes_back::<EndpointName>(text);
    comes_back::<SagaName>(text);
    comes_back::<SagaKey>(text);
    comes_back::<PartitionKey>(text);
    comes_back::<CorrelationId>(text);
    comes_back::<IdempotencyKey>(text);
    comes_back::<TenantId>(text);
    comes_back::<TraceParent>(text);
    comes_back::<TypeName>(text);
    if let Ok(destination) = Destination::parse(text) {
        assert_eq!(Destination::parse(&destination.to_string()).ok(), Some(destination));
    }
    let _ = ContentType::parse(text);
    if let Some(key) = DedupKey::from_hex(text) {
        assert_eq!(DedupKey::from_hex(&key.to_string()), Some(key));
    }
    if let Ok(record) = BodyRecord::decode(text) {
        let again = BodyRecord::decode(&record.encode()).expect("what was read can be written, and read");
        assert_eq!(again.encode(), record.encode());
    }
}

/// Messages as brokers hand them over, whoever has sent them.
pub(crate) fn brokers(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    match which % 6 {
        5 => hapax::transports::servicebus::fuzz(data),
        0 => hapax::transports::nats::fuzz(data),
        1 => hapax::transports::rabbitmq::fuzz(data),
        2 => hapax::transports::redis::fuzz(data),
        3 => hapax::transports::sqs::fuzz(data),
        #[cfg(feature = "kafka")]
        4 => hapax::transports::kafka::fuzz(data),
        _ => {}
    }
}

/// What a user writes: where something is, and settings of Debezium's connector, a word in each line; and that what is said of it keeps a
/// password to itself.
pub(crate) fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let words: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(url) = words.first() else { return };
    // Behind the first and one more they stand in pairs.
    let connector = words.chunks(2).skip(1).fold(DebeziumConnector::of(hapax::Postgres::options(url)), set);
    drop(connector.to_json());
    drop(connector.sql());
    let mut said = vec![
        hapax::transports::nats::fuzz_url(url),
        hapax::transports::rabbitmq::fuzz_url(url),
        hapax::transports::redis::fuzz_url(url),
        hapax::transports::servicebus::fuzz_url(url),
        format!("{:?}", hapax::Postgres::options(url)),
        format!("{:?}", hapax::MySql::options(url)),
        masked_url(url),
        masked(url),
    ];
    #[cfg(feature = "kafka")]
    said.push(hapax::transports::kafka::fuzz_url(url));
    keeps_its_password(url, &said);
}

/// Where a database is, as a user writes it: by its driver's parser, and with what hapax asks of TLS. What is said of a place that is none, or is
/// refused, keeps a password to itself. Not a file of SQLite, which is looked at only when it is opened.
pub(crate) fn places(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    let mut said = Vec::new();
    for is_trusted in [false, true] {
        let postgres = hapax::Postgres::options(url).danger_unverified_tls(is_trusted).connect_options();
        let mysql = hapax::MySql::options(url).danger_unverified_tls(is_trusted).connect_options();
        said.extend([postgres.err(), mysql.err()].into_iter().flatten().map(|error| with_causes(&error)));
    }
    keeps_its_password(url, &said);
}

/// When something recurs: a cron pattern, and in the next line a time zone.
pub(crate) fn calendars(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (pattern, zone) = text.split_once('\n').unwrap_or((text, "UTC"));
    // It looks for its first occurrence, too; for those by the clocks of the zone an endpoint alone does.
    let Ok(calendar) = Calendar::cron(pattern) else { return };
    if let Ok(calendar) = calendar.zone(zone) {
        assert!(format!("{calendar:?}").starts_with(pattern));
    }
}

/// What a message says of the trace that it was created in, as who joins spans to traces reads it. No other reads it: it is carried.
pub(crate) fn traceparents(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(traceparent) = TraceParent::parse(text) else { return };
    let (id, message_type) = ("1".parse().expect("an id"), "fuzz.traced".parse().expect("a type"));
    let mut came = Envelope::new(id, message_type, "body");
    came.traceparent = Some(traceparent);
    dispatcher::with_default(&LISTENER, || {
        let (span, traces) = (tracing::info_span!("fuzz"), OtelTraces::default());
        assert!(!span.is_disabled(), "nothing is read where nobody listens");
        // As the parent of a span, as a link of one, and as that of who sends it.
        traces.received(&span, &came, 1);
        traces.received(&span, &came, 2);
        traces.sent(&span, &came);
    });
}

/// So that there are spans.
static LISTENER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Listener));

/// Keeps nothing.
struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Nothing that is `said` of `url` holds its password.
fn keeps_its_password(url: &str, said: &[String]) {
    let Some(password) = password(url) else { return };
    for said in said {
        assert!(!said.contains(password), "{said:?} holds {password:?}");
    }
}

/// A setting by its name.
fn set(connector: DebeziumConnector, words: &[String]) -> DebeziumConnector {
    let [name, value] = words else { return connector };
    match name.as_str() {
        "--topic" => connector.topic_replacement(value),
        "--connector-name" => connector.connector_name(value),
        "--slot" => connector.slot(value),
        "--password" => connector.password(value),
        "--header" => connector.headers([value.split_once('=').unwrap_or((value, value))]),
        "--expand-payload" => connector.expand_payload(true),
        _ => connector,
    }
}

/// The password of a URL that is as it should be, if it stands nowhere else and is no word that is said anyway.
fn password(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let (login, place) = rest.split_once('@')?;
    let (user, password) = login.split_once(':')?;
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_it = password.len() >= 8 && password.bytes().any(|byte| byte.is_ascii_digit());
    let stands_alone = ![scheme, user, place].iter().any(|part| part.contains(password));
    (is_it && stands_alone && is_plain(password) && is_plain(user) && is_plain(scheme)).then_some(password)
}
