//! From a typed message to its envelope, and back.

use crate::{
    codec::{Codec, CodecError},
    envelope::Envelope,
    handler_error::HandlerError,
    ids::{MessageId, TypeName},
    saga::{Message, message_schema},
};

pub(crate) fn type_name_of<M: Message>() -> Result<TypeName, HandlerError> {
    TypeName::constant(M::TYPE).map_err(HandlerError::permanent)
}

/// An envelope around `message`, with nothing but its id, type and body set.
pub(crate) fn envelope_of<M: Message>(
    id: MessageId,
    message_type: TypeName,
    message: &M,
    codec: Codec,
) -> Result<Envelope, HandlerError> {
    const USUAL_BYTES: usize = 256;
    let mut body = Vec::with_capacity(USUAL_BYTES);
    codec.encode::<M>(message, &mut body).map_err(HandlerError::permanent)?;
    let mut envelope = Envelope::new(id, message_type, body);
    envelope.content_type = codec.content_type();
    envelope.schema = M::SCHEMA;
    Ok(envelope)
}

/// The message in an envelope. Malformed bodies are permanent; a schema or codec that only another version of this
/// program knows is not, for that version may come.
pub(crate) fn decode<M: Message>(envelope: &Envelope) -> Result<M, HandlerError> {
    Codec::of(&envelope.content_type)
        .and_then(|codec| message_schema::<M>().read(codec, envelope.schema, &envelope.body))
        .map_err(|e| match e {
            CodecError::Invalid(problem) => {
                HandlerError::permanent(format!("the body of {} cannot be read: {problem}", envelope.message_type))
            }
            other => HandlerError::transient(other),
        })
}
