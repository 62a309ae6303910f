//! A seal that encrypts, as an application would write it.

use std::collections::BTreeMap;

use hapax::{
    HandlerError,
    envelope::Envelope,
    seal::{Seal, Sealed},
};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};

/// AES-256-GCM under one of several keys. A random nonce of 96 bits stands before the text: fewer than 2^32 messages under one key.
pub(crate) struct AesGcm {
    keys: BTreeMap<&'static str, LessSafeKey>,
    current: &'static str,
}

impl AesGcm {
    /// Knows `keys`, and seals with the last of them.
    pub(crate) fn knowing(keys: &[&'static str]) -> Self {
        // Whoever copies this has keys that are secret.
        let key = |name: &'static str| {
            let bytes = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
            (name, LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes.as_ref()).unwrap()))
        };
        Self { keys: keys.iter().copied().map(key).collect(), current: keys.last().unwrap() }
    }
}

/// What belongs to a body and is the same when it is opened.
fn bound_to(envelope: &Envelope) -> Aad<String> {
    let Envelope { message_type, content_type, schema, message_id, idempotency_key, .. } = envelope;
    let identity = idempotency_key.as_ref().map_or_else(|| message_id.to_string(), |key| format!("key {key}"));
    Aad::from(format!("{message_type}\0{content_type}\0{schema}\0{identity}"))
}

impl Seal for AesGcm {
    const NAME: &'static str = "aes-256-gcm";

    fn seal(&self, envelope: &Envelope) -> Result<Option<Sealed>, HandlerError> {
        let failed = || HandlerError::transient("the body cannot be encrypted");
        let key = self.keys.get(self.current).ok_or_else(failed)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| failed())?;
        let mut text = envelope.body.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound_to(envelope), &mut text)
            .map_err(|_| failed())?;
        Ok(Some(Sealed::new([nonce.as_slice(), &text].concat()).under(self.current)))
    }

    fn open(&self, envelope: &Envelope, key: Option<&str>, _: usize) -> Result<Vec<u8>, HandlerError> {
        let name = key.unwrap_or_default();
        let Some(key) = self.keys.get(name) else {
            // Another version of the program may have it.
            return Err(HandlerError::transient(format!("there is no key `{}` here", name.escape_debug())));
        };
        let damaged = || HandlerError::permanent("the body was not sealed with this key, or was changed since");
        let (nonce, text) = envelope.body.split_at_checked(NONCE_LEN).ok_or_else(damaged)?;
        let (nonce, mut text) = (Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?, text.to_vec());
        let plain = key.open_in_place(nonce, bound_to(envelope), &mut text).map_err(|_| damaged())?.len();
        text.truncate(plain);
        Ok(text)
    }
}
