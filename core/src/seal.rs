//! Bodies that are sealed on their way: compressed, encrypted, or both.
//!
//! A [`Seal`] changes the body of a message when it is made, and changes it back where it is handled. In between (in the outbox, in
//! the queue, among the dead letters) is what it has made of the body. Who has sealed it stands in a header, [`SEALED_BY`], so that
//! a receiver knows what to open it with, and plain bodies are read as ever, unless an endpoint [demands](Seals::demanded) sealed ones.
//!
//! What a message says is compared by its opened body: whoever sends the same again under the same identity may seal it anew, and the
//! two are copies all the same.
//!
//! Only the body is sealed. Ids, type, headers and the state of sagas are not.
//!
//! # In which order
//! First let every receiver [open](Seals::opened_by) what is to come, then let the senders seal; when no plain message is under way any
//! more, a receiver may demand sealed ones. With another key it is the same: first it is known everywhere, then it is used, and it is
//! forgotten when no message under it can come any more, dead letters included.

use std::{
    borrow::Cow,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    envelope::Envelope,
    handler_error::HandlerError,
    ids::{Fingerprint, TypeName},
    manager::text_of,
};

#[cfg(feature = "deflate")]
mod deflate;
#[cfg(feature = "deflate")]
pub use deflate::Deflate;

/// Header of a sealed body: the name of its [`Seal`], and after a `;` what the seal calls its key, if it has said so.
pub const SEALED_BY: &str = "sealed-by";

/// Most bytes that a body may open to, if nothing else is said: 16 MiB. A kilobyte of compressed bytes may open to a megabyte, so what
/// bounds messages on their way bounds nothing here. It is what the largest of the usual brokers takes for a message by default
/// (RabbitMQ since 4.0), so that what could be sent plain can be opened.
///
/// An endpoint counts what it [holds](crate::endpoint::Settings::bytes_in_flight_max) as it is when it is opened, but knows that only once it has
/// it: what one receive brings may be so many times this. Where bodies come from somebody who may wish harm, encrypt or sign them, and
/// open nothing that is neither.
pub const OPENED_BYTES_MAX: usize = 16 << 20;

/// Longest name of a seal and longest name of a key, in bytes.
pub const SEAL_NAME_BYTES_MAX: usize = 100;

/// Changes bodies on their way out, and back on their way in.
///
/// It is called from the hot path, in between everything else: it computes and does not block; keys are fetched beforehand. What its errors
/// say stands in logs and dead letters: nothing of a body, and no key.
pub trait Seal: Send + Sync + 'static {
    /// Name in the header of every sealed message, for example `aes-256-gcm`. Printable ASCII but `;`, 100 bytes at most. Whoever changes what
    /// is sealed changes the name, and [opens](Seals::and_opens) both.
    const NAME: &'static str;

    /// The sealed body of `envelope`, which has everything but that; or `None`, for a message that is to go as it is.
    ///
    /// It may be called several times for one message, and give other bytes each time. What is bound to the body (as the associated data of
    /// a cipher) is to be what is the same when it is opened: message type, content type, schema, tenant, and the identity: the
    /// idempotency key, or else the message id. Not so headers, times and addresses.
    ///
    /// # Errors
    /// [`HandlerError`]: the message is not sent, and a handler that has made it fails.
    fn seal(&self, envelope: &Envelope) -> Result<Option<Sealed>, HandlerError>;

    /// The body that was sealed, of `bytes_max` bytes at most; `key` is what [`seal`](Self::seal) called its key.
    ///
    /// # Errors
    /// [`HandlerError`]: permanent where nobody could open it, since it is damaged, forged or would be larger than `bytes_max`; transient where
    /// another version of the program may know more, as for a key that is unknown here.
    fn open(&self, envelope: &Envelope, key: Option<&str>, bytes_max: usize) -> Result<Vec<u8>, HandlerError>;
}

/// A body as a [`Seal`] has made it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    body: Bytes,
    key: Option<String>,
}

impl Sealed {
    /// This is the body.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), key: None }
    }

    /// The same with a name for its key, never the key itself: it stands in a header. Printable ASCII but `;`, 100 bytes at most.
    #[must_use]
    pub fn under(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes under {:?}", self.body.len(), self.key)
    }
}

/// With what bodies are sealed and opened; the default seals nothing and opens plain ones. A clone is the same.
///
/// Endpoints take it ([`seals`](crate::endpoint::EndpointBuilder::seals)), and so do [`Sender`](crate::Sender::seals) and
/// [`RequestClient`](crate::requests::RequestClientBuilder::seals). Where a program stores envelopes of its own, in an outbox or as
/// [`Enqueued`](crate::Enqueued), it [seals](Self::seal) them itself.
#[derive(Clone, Default)]
pub struct Seals(Option<Arc<All>>);

