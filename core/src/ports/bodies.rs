//! Where bodies are that are too large to travel: each stays until nobody refers to it any more, and a reference that is gone is told to be so.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;
use crate::ids::{AttemptId, EndpointName, EntityKey, InvalidId, MessageId, SagaName};

/// Keeps bodies that are too large to travel (claim check), each until its last reference is gone.
///
/// A body is *staged* before the entity is saved whose outbox entry refers to it, and *kept* from when that save is confirmed, before the
/// message leaves. From then on it goes only when whoever needs it has said that it does not any more. Nothing here knows of retention: for
/// how long anything is kept is said by whoever knows, when it is written, and judged by the store's own clock.
///
/// # Promises
/// 1. *Kept whole:* once `put` has returned, `get` gives the bytes as they were put, also by a reference that was not named.
/// 2. *Once per name:* putting a body under a name that is there is success and changes nothing.
/// 3. *Until the last reference:* once `keep` has returned, the body is given until each of its references is released, and for as long as
///    the last `keep` has asked for everybody.
/// 4. *Released is told:* a reference that was released is told to be so, for as long as the release has asked for at least, also when
///    the body is gone. It is never told that it is missing. So is one saga's reference where its message's was released and not to it.
/// 5. *Handed over in one step:* references given in place of a released one hold the body as that one did; they are taken only if it was
///    one of the body's.
/// 6. *Staged stays:* `collect` removes nothing that is staged. `unstage` removes a staged body and no other.
/// 7. *Told when old:* `staged` tells of the bodies of an endpoint that were put so long ago and are not kept, and of no others.
/// 8. *Collected:* of a body that nobody needs any more, and whose releases need not be told any more, `collect` leaves nothing.
///
/// # Errors
/// Any write with an unknown outcome may have taken effect: repeating it is harmless.
#[async_trait]
pub trait Bodies: fmt::Debug + Send + Sync {
    /// What this store of bodies can do.
    fn body_capabilities(&self) -> BodyCapabilities;

    /// Stages a body.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](super::ErrorKind::TooLarge) beyond [`BodyCapabilities::body_bytes_max`]: nothing is kept.
    async fn put(&self, body: &NewBody) -> Result<(), StoreError>;

    /// Keeps a body that was staged; repeated, one that is kept. Whoever asks gets it for `for_all` from now on at least, whatever
    /// becomes of its references. Answers whether there is one of that name.
    async fn keep(&self, name: &BodyName, for_all: Duration) -> Result<bool, StoreError>;

    /// A body, for whom `reference` names; `None`: for anybody.
    async fn get(&self, name: &BodyName, reference: Option<&BodyReference>) -> Result<Got, StoreError>;

    /// Whom `reference` names does not need the body any more: those of `instead` do in its place. For `told` from now on, at least, a `get`
    /// by it is told so. What is not there, or has no such reference, stays as it is.
    async fn release(
        &self,
        name: &BodyName,
        reference: &BodyReference,
        instead: &[BodyReference],
        told: Duration,
    ) -> Result<(), StoreError>;

    /// Bodies of `endpoint` that were put longer ago than `age` and are not kept: the oldest first, at most `limit`.
    async fn staged(&self, endpoint: &EndpointName, age: Duration, limit: usize) -> Result<Vec<Staged>, StoreError>;

    /// Removes a body if it still is staged. Answers whether it was.
    async fn unstage(&self, name: &BodyName) -> Result<bool, StoreError>;

    /// Removes at most `limit` bodies that are over, of all endpoints. Answers how many there were.
    async fn collect(&self, limit: usize) -> Result<usize, StoreError>;
}

/// Name of a body: unique to one attempt of handling a message, so that an attempt that was lost can take nothing from the one that won.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BodyName(Box<str>);

/// Longest name of a body, in bytes.
pub const BODY_NAME_BYTES_MAX: usize = 64;

impl BodyName {
    /// Of the `index`-th message that `attempt` sends.
    #[must_use]
    pub fn of(attempt: &AttemptId, index: usize) -> Self {
        Self(format!("{attempt}-{index}").into())
    }

    /// Takes 1 to [`BODY_NAME_BYTES_MAX`] lower-case ASCII letters, digits and `-`: fit for a file's name.
    ///
    /// # Errors
    /// [`InvalidId`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let usual = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=BODY_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(usual) {
            return Ok(Self(text.into()));
        }
        // Not what it is: it may be part of somebody's body.
        let why = format!(
            "it takes 1 to {BODY_NAME_BYTES_MAX} lower-case letters, digits and `-`, and what is there is none"
        );
        Err(InvalidId::new("name of a body", why))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BodyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BodyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// Who may still need a body: all copies of one message at one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BodyReference {
    /// The message.
    pub message_id: MessageId,
    /// The endpoint that it goes to.
    pub endpoint: EndpointName,
    /// The saga there for which it was set aside; `None`: the message is on its way, for all of them.
    pub saga: Option<SagaName>,
}

/// Whose outbox entry is to refer to a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Of the body.
    pub name: BodyName,
    /// In whose outbox.
    pub entity: EntityKey,
    /// Of which entry.
    pub attempt: AttemptId,
}

/// A body to be put.
#[derive(Clone, PartialEq, Eq)]
pub struct NewBody {
    /// Its name, and whose it is until it is kept.
    pub staged: Staged,
    /// Who is going to need it. Empty: whoever comes, as long as [`keep`](Bodies::keep) says.
    pub references: Vec<BodyReference>,
    /// The body.
    pub bytes: Bytes,
}

impl fmt::Debug for NewBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewBody")
            .field("staged", &self.staged)
            .field("references", &self.references)
            .field("bytes", &format_args!("{} bytes", self.bytes.len()))
            .finish()
    }
}

/// What there is of a body. Complete: there is no other.
#[derive(Clone, PartialEq, Eq)]
pub enum Got {
    /// The body.
    Body(Bytes),
    /// Whoever asks has released it.
    Released,
    /// There is none of that name, or nobody needs it any more.
    Missing,
}

impl fmt::Debug for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Self::Released => f.write_str("Released"),
            Self::Missing => f.write_str("Missing"),
        }
    }
}

/// What a store of bodies can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyCapabilities {
    /// Name for messages, for example `memory`.
    pub name: &'static str,
    /// Largest body, in bytes.
    pub body_bytes_max: usize,
    /// Bodies survive the process.
    pub durable: bool,
}
