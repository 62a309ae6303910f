//! A door for the tests of decoders: items of the table.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use hapax_core::{codec::record, ids::EndpointName};

use super::{
    call::Doing,
    dedup,
    entity::Read,
    keys::{Item, Place},
    letters,
    token::Token,
};

/// Items as a table may hold them, whoever has written them: as an entity whose chunks are all `rest`, as a dedup entry, and as a letter.
/// An attribute's value is of the type of its first byte: `s`, `n`, or bytes.
#[doc(hidden)]
pub fn fuzz(attributes: &[(String, Vec<u8>)], rest: &[u8]) {
    let value = |value: &[u8]| match value.split_first() {
        Some((b's', text)) => AttributeValue::S(String::from_utf8_lossy(text).into_owned()),
        Some((b'n', text)) => AttributeValue::N(String::from_utf8_lossy(text).into_owned()),
        Some((_, bytes)) => AttributeValue::B(Blob::new(bytes)),
        None => AttributeValue::Null(true),
    };
    let item: Item = attributes.iter().map(|(name, bytes)| (name.clone(), value(bytes))).collect();
    let doing = Doing::reading("reading");
    if let Ok(read) = Read::of(doing, Place::meta(), item.clone()) {
        let text = read.token.to_string();
        assert_eq!(Token::parse(&text).map(|token| token.to_string()), Some(text));
        drop(read.into_entity(doing, |_| Some(rest.to_vec())));
    }
    if let (Ok(endpoint), Ok(envelope)) = (EndpointName::parse("shop"), record::decode_envelope(rest)) {
        drop(letters::read(&item, &endpoint, envelope));
    }
    drop(dedup::read(doing, item));
}