#[derive(Clone)]
struct All {
    seals: Option<Arc<dyn Erased>>,
    opens: Vec<Arc<dyn Erased>>,
    demanded: bool,
    opened_bytes_max: usize,
}

impl Default for All {
    fn default() -> Self {
        Self { seals: None, opens: Vec::new(), demanded: false, opened_bytes_max: OPENED_BYTES_MAX }
    }
}

impl Seals {
    /// Seals what is sent with `seal`, and opens what it has sealed.
    #[must_use]
    pub fn sealed_by(seal: impl Seal) -> Self {
        let seal: Arc<dyn Erased> = Arc::new(seal);
        Self::default().with(|all| {
            all.seals = Some(seal.clone());
            all.opens.push(seal);
        })
    }

    /// Opens what `seal` has sealed, and sends plain bodies.
    #[must_use]
    pub fn opened_by(seal: impl Seal) -> Self {
        Self::default().and_opens(seal)
    }

    /// The same, and opens what `seal` has sealed.
    #[must_use]
    pub fn and_opens(self, seal: impl Seal) -> Self {
        self.with(|all| all.opens.push(Arc::new(seal)))
    }

    /// The same, and refuses plain bodies: they are set aside at once. Also those of programs that are not hapax, and what a seal lets go as
    /// it is. Whatever seal is opened here counts: leave out those that anybody can make, without a key. The endpoint's own timeouts and what it
    /// sends to itself are refused too unless they are sealed, so it is to be one that seals ([`sealed_by`](Self::sealed_by)) whatever their size.
    #[must_use]
    pub fn demanded(self) -> Self {
        self.with(|all| all.demanded = true)
    }

    /// The same with another bound than [`OPENED_BYTES_MAX`] for what a body may open to. One that would be larger is set aside at once.
    #[must_use]
    pub fn opened_bytes_max(self, bytes: usize) -> Self {
        self.with(|all| all.opened_bytes_max = bytes)
    }

    fn with(mut self, change: impl FnOnce(&mut All)) -> Self {
        change(Arc::make_mut(self.0.get_or_insert_default()));
        self
    }

    /// Seals the body of `envelope`, if it is not sealed yet. One that says so has to open here: a header that came along with others makes no
    /// plain body a sealed one.
    ///
    /// # Errors
    /// [`HandlerError`] of the seal, or of opening what is sealed already; a permanent one where a name is none or there is no room for another header.
    pub fn seal(&self, envelope: &mut Envelope) -> Result<(), HandlerError> {
        let Some(seal) = self.0.as_ref().and_then(|all| all.seals.as_ref()) else { return Ok(()) };
        if is_sealed(envelope) {
            return self.open_if_sealed(envelope).map(drop);
        }
        let name = seal.name();
        let Some(Sealed { body, key }) = guarded(name, || seal.seal(envelope))? else { return Ok(()) };
        check_name(name)?;
        let by = match &key {
            Some(key) => {
                check_name(key)?;
                format!("{name};{key}")
            }
            None => name.to_owned(),
        };
        envelope.headers.set(SEALED_BY, &by).map_err(HandlerError::permanent)?;
        envelope.body = body;
        Ok(())
    }

