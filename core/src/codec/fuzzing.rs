//! A door for the tests of decoders: framed values of a type that has about all that a type may have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CodecError, Older, Schema};

/// About all that a user's type may be made of.
#[derive(Serialize, Deserialize)]
struct Everything {
    text: String,
    numbers: Vec<u64>,
    perhaps: Option<Box<Self>>,
    named: BTreeMap<String, i32>,
    one: Choice,
    #[serde(default)]
    newer: Option<f64>,
}

#[derive(Serialize, Deserialize)]
enum Choice {
    Nothing,
    Pair(u8, char),
    Fields { bytes: Vec<u8>, is: bool },
}

const SCHEMA: Schema<Everything> =
    Schema { what: "everything", version: 2, upcast: |older: Older<'_>| older.decode::<Everything>() };

/// States and bodies in their frames, as any program may have stored them.
#[doc(hidden)]
pub fn fuzz(framed: &[u8]) {
    match SCHEMA.read_framed(framed) {
        Ok(value) => {
            let Ok(codec) = super::Codec::with_id(framed[0]) else { return };
            let Ok(written) = SCHEMA.write_framed(codec, &value) else { return };
            // Bytes are compared, not values: one that is no number, however deep, is not equal to itself.
            let again = SCHEMA.read_framed(&written).and_then(|value| SCHEMA.write_framed(codec, &value));
            assert_eq!(again.ok(), Some(written));
        }
        Err(CodecError::UnknownSchema { found, known, .. }) => assert!(found > known),
        Err(_) => {}
    }
    assert!(framed.get(1).is_none_or(|schema| *schema <= 2) || SCHEMA.read_framed(framed).is_err());
}
