//! Why something was not done: one line, with the remedy, and no password.

use std::{
    error::Error,
    io::{self, Write},
};

use hapax::operator::{masked, with_causes};

use crate::{FAILED, USAGE};

/// How a command ended that has not done what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked makes no sense as it is.
    Usage(String),
    /// It could not be done.
    Failed(String),
    /// Something is not as it should be, which has been printed.
    Found,
}

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }

    pub(crate) fn usage(why: impl Into<String>) -> Self {
        Self::Usage(why.into())
    }

    /// An error with all its causes.
    pub(crate) fn of(error: &dyn Error) -> Self {
        Self::Failed(with_causes(error))
    }

    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            _ => FAILED,
        }
    }

    /// Says it, if it has not been said.
    pub(crate) fn tell(&self) {
        if let Self::Usage(why) | Self::Failed(why) = self {
            let _ = writeln!(io::stderr(), "hapax: {}", in_our_words(why)); // There is nowhere else to say it.
        }
    }
}

/// What the library says, as this program does: with its option in the place of the library's setting, on one line, without a password.
pub(crate) fn in_our_words(text: &str) -> String {
    masked(&text.replace("`danger_unverified_tls(true)`", "`--danger-unverified-tls`"))
}