    /// `envelope` with its body as it was before it was sealed, and without the header that says so; as it is, if it is plain.
    ///
    /// # Errors
    /// A transient error where this does not know the seal, for another version of the program may; a permanent one for a plain body where
    /// sealed ones are [demanded](Self::demanded), and for one that opens to more than the [bound](OPENED_BYTES_MAX). Others are the seal's.
    pub fn open<'e>(&self, envelope: &'e Envelope) -> Result<Cow<'e, Envelope>, HandlerError> {
        let message_type = &envelope.message_type;
        if !is_sealed(envelope) && self.0.as_ref().is_some_and(|all| all.demanded) {
            return Err(HandlerError::permanent(format!(
                "the body of {message_type} is plain, and has to be sealed here"
            )));
        }
        self.open_if_sealed(envelope)
    }

    /// The same, with what it says.
    pub(crate) fn opened<'e>(&self, envelope: &'e Envelope) -> Result<Opened<'e>, HandlerError> {
        let opened = self.open(envelope)?;
        Ok(Opened {
            // Over what was sealed: a copy may have been sealed anew, and says the same.
            fingerprint: Fingerprint::of(&opened),
            bytes: opened.size().max(envelope.size()),
            envelope: opened,
        })
    }

    /// The same where plain bodies will do.
    pub(crate) fn open_if_sealed<'e>(&self, envelope: &'e Envelope) -> Result<Cow<'e, Envelope>, HandlerError> {
        let Some(by) = envelope.headers.value(SEALED_BY) else { return Ok(Cow::Borrowed(envelope)) };
        let (name, key) = by.split_once(';').map_or((by, None), |(name, key)| (name, Some(key)));
        let all = self.0.as_deref();
        let Some((seal, all)) = all.and_then(|all| Some((all.opens.iter().find(|seal| seal.name() == name)?, all)))
        else {
            return Err(unknown(&envelope.message_type, name));
        };
        let body = guarded(name, || seal.open(envelope, key, all.opened_bytes_max))?;
        if body.len() > all.opened_bytes_max {
            return Err(too_large(all.opened_bytes_max));
        }
        let mut opened = envelope.clone();
        opened.headers.remove(SEALED_BY);
        opened.body = body.into();
        Ok(Cow::Owned(opened))
    }

    /// What is wrong with the names of the seals.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(all) = &self.0 else { return Ok(()) };
        let mut names: Vec<_> = all.opens.iter().map(|seal| seal.name()).collect();
        names.iter().try_for_each(|name| check_name(name)).map_err(|e| e.to_string())?;
        names.sort_unstable();
        match names.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(format!("two seals are named `{}`; rename one, or leave it out", two[0])),
            None => Ok(()),
        }
    }
}

/// A message as it was before it was sealed.
pub(crate) struct Opened<'e> {
    pub(crate) envelope: Cow<'e, Envelope>,
    pub(crate) fingerprint: Fingerprint,
    /// What it holds in memory, in bytes.
    pub(crate) bytes: usize,
}

/// What a seal says of a body that would open to more than `bytes_max` bytes.
fn too_large(bytes_max: usize) -> HandlerError {
    HandlerError::permanent(format!("the body opens to more than {bytes_max} bytes; raise opened_bytes_max, if it may"))
}

/// What the user's code gives; a panic there is this message's error, like any other.
fn guarded<T>(name: &str, seal: impl FnOnce() -> Result<T, HandlerError>) -> Result<T, HandlerError> {
    catch_unwind(AssertUnwindSafe(seal))
        .unwrap_or_else(|panic| Err(HandlerError::transient(format!("{name} panicked: {}", text_of(&*panic)))))
}

fn unknown(message_type: &TypeName, name: &str) -> HandlerError {
    let name = name.escape_debug();
    HandlerError::transient(format!(
        "the body of {message_type} is sealed by `{name}`, which is unknown here; add it with .seals(..)"
    ))
}

fn is_sealed(envelope: &Envelope) -> bool {
    envelope.headers.value(SEALED_BY).is_some()
}

fn check_name(name: &str) -> Result<(), HandlerError> {
    if !name.is_empty() && name.len() <= SEAL_NAME_BYTES_MAX && name.bytes().all(|b| b.is_ascii_graphic() && b != b';')
    {
        return Ok(());
    }
    let name = name.escape_debug();
    Err(HandlerError::permanent(format!(
        "`{name}` is no name for a seal or its key: 1 to {SEAL_NAME_BYTES_MAX} printable ASCII characters without `;` and blanks"
    )))
}

impl<S: Seal> From<S> for Seals {
    /// As [`sealed_by`](Self::sealed_by).
    fn from(seal: S) -> Self {
        Self::sealed_by(seal)
    }
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.as_deref();
        let opens: Vec<_> = all.iter().flat_map(|all| &all.opens).map(|seal| seal.name()).collect();
        f.debug_struct("Seals")
            .field("seals", &all.and_then(|all| Some(all.seals.as_ref()?.name())))
            .field("opens", &opens)
            .field("demanded", &all.is_some_and(|all| all.demanded))
            .finish()
    }
}

/// A seal without its type.
trait Erased: Send + Sync {
    fn name(&self) -> &'static str;
    fn seal(&self, envelope: &Envelope) -> Result<Option<Sealed>, HandlerError>;
    fn open(&self, envelope: &Envelope, key: Option<&str>, bytes_max: usize) -> Result<Vec<u8>, HandlerError>;
}

impl<S: Seal> Erased for S {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn seal(&self, envelope: &Envelope) -> Result<Option<Sealed>, HandlerError> {
        Seal::seal(self, envelope)
    }

    fn open(&self, envelope: &Envelope, key: Option<&str>, bytes_max: usize) -> Result<Vec<u8>, HandlerError> {
        Seal::open(self, envelope, key, bytes_max)
    }
}
