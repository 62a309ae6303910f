//! Bytes that are not what they should be are errors that name the remedy, never absent values (S71).
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use hapax_core::{
    codec::{Codec, CodecError, record},
    entity::Entity,
    envelope::{ContentType, Destination, Envelope, Outgoing},
    ids::MessageId,
};

fn envelope() -> Envelope {
    Envelope::new(MessageId::parse("m").unwrap(), "t".parse().unwrap(), "{}")
}

/// What every reader of records says to `damage` done to good bytes.
fn errors(damage: impl Fn(&mut Vec<u8>)) -> [CodecError; 3] {
    let outgoing =
        Outgoing { destination: Destination::parse("endpoint:e").unwrap(), envelope: std::sync::Arc::new(envelope()) };
    let mut bytes = [
        record::encode_envelope(&envelope()).unwrap(),
        record::encode_outgoing(&outgoing).unwrap(),
        record::encode_outbox(&Entity::default()).unwrap(),
    ];
    bytes.iter_mut().for_each(damage);
    [
        record::decode_envelope(&bytes[0]).unwrap_err(),
        record::decode_outgoing(&bytes[1]).unwrap_err(),
        record::decode_outbox(Bytes::new(), &bytes[2]).unwrap_err(),
    ]
}

#[test]
fn a_record_of_an_unknown_codec_is_an_error() {
    for error in errors(|bytes| bytes[0] = 0x71) {
        assert!(matches!(error, CodecError::UnknownCodec { id: 0x71 }), "{error}");
    }
}

#[test]
fn a_record_of_an_unknown_version_is_an_error() {
    for version in [0, 2, 255] {
        for error in errors(|bytes| bytes[1] = version) {
            assert!(matches!(error, CodecError::UnknownSchema { found, known: 1, .. } if found == version), "{error}");
        }
    }
}

#[test]
fn a_record_with_bytes_left_over_is_an_error() {
    for error in errors(|bytes| bytes.push(0)) {
        assert!(matches!(error, CodecError::Invalid(_)) && error.to_string().contains("left over"), "{error}");
    }
}

#[test]
fn a_record_cut_short_anywhere_is_an_error() {
    let whole = record::encode_envelope(&envelope()).unwrap();
    for length in 0..whole.len() {
        let error = record::decode_envelope(&whole[..length]).unwrap_err();
        assert_eq!(matches!(error, CodecError::Truncated { .. }), length < 2, "{length}: {error}");
    }
    for length in 0..2 {
        for error in errors(|bytes| bytes.truncate(length)) {
            assert!(matches!(error, CodecError::Truncated { bytes } if bytes == length), "{error}");
        }
    }
}

#[test]
fn a_record_with_an_id_that_cannot_be_is_an_error() {
    let bytes = record::encode_envelope(&envelope()).unwrap();
    let id = bytes.iter().position(|&b| b == b'm').unwrap();
    let mut damaged = bytes;
    damaged[id] = b'\n';
    let error = record::decode_envelope(&damaged).unwrap_err();
    assert_eq!(error.to_string(), "message id has a control character at byte 0");
}

#[test]
fn a_hostile_length_is_an_error_and_takes_no_memory() {
    let mut bytes = record::encode_outbox(&Entity::default()).unwrap();
    bytes.truncate(4);
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    assert!(matches!(record::decode_outbox(Bytes::new(), &bytes), Err(CodecError::Invalid(_))));
}

#[test]
fn the_codec_of_a_body_is_found_by_its_media_type() {
    for text in ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"] {
        assert_eq!(Codec::of(&ContentType::parse(text).unwrap()).unwrap(), Codec::Json, "{text}");
    }
    for codec in Codec::ALL {
        assert_eq!(Codec::of(&codec.content_type()).unwrap(), *codec);
    }
}

#[test]
fn a_body_of_an_unknown_content_type_is_an_error_that_names_it() {
    for text in ["application/octet-stream", "application/vnd.x+json", "json", "; application/json"] {
        let error = Codec::of(&ContentType::parse(text).unwrap()).unwrap_err();
        assert!(matches!(&error, CodecError::UnknownContentType { content_type } if content_type == text), "{error}");
    }
}

#[test]
fn codec_ids_are_fixed_for_ever() {
    assert_eq!(Codec::Json.id(), 1);
    #[cfg(feature = "messagepack")]
    assert_eq!(Codec::MessagePack.id(), 2);
    #[cfg(feature = "bincode")]
    assert_eq!(Codec::Bincode.id(), 3);
}
