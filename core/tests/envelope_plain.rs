//! Plain headers: what other programs send, and what brokers and later versions of hapax do on the way.
#![allow(clippy::unwrap_used)]

use std::error::Error as _;

use hapax_core::{
    envelope::{
        ContentType, Destination, Envelope, HEADER_VALUE_BYTES_MAX, HEADERS_MAX, Headers, ReadError,
        plain::{self, Defaults},
    },
    time::Timestamp,
};

fn envelope() -> Envelope {
    Envelope::new("m".parse().unwrap(), "shop.add-item".parse().unwrap(), r#"{"order": 7}"#)
}

fn with_header(name: &str, value: &str) -> Envelope {
    let mut envelope = envelope();
    envelope.headers.set(name, value).unwrap();
    envelope
}

fn pairs(headers: &Headers) -> Vec<(&str, &str)> {
    headers.iter().collect()
}

fn defaults() -> Defaults {
    Defaults {
        message_id: Some("foreign-1".parse().unwrap()),
        message_type: Some("erp.order".parse().unwrap()),
        content_type: Some(ContentType::JSON),
    }
}

fn read_plain(headers: &[(&str, &str)]) -> Result<Envelope, ReadError> {
    plain::from_headers(headers.iter().copied(), "{}", &Defaults::default())
}

fn read_foreign(headers: &[(&str, &str)]) -> Envelope {
    plain::from_headers(headers.iter().copied(), "{}", &defaults()).unwrap()
}

#[test]
fn an_envelope_is_written_under_the_documented_headers() {
    let mut envelope = with_header("shop", "Köln 100%");
    envelope.headers.set("content-type", "mine").unwrap();
    envelope.due = Some(Timestamp::from_millis(1_700_000_000_001));
    envelope.reply_to = Some(Destination::parse("endpoint:desk").unwrap());
    envelope.schema = 2;
    envelope.timeout = true;
    let headers = plain::to_headers(&envelope);
    let expected = [
        ("content-type", "application/json"),
        ("hapax-message-id", "m"),
        ("hapax-type", "shop.add-item"),
        ("hapax-schema", "2"),
        ("hapax-due", "2023-11-14T22:13:20.001Z"),
        ("hapax-reply-to", "endpoint:desk"),
        ("hapax-timeout", "true"),
        ("shop", "K%C3%B6ln%20100%25"),
        ("hapax-header-content-type", "mine"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn a_field_of_a_later_version_is_kept_and_passed_on_under_its_name() {
    let read = read_plain(&[("hapax-message-id", "m"), ("hapax-type", "t"), ("Hapax-Later", "a%20b")]).unwrap();
    assert_eq!(pairs(&read.headers), [("unknown-hapax-later", "a b")]);
    assert!(plain::to_headers(&read).contains(&("hapax-later".to_owned(), "a%20b".to_owned())));
}

#[test]
fn an_application_cannot_write_the_fields_of_the_envelope() {
    let envelope = with_header("unknown-hapax-type", "other");
    let headers = plain::to_headers(&envelope);
    assert_eq!(headers.iter().filter(|(name, _)| name == "hapax-type").count(), 1);
    assert_eq!(plain::from_headers(headers, envelope.body.clone(), &Defaults::default()).unwrap(), envelope);
}

#[test]
fn a_foreign_message_takes_its_identity_from_the_defaults() {
    let read = read_foreign(&[("x", "y")]);
    assert_eq!((read.message_id.to_string(), read.message_type.as_str()), ("foreign-1".to_owned(), "erp.order"));
    assert_eq!((read.content_type, read.schema), (ContentType::JSON, 1));
}

#[test]
fn what_the_message_says_counts_more_than_the_defaults() {
    let headers = [("hapax-message-id", "m"), ("hapax-type", "t"), ("content-type", "text/plain")];
    let read = read_foreign(&headers);
    assert_eq!((read.message_id.to_string(), read.message_type.as_str()), ("m".to_owned(), "t"));
    assert_eq!(read.content_type.as_str(), "text/plain");
}

#[test]
fn a_foreign_message_without_identity_is_an_error_that_names_what_is_missing() {
    let error = read_plain(&[("hapax-type", "t")]).unwrap_err();
    assert!(matches!(error, ReadError::Missing { name: "hapax-message-id", .. }), "{error}");
    let error = read_plain(&[("hapax-message-id", "m")]).unwrap_err();
    assert!(matches!(error, ReadError::Missing { name: "hapax-type", .. }), "{error}");
}

#[test]
fn values_of_a_foreign_message_are_taken_as_they_are() {
    let read = read_foreign(&[("x", "100% a%20b"), ("y", "Köln"), ("z", "\"q\"")]);
    assert_eq!(pairs(&read.headers), [("x", "100% a%20b"), ("y", "Köln"), ("z", "\"q\"")]);
}

#[test]
fn names_of_a_foreign_message_are_made_to_fit() {
    let read = read_foreign(&[
        ("X-Request-ID", "1"),
        ("my header", "2"),
        ("größe", "3"),
        ("ce-id", "4"),
        ("Hapax-Header-Ce-x", "5"),
    ]);
    let expected =
        [("x-request-id", "1"), ("my_header", "2"), ("gr__e", "3"), ("unknown-ce-id", "4"), ("unknown-ce-x", "5")];
    assert_eq!(pairs(&read.headers), expected);
}

#[test]
fn control_characters_and_bytes_that_are_no_text_are_percent_encoded() {
    let headers: [(&str, &[u8]); 2] = [("x", b"a\r\nb\xc2\x85"), ("y", b"a\xff b")];
    let read = plain::from_headers(headers, "", &defaults()).unwrap();
    assert_eq!(pairs(&read.headers), [("x", "a%0D%0Ab%C2%85"), ("y", "a%FF b")]);
}

#[test]
fn a_repeated_header_keeps_all_its_values() {
    let read = read_foreign(&[("X", "1"), ("x", "2"), ("x", "2")]);
    assert_eq!(pairs(&read.headers), [("x", "1, 2, 2")]);
    let read = read_foreign(&[("X", "1"), ("x", "1")]);
    assert_eq!(pairs(&read.headers), [("x", "1")]);
}

#[test]
fn a_message_with_too_long_or_too_many_headers_is_not_lost() {
    let long = "v".repeat(HEADER_VALUE_BYTES_MAX + 1);
    let long_name = "n".repeat(1000);
    let names: Vec<String> = (0..HEADERS_MAX + 10).map(|n| format!("n{n}")).collect();
    let mut headers = vec![("long", long.as_str()), (long_name.as_str(), "v"), ("", "v")];
    headers.extend(names.iter().map(|name| (name.as_str(), "v")));
    let read = read_foreign(&headers);
    assert_eq!(read.headers.iter().count(), HEADERS_MAX);
    assert_eq!(read.headers.value("long"), None);
}

#[test]
fn a_content_type_that_is_none_is_kept_for_people() {
    let read = read_foreign(&[("Content-Type", "tëxt")]);
    assert_eq!(read.content_type.as_str(), "application/octet-stream");
    assert_eq!(pairs(&read.headers), [("content-type", "tëxt")]);
}

#[test]
fn a_field_given_twice_must_say_the_same() {
    let twice = [("hapax-message-id", "m"), ("hapax-type", "t"), ("HAPAX-MESSAGE-ID", "m")];
    assert!(read_plain(&twice).is_ok());
    let error = read_plain(&[("hapax-message-id", "m"), ("hapax-message-id", "n")]).unwrap_err();
    assert_eq!(error, ReadError::Repeated { name: "hapax-message-id".to_owned() });
}

#[test]
fn a_malformed_field_is_an_error_that_names_it() {
    for (name, value) in [
        ("hapax-message-id", ""),
        ("hapax-type", "a b"),
        ("hapax-due", "tomorrow"),
        ("hapax-expires", "1969-12-31T23:59:59Z"),
        ("hapax-schema", "256"),
        ("hapax-timeout", "yes"),
        ("hapax-reply-to", "desk"),
        ("hapax-tenant", "%FF"),
        ("hapax-tenant", "a%0Ab"),
    ] {
        let mut headers = vec![("hapax-message-id", "m"), ("hapax-type", "t")];
        headers.retain(|(there, _)| *there != name);
        headers.push((name, value));
        let error = read_plain(&headers).unwrap_err();
        assert!(matches!(&error, ReadError::Invalid { name: named, .. } if named == name), "{error}");
        assert!(error.source().is_some());
    }
}
