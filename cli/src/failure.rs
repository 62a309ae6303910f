//! Why something was not done: one line, with the remedy, and no password.

use std::{
    error::Error,
    io::{self, Write},
};

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
    /// Nobody reads the answer any more.
    ReaderGone,
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
        Self::Failed(chain(error))
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
            let _ = writeln!(io::stderr(), "hapax: {}", masked(why)); // There is nowhere else to say it.
        }
    }
}

/// What an error says, and its causes, each once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// `text` on one line that a terminal can show, without the users and passwords of URLs: whatever stands between `://` and the last `@` of
/// the same word.
pub(crate) fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + "://".len());
        shown.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "'\"`".contains(c)).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(sign) => {
                shown.push('…');
                &after[sign..]
            }
            None => after,
        };
    }
    shown.push_str(rest);
    shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn a_password_is_not_shown_wherever_a_url_stands() {
        for (text, shown) in [
            ("opening postgres://shop:s3cret@db/orders: refused", "opening postgres://…@db/orders: refused"),
            ("'-amqp://a:b/c@host' and redis://:p@h", "'-amqp://…@host' and redis://…@h"),
            ("sqlite://shop.db and mail@example", "sqlite://shop.db and mail@example"),
            ("a\nb\u{1b}[31m", "a b [31m"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }
}
