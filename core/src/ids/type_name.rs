//! What a message type is called on the wire, apart from its name in Rust, which may change.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{InvalidId, check_name};

/// Names a message type on the wire, for example `shop.add-item`.
#[derive(Clone)]
pub struct TypeName(Name);

/// A name from the program's own text needs no allocation.
#[derive(Clone)]
enum Name {
    Static(&'static str),
    Shared(Arc<str>),
}

impl TypeName {
    /// Takes `text` as it is, or says what is wrong with it.
    ///
    /// # Errors
    /// [`InvalidId`] for text that is empty, too long or malformed.
    pub fn parse(text: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, InvalidId> {
        check_name("message type", text.as_ref())?;
        Ok(Self(Name::Shared(text.into())))
    }

    /// The same for a constant.
    ///
    /// # Errors
    /// As for [`TypeName::parse`].
    pub fn constant(text: &'static str) -> Result<Self, InvalidId> {
        check_name("message type", text)?;
        Ok(Self(Name::Static(text)))
    }

    /// The text, exactly as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Static(text) => text,
            Name::Shared(text) => text,
        }
    }
}

impl PartialEq for TypeName {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for TypeName {}

impl PartialOrd for TypeName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TypeName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for TypeName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl std::str::FromStr for TypeName {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::parse(text)
    }
}
