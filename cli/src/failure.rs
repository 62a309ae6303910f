//! Why something was not done: one line, with the remedy, and no password.

use std::{
    error::Error,
    io::{self, Write},
};

use crate::{FAILED, USAGE, print::shown as printable};

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

/// `text` on one line that a terminal can show, without what is secret in its URLs: see [`masked_url`]. A URL ends where its word does.
pub(crate) fn masked(text: &str) -> String {
    let text = without_settings(text);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(SCHEME_END) {
        let (scheme, after) = rest.split_at(at);
        let end = after.find(|c: char| c.is_whitespace() || "'\"`".contains(c)).unwrap_or(after.len());
        shown.push_str(scheme);
        shown.push_str(&masked_url(&after[..end]));
        rest = &after[end..];
    }
    shown.push_str(rest);
    printable(&shown)
}

const SCHEME_END: &str = "://";

/// `url` without user and password: without what stands before the last `@`, and without what is asked for behind `?`, where a driver takes
/// a password, too.
pub(crate) fn masked_url(url: &str) -> String {
    let Some((scheme, place)) = url.split_once(SCHEME_END) else { return printable(url) };
    let place = match (place.rfind('@'), place.find('?')) {
        (Some(sign), Some(asked)) if asked < sign => "…".to_owned(), // Which of them is part of a password, nobody knows.
        (Some(sign), Some(asked)) => format!("…{}?…", &place[sign..asked]),
        (Some(sign), None) => format!("…{}", &place[sign..]),
        (None, Some(asked)) => format!("{}?…", &place[..asked]),
        (None, None) => place.to_owned(),
    };
    printable(&format!("{scheme}{SCHEME_END}{place}"))
}

/// `text` without the values of settings that are passwords, as in `?password=..` or `sslpassword=..`.
fn without_settings(text: &str) -> String {
    const NAMES: [&str; 3] = ["password=", "passwd=", "pass="];
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        let lower = rest.to_ascii_lowercase();
        let found = NAMES.iter().filter_map(|name| lower.find(name).map(|at| at + name.len())).min();
        let Some(value) = found else { return shown + rest };
        shown.push_str(&rest[..value]);
        let end = rest[value..]
            .find(|c: char| c.is_whitespace() || "&'\"`".contains(c))
            .map_or(rest.len(), |end| value + end);
        if end > value {
            shown.push('…');
        }
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::{masked, masked_url};

    #[test]
    fn a_url_shows_no_password_whatever_stands_in_it() {
        for (url, shown) in [
            ("postgres://shop:s3 c'r`e\"t@db/orders", "postgres://…@db/orders"),
            ("postgres://shop:s3\ncret@db/orders", "postgres://…@db/orders"),
            ("mysql://db/orders?user=shop&password=s3cret&x=1", "mysql://db/orders?…"),
            ("postgres://shop:s3cret@db/o?sslpassword=s3cret", "postgres://…@db/o?…"),
            ("postgres://shop:s3cret@db/o?password=s3@cret", "postgres://…"),
            ("shop.db", "shop.db"),
            ("a@b.db", "a@b.db"),
        ] {
            assert_eq!(masked_url(url), shown);
        }
    }

    #[test]
    fn a_password_is_not_shown_wherever_a_url_stands() {
        for (text, shown) in [
            ("opening postgres://shop:s3cret@db/orders: refused", "opening postgres://…@db/orders: refused"),
            ("'-amqp://a:b/c@host' and redis://:p@h", "'-amqp://…@host' and redis://…@h"),
            ("sqlite://shop.db and mail@example", "sqlite://shop.db and mail@example"),
            ("mysql://db/shop?user=shop&password=s3cret: refused", "mysql://db/shop?… refused"),
            ("postgres://a:b@db/shop?password=s3cret 'nats://h?x'", "postgres://…@db/shop?… 'nats://h?…'"),
            ("redis://:s3?cr@et@db and redis://db?password=s3@cret", "redis://… and redis://db?…"),
            ("a\nb\u{1b}[31m", "a b [31m"),
            ("host=db password=s3cret é", "host=db password=… é"),
            ("the server asks for a password=", "the server asks for a password="),
        ] {
            assert_eq!(masked(text), shown);
        }
    }

    #[test]
    fn of_what_is_known_to_be_a_url_no_quote_or_space_ends_it() {
        assert_eq!(masked_url("postgres://shop:it's a s3cret@db/shop"), "postgres://…@db/shop");
        assert_eq!(masked_url("shop.db"), "shop.db");
    }
}
