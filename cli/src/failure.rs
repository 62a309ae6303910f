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
            // The library names its own setting.
            let why = why.replace("`danger_unverified_tls(true)`", "`--danger-unverified-tls`");
            let _ = writeln!(io::stderr(), "hapax: {}", masked(&why)); // There is nowhere else to say it.
        }
    }
}
