//! What is told of bytes that a type does not take.

/// Texts of serde that hold a piece of the input, up to what was expected in its place.
const WITH_CONTENT: [&str; 4] = ["invalid type", "invalid value", "unknown variant", "unknown field"];
/// Texts that hold none: names of the type's own fields, lengths, and what is wrong with the encoding itself.
const WITHOUT: [&str; 6] = [
    "missing field `",
    "duplicate field `",
    "invalid length ",
    "wrong msgpack marker ",
    "depth limit exceeded",
    "values lie in one another ",
];

/// `text`, as a codec says it, without what stood in the bytes. What a type's own `Deserialize` says may hold anything, and is
/// left out, but for the place.
///
/// # Source
/// The texts are those of serde's `de::Error`; what is unknown is left out, so a new one costs a reason and never shows a body.
pub(super) fn without_content(text: &str) -> String {
    if WITHOUT.iter().any(|begins| text.starts_with(begins)) {
        return text.to_owned();
    }
    if let Some(kind) = WITH_CONTENT.iter().find(|begins| text.starts_with(**begins)) {
        // The last one: the input may say the same words, and comes before.
        return match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("{kind}, expected {expected}"),
            None => format!("{kind}{}", place(text)),
        };
    }
    format!("its type does not take what it holds{}", place(text))
}

/// Where it was, if it is said in digits.
fn place(text: &str) -> &str {
    let Some(at) = text.rfind(" at line ") else { return "" };
    let place = &text[at..];
    let digits = place.trim_start_matches(" at line ").replacen(" column ", "", 1);
    if digits.bytes().all(|b| b.is_ascii_digit()) { place } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Deserializer, de::Error as _};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Card {
        #[serde(rename = "number")]
        _number: u32,
        #[serde(rename = "kind", default)]
        _kind: Option<Kind>,
        #[serde(rename = "name", default)]
        _name: Option<Name>,
    }

    #[derive(Debug, Deserialize)]
    enum Kind {
        Debit,
        Credit,
    }

    #[derive(Debug)]
    struct Name;

    impl<'de> Deserialize<'de> for Name {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            Err(D::Error::custom(format!("`{text}` is no name")))
        }
    }

    fn said(json: &str) -> String {
        match serde_json::from_str::<Card>(json) {
            Ok(card) => unreachable!("{card:?}"),
            Err(error) => without_content(&error.to_string()),
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_what_stood_there() {
        let _ = (Kind::Debit, Kind::Credit);
        for (json, expected) in [
            (r#"{"number": "a-secret"}"#, "invalid type, expected u32 at line 1 column 21"),
            (r#"{"number": "x, expected a-secret, expected y"}"#, "invalid type, expected u32 at line 1 column 45"),
            (r#"{"number": -41114111}"#, "invalid value, expected u32 at line 1 column 20"),
            (
                r#"{"number": 1, "a-secret": 2}"#,
                "unknown field, expected one of `number`, `kind`, `name` at line 1 column 24",
            ),
            (
                r#"{"number": 1, "kind": "a-secret"}"#,
                "unknown variant, expected `Debit` or `Credit` at line 1 column 32",
            ),
            (
                r#"{"number": 1, "name": "a-secret at line 7"}"#,
                "its type does not take what it holds at line 1 column 43",
            ),
            (r#"{"kind": null}"#, "missing field `number` at line 1 column 14"),
        ] {
            assert_eq!(said(json), expected, "{json}");
        }
    }

    #[test]
    fn a_place_is_digits() {
        assert_eq!(without_content("it was at line a-secret"), "its type does not take what it holds");
    }
}
