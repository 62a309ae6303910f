//! Frames, schema versions and upcasts. Here, because [`Schema`] is not public.
#![allow(clippy::unwrap_used)]

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Codec, CodecError, Older};
use crate::{
    context::decode,
    envelope::{ContentType, Envelope},
    saga::{Message, Saga, message_schema, state_schema},
};

/// Written by the program of yesterday, under schema version 1.
#[derive(Serialize, Deserialize)]
struct OrderV1 {
    item: String,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Order {
    items: Vec<String>,
    count: u32,
}

fn upcast_order(older: Older<'_>) -> Result<Order, CodecError> {
    match older.schema() {
        1 => Ok(Order { items: vec![older.decode::<OrderV1>()?.item], count: 1 }),
        _ => older.unknown(),
    }
}

impl Saga for Order {
    const NAME: &'static str = "order";
    const SCHEMA: u8 = 2;
    fn upcast(older: Older<'_>) -> Result<Self, CodecError> {
        upcast_order(older)
    }
}

impl Message for Order {
    const TYPE: &'static str = "shop.order";
    const SCHEMA: u8 = 2;
    fn upcast(older: Older<'_>) -> Result<Self, CodecError> {
        upcast_order(older)
    }
}

/// A type that never had another schema.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Plain {}

impl Saga for Plain {
    const NAME: &'static str = "plain";
    const SCHEMA: u8 = 3;
}

impl Message for Plain {
    const TYPE: &'static str = "shop.plain";
    const SCHEMA: u8 = 3;
}

fn order() -> Order {
    Order { items: vec!["tea".to_owned()], count: 300 }
}

fn golden<T: Saga + PartialEq + std::fmt::Debug>(codec: Codec, state: &T, bytes: &[u8]) {
    assert_eq!(state_schema::<T>().write_framed(codec, state).unwrap(), bytes);
    assert_eq!(state_schema::<T>().read_framed(bytes).unwrap(), *state);
}

#[test]
fn framed_json_keeps_its_bytes() {
    golden(Codec::Json, &order(), b"\x01\x02{\"items\":[\"tea\"],\"count\":300}");
}

#[cfg(feature = "messagepack")]
#[test]
fn framed_message_pack_keeps_its_bytes() {
    golden(Codec::MessagePack, &order(), b"\x02\x02\x82\xa5items\x91\xa3tea\xa5count\xcd\x01\x2c");
}

#[cfg(feature = "bincode")]
#[test]
fn framed_bincode_keeps_its_bytes() {
    golden(Codec::Bincode, &order(), b"\x03\x02\x01\x03tea\xfb\x2c\x01");
}

#[test]
fn state_of_an_unknown_codec_is_an_error() {
    for id in [0, 4, b'{', 0x70] {
        let error = state_schema::<Order>().read_framed(&[id, 2, b'{', b'}']).unwrap_err();
        assert!(matches!(error, CodecError::UnknownCodec { id: found } if found == id), "{error}");
    }
}

#[test]
fn state_too_short_for_a_frame_is_an_error() {
    for bytes in [&[][..], &[1]] {
        let error = state_schema::<Order>().read_framed(bytes).unwrap_err();
        assert!(matches!(error, CodecError::Truncated { bytes: found } if found == bytes.len()), "{error}");
    }
}

#[test]
fn state_cut_short_is_an_error() {
    for &codec in Codec::ALL {
        let whole = state_schema::<Order>().write_framed(codec, &order()).unwrap();
        for length in 2..whole.len() {
            let error = state_schema::<Order>().read_framed(&whole[..length]).unwrap_err();
            assert!(matches!(error, CodecError::Invalid(_)), "{codec:?} {length}: {error}");
        }
    }
}

fn left_over(codec: Codec) -> CodecError {
    let whole = state_schema::<Order>().write_framed(codec, &order()).unwrap();
    state_schema::<Order>().read_framed(&[&whole[..], b"\x01"].concat()).unwrap_err()
}

#[test]
fn state_with_bytes_left_over_is_an_error() {
    assert!(matches!(left_over(Codec::Json), CodecError::Invalid(_)));
    #[cfg(feature = "bincode")]
    assert!(matches!(left_over(Codec::Bincode), CodecError::Invalid(_)));
}

#[cfg(feature = "messagepack")]
#[test]
fn message_pack_state_with_bytes_left_over_is_an_error() {
    assert!(matches!(left_over(Codec::MessagePack), CodecError::Invalid(_)));
}

fn older_state<T: Serialize>(codec: Codec, state: &T) -> Vec<u8> {
    let mut framed = vec![codec.id(), 1];
    codec.encode(state, &mut framed).unwrap();
    framed
}

#[test]
fn older_state_is_upcast() {
    for &codec in Codec::ALL {
        let framed = older_state(codec, &OrderV1 { item: "tea".to_owned() });
        let state = state_schema::<Order>().read_framed(&framed).unwrap();
        assert_eq!(state, Order { items: vec!["tea".to_owned()], count: 1 }, "{codec:?}");
    }
}

#[test]
fn older_state_may_be_looked_at_as_a_json_value() {
    let framed = older_state(Codec::Json, &OrderV1 { item: "tea".to_owned() });
    let older = Older { what: "order", codec: Codec::Json, schema: 1, known: 2, bytes: &framed[2..] };
    assert_eq!(older.decode::<serde_json::Value>().unwrap()["item"], "tea");
}

fn unknown_schema<T: std::fmt::Debug>(read: Result<T, CodecError>, what: &str, found: u8) {
    match read.unwrap_err() {
        CodecError::UnknownSchema { what: of, found: version, .. } => assert_eq!((of, version), (what, found)),
        other => panic!("{other}"),
    }
}

#[test]
fn newer_state_is_an_error() {
    unknown_schema(state_schema::<Order>().read_framed(b"\x01\x03{\"items\":[],\"count\":0}"), "order", 3);
}

#[test]
fn older_state_without_a_way_up_is_an_error() {
    unknown_schema(state_schema::<Order>().read_framed(b"\x01\x00{\"items\":[],\"count\":0}"), "order", 0);
    unknown_schema(state_schema::<Plain>().read_framed(b"\x01\x02{}"), "plain", 2);
}

#[test]
fn older_state_that_is_damaged_is_an_error() {
    let error = state_schema::<Order>().read_framed(b"\x01\x01{\"item\":").unwrap_err();
    assert!(matches!(error, CodecError::Invalid(_)), "{error}");
}

fn envelope(schema: u8, body: &'static str) -> Envelope {
    let mut envelope = Envelope::new("m".parse().unwrap(), "shop.order".parse().unwrap(), body);
    envelope.schema = schema;
    envelope
}

fn is_permanent<M: Message + std::fmt::Debug>(envelope: &Envelope) -> bool {
    decode::<M>(envelope).unwrap_err().is_permanent()
}

#[test]
fn a_message_of_this_schema_is_read() {
    assert_eq!(decode::<Order>(&envelope(2, r#"{"items":["tea"],"count":300}"#)).unwrap(), order());
}

#[test]
fn an_older_message_is_upcast() {
    let upcast = decode::<Order>(&envelope(1, r#"{"item":"tea"}"#)).unwrap();
    assert_eq!(upcast, Order { items: vec!["tea".to_owned()], count: 1 });
}

#[test]
fn a_newer_message_waits_for_the_program_that_knows_it() {
    unknown_schema(message_schema::<Order>().read(Codec::Json, 3, b"{}"), "shop.order", 3);
    assert!(!is_permanent::<Order>(&envelope(3, r#"{"items":["tea"],"count":300}"#)));
}

#[test]
fn an_older_message_without_a_way_up_waits_for_a_program_that_has_one() {
    assert!(!is_permanent::<Plain>(&envelope(2, "{}")));
    assert!(!is_permanent::<Order>(&envelope(0, "{}")));
}

#[test]
fn a_message_of_an_unknown_codec_waits_for_a_program_that_has_it() {
    let mut envelope = envelope(2, "{}");
    envelope.content_type = ContentType::parse("application/cbor").unwrap();
    assert!(!is_permanent::<Order>(&envelope));
}

#[test]
fn a_malformed_message_is_a_permanent_error() {
    assert!(is_permanent::<Order>(&envelope(2, r#"{"items":"#)));
    assert!(is_permanent::<Order>(&envelope(1, r#"{"items":[]}"#)));
}

#[test]
fn a_message_with_more_fields_than_this_program_knows_is_read() {
    fn round_trip<A: Serialize, B: DeserializeOwned>(codec: Codec, newer: &A) -> B {
        let mut bytes = Vec::new();
        codec.encode(newer, &mut bytes).unwrap();
        codec.decode(&bytes).unwrap()
    }
    #[derive(Serialize)]
    struct Newer {
        added: u32,
        item: String,
    }
    let named = Codec::ALL.iter().filter(|codec| codec.id() != 3); // bincode is positional, as its documentation says.
    for &codec in named {
        let read: OrderV1 = round_trip(codec, &Newer { added: 1, item: "tea".to_owned() });
        assert_eq!(read.item, "tea");
    }
}

/// A type that holds itself, of which a body can hold as many as it has bytes.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Deep {
    inner: Option<Box<Self>>,
}

#[test]
fn what_lies_in_one_another_without_end_is_refused_and_ends_no_process() {
    const LEVELS: usize = 1_000_000;
    let json = r#"{"inner":"#.repeat(LEVELS).into_bytes();
    let deep = |codec: Codec| match codec.id() {
        1 => json.clone(),
        2 => b"\x81\xa5inner".repeat(LEVELS),
        _ => vec![1; LEVELS],
    };
    for codec in Codec::ALL {
        let error = codec.decode::<Deep>(&deep(*codec)).unwrap_err().to_string();
        assert!(
            error.contains("recursion limit") || error.contains("depth limit") || error.contains("deeper than"),
            "{error}"
        );
        // What people write is far from it.
        let few = (0..50).fold(Deep::default(), |inner, _| Deep { inner: Some(Box::new(inner)) });
        let mut bytes = Vec::new();
        codec.encode(&few, &mut bytes).unwrap();
        codec.decode::<Deep>(&bytes).unwrap();
    }
}
