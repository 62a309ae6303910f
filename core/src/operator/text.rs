//! What a person may be shown of errors, addresses and of what others have written: no password, and nothing that moves a cursor.

use std::error::Error;

use crate::handler_error::chain;

/// What an error says, and what caused it, each once.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    chain(error)
}

/// `text` on one line that a terminal can show, without what is secret in its URLs, see [`masked_url`], and in settings such as
/// `password=..`. A URL ends where its word does. A secret that stands in a text in another way is not known as one.
#[must_use]
pub fn masked(text: &str) -> String {
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
#[must_use]
pub fn masked_url(url: &str) -> String {
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
        let length = length_of_value(&rest[value..]);
        if length > 0 {
            shown.push('…');
        }
        rest = &rest[value + length..];
    }
}

/// How many bytes of `text`, which begins behind a setting's name, are its value: what stands in quotes, with them, else a word.
fn length_of_value(text: &str) -> usize {
    match text.chars().next() {
        Some(quote @ ('\'' | '"')) => text[1..].find(quote).map_or(text.len(), |end| end + 2),
        _ => text.find(|c: char| c.is_whitespace() || "&'\"`".contains(c)).unwrap_or(text.len()),
    }
}

/// Text from a store, as a terminal may show it: what others have written must not move its cursor.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if moves(c) { ' ' } else { c }).collect()
}

/// The same of several lines.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && moves(c) { ' ' } else { c }).collect()
}

/// JSON of the same meaning that a terminal may show: of what moves its cursor, JSON by itself writes only some as digits.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Outside of texts there are no others.
            c if c != '\n' && moves(c) => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// Whether `c` does something to a terminal, or to the order in which it shows others.
const fn moves(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{masked, masked_url, printable_json};

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
            ("host=db password='s3c ret' x", "host=db password=… x"),
            ("host=db password='s3c ret", "host=db password=…"),
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

    #[test]
    fn json_means_the_same_and_moves_nothing() {
        let value = serde_json::json!({"\u{9b}31m": ["\u{1b}[2J", "\u{202e}", "\u{7f}", "\u{e9}\n"]});
        let shown = printable_json(&serde_json::to_string_pretty(&value).unwrap_or_default());
        assert!(shown.chars().all(|c| c == '\n' || c == '\u{e9}' || (' '..='~').contains(&c)), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).ok(), Some(value));
    }
}
