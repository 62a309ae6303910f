//! How state and messages become bytes.
//!
//! Everything stored begins with a frame of two bytes, codec id and schema version; what this program does not know is
//! an error, never an absent value (S71). The user's state and message bodies are JSON unless told otherwise: it can be
//! read in the database and it lets types grow. hapax's own records are postcard (see [`record`]), whose wire format is
//! documented and stable. Message bodies travel without a frame, so that other programs read them: their codec is the
//! content type, their schema version a field of the envelope.
//!
//! An older schema version is handed to the type's own `upcast`, see [`Message`](crate::Message) and
//! [`Saga`](crate::Saga).

#[cfg(feature = "fuzzing")]
pub use fuzzing::fuzz;
use serde::{Serialize, de::DeserializeOwned};

use crate::envelope::ContentType;

#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(feature = "bincode")]
mod nesting;
pub mod record;
mod refusal;
#[cfg(test)]
mod tests;

/// Encodes the user's state and messages. In what is read, values may lie in one another to 128 levels, whatever the codec; what lies deeper is
/// [`CodecError::Invalid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Codec {
    /// JSON: readable in the database, tolerant of added fields. The default.
    #[default]
    Json,
    /// MessagePack with field names: smaller, as tolerant.
    #[cfg(feature = "messagepack")]
    MessagePack,
    /// bincode 2: smallest, but positional, so every change of a type needs a new schema version. The crate is
    /// unmaintained (RUSTSEC-2025-0141).
    #[cfg(feature = "bincode")]
    Bincode,
}

/// Bytes that are not what they should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes begin with a codec that this program was built without, or with no frame at all.
    #[error("codec {id} is unknown to this program; build it with the feature of that codec, or upgrade it")]
    UnknownCodec {
        /// Id in the frame.
        id: u8,
    },
    /// The content type is one that this program was built without.
    #[error("content type `{content_type}` is unknown to this program")]
    UnknownContentType {
        /// As received.
        content_type: String,
    },
    /// The schema version is one that this program has no `upcast` for.
    #[error("{what} has schema version {found}, this program knows {known}; upgrade it or add an upcast")]
    UnknownSchema {
        /// Of which type.
        what: &'static str,
        /// In the frame or envelope.
        found: u8,
        /// The program's own.
        known: u8,
    },
    /// The bytes are too short to hold a frame.
    #[error("{bytes} bytes are too few to hold a frame")]
    Truncated {
        /// How many there are.
        bytes: usize,
    },
    /// The codec refused. The text says what was expected and where, and nothing of what stands there: it goes into logs, and
    /// bodies do not. Of an error of the type's own `Deserialize` it says only where it was.
    #[error("{0}")]
    Invalid(String),
}

/// How deep values may lie in one another: each level of a type that holds itself is a call, and stacks end. As deep as JSON goes here, by serde_json;
/// eight times as many have ended a process that was not optimised.
#[cfg(any(feature = "messagepack", feature = "bincode"))]
const DEPTH_MAX: u32 = 128;

/// Bytes in front of everything stored: codec id and schema version.
pub const FRAME_BYTES: usize = 2;

impl Codec {
    /// All codecs that this program was built with.
    pub const ALL: &'static [Self] = &[
        Self::Json,
        #[cfg(feature = "messagepack")]
        Self::MessagePack,
        #[cfg(feature = "bincode")]
        Self::Bincode,
    ];

    /// The codec's id in a frame. Fixed for ever: stored data carries it.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Json => 1,
            #[cfg(feature = "messagepack")]
            Self::MessagePack => 2,
            #[cfg(feature = "bincode")]
            Self::Bincode => 3,
        }
    }

    /// The content type of bodies in this codec.
    #[must_use]
    pub const fn content_type(self) -> ContentType {
        match self {
            Self::Json => ContentType::JSON,
            #[cfg(feature = "messagepack")]
            Self::MessagePack => ContentType::MESSAGE_PACK,
            #[cfg(feature = "bincode")]
            Self::Bincode => ContentType::BINCODE,
        }
    }

    /// The codec of a body with `content_type`.
    ///
    /// # Errors
    /// [`CodecError::UnknownContentType`]. Parameters such as `charset=utf-8` are not looked at.
    pub fn of(content_type: &ContentType) -> Result<Self, CodecError> {
        let text = content_type.as_str();
        let media_type = text.split(';').next().unwrap_or(text).trim();
        Self::ALL
            .iter()
            .copied()
            .find(|codec| codec.content_type().as_str().eq_ignore_ascii_case(media_type))
            .ok_or_else(|| CodecError::UnknownContentType { content_type: text.to_owned() })
    }

    /// The codec of what is stored in a frame that begins with `id`.
    ///
    /// # Errors
    /// [`CodecError::UnknownCodec`].
    pub fn with_id(id: u8) -> Result<Self, CodecError> {
        Self::ALL.iter().copied().find(|codec| codec.id() == id).ok_or(CodecError::UnknownCodec { id })
    }

    /// Appends `value` to `bytes`.
    pub(crate) fn encode<T: Serialize>(self, value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        match self {
            Self::Json => serde_json::to_writer(bytes, value).map_err(invalid),
            #[cfg(feature = "messagepack")]
            Self::MessagePack => rmp_serde::encode::write_named(bytes, value).map_err(invalid),
            #[cfg(feature = "bincode")]
            Self::Bincode => bincode::serde::encode_into_std_write(value, bytes, bincode::config::standard())
                .map(drop)
                .map_err(invalid),
        }
    }

    /// Reads a value that fills `bytes`.
    pub(crate) fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, CodecError> {
        match self {
            // What is wrong with the JSON itself is said in words of serde_json's own.
            Self::Json => serde_json::from_slice(bytes).map_err(|e| if e.is_data() { refused(e) } else { invalid(e) }),
            #[cfg(feature = "messagepack")]
            Self::MessagePack => {
                let mut rest = bytes;
                let mut reader = rmp_serde::Deserializer::new(&mut rest);
                reader.set_max_depth(DEPTH_MAX as usize);
                let value = T::deserialize(&mut reader).map_err(refused)?;
                if !rest.is_empty() {
                    return Err(CodecError::Invalid(format!("{} bytes are left over", rest.len())));
                }
                Ok(value)
            }
            #[cfg(feature = "bincode")]
            Self::Bincode => {
                // A hostile length must not allocate: no value is larger than the bytes it came in, times this.
                const BYTES_MAX: usize = 64 << 20;
                let config = bincode::config::standard().with_limit::<BYTES_MAX>();
                let seed = nesting::Nested::new(std::marker::PhantomData::<T>);
                // What serde says is shown as Rust would write it, else.
                let refused = |error| match error {
                    bincode::error::DecodeError::OtherString(text) => refused(text),
                    error => refused(error),
                };
                let (value, read) = bincode::serde::seed_decode_from_slice(seed, bytes, config).map_err(refused)?;
                if read != bytes.len() {
                    return Err(CodecError::Invalid(format!("{} bytes are left over", bytes.len() - read)));
                }
                Ok(value)
            }
        }
    }
}

fn invalid(error: impl std::fmt::Display) -> CodecError {
    CodecError::Invalid(error.to_string())
}

/// What a codec says against bytes, but for what is in them: it goes into logs.
fn refused(error: impl std::fmt::Display) -> CodecError {
    CodecError::Invalid(refusal::without_content(&error.to_string()))
}

/// Bytes of an older schema version, handed to `upcast`.
#[derive(Debug, Clone, Copy)]
pub struct Older<'a> {
    what: &'static str,
    codec: Codec,
    schema: u8,
    known: u8,
    bytes: &'a [u8],
}

impl Older<'_> {
    /// The schema version of the bytes.
    #[must_use]
    pub const fn schema(&self) -> u8 {
        self.schema
    }

    /// Reads the bytes as the type they were written from, or as `serde_json::Value`.
    ///
    /// # Errors
    /// [`CodecError::Invalid`] when they are not that.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        self.codec.decode(self.bytes)
    }

    /// The error for a version that there is no way up from.
    ///
    /// # Errors
    /// Always [`CodecError::UnknownSchema`].
    pub const fn unknown<T>(&self) -> Result<T, CodecError> {
        Err(CodecError::UnknownSchema { what: self.what, found: self.schema, known: self.known })
    }
}

/// A type that is stored or sent under a schema version: what [`Message`](crate::Message) and [`Saga`](crate::Saga) have
/// in common.
pub(crate) struct Schema<T> {
    pub(crate) what: &'static str,
    pub(crate) version: u8,
    pub(crate) upcast: fn(Older<'_>) -> Result<T, CodecError>,
}

impl<T: Serialize + DeserializeOwned> Schema<T> {
    pub(crate) fn read(&self, codec: Codec, schema: u8, bytes: &[u8]) -> Result<T, CodecError> {
        if schema == self.version {
            return codec.decode(bytes);
        }
        let older = Older { what: self.what, codec, schema, known: self.version, bytes };
        if schema > self.version { older.unknown() } else { (self.upcast)(older) }
    }

    pub(crate) fn read_framed(&self, framed: &[u8]) -> Result<T, CodecError> {
        let [codec, schema, bytes @ ..] = framed else {
            return Err(CodecError::Truncated { bytes: framed.len() });
        };
        self.read(Codec::with_id(*codec)?, *schema, bytes)
    }

    pub(crate) fn write_framed(&self, codec: Codec, value: &T) -> Result<Vec<u8>, CodecError> {
        const USUAL_BYTES: usize = 256;
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        bytes.extend([codec.id(), self.version]);
        codec.encode(value, &mut bytes)?;
        Ok(bytes)
    }
}
