//! CloudEvents: what we write for others, what others write, and what gateways do on the way.
#![allow(clippy::unwrap_used)]

use hapax_core::{
    envelope::{
        ContentType, Envelope, Headers, ReadError,
        cloudevents::{self, Source},
    },
    ids::Fingerprint,
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

fn source() -> Source {
    Source::parse("/shop").unwrap()
}

/// The headers of a foreign event, with `more`.
fn event<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut headers =
        vec![("ce-specversion", "1.0"), ("ce-id", "17"), ("ce-source", "https://erp"), ("ce-type", "erp.order")];
    for (name, value) in more {
        headers.retain(|(there, _)| there != name);
        headers.push((name, value));
    }
    headers
}

fn read_event(more: &[(&str, &str)]) -> Result<Envelope, ReadError> {
    cloudevents::from_binary(event(more), "{}")
}

fn read_json(members: &str) -> Result<Envelope, ReadError> {
    let json = format!(r#"{{"specversion":"1.0","id":"17","source":"https://erp","type":"erp.order"{members}}}"#);
    cloudevents::from_structured(json.as_bytes())
}

fn json_of(envelope: &Envelope) -> serde_json::Value {
    serde_json::from_slice(&cloudevents::to_structured(envelope, &source())).unwrap()
}

// Binary mode.

#[test]
fn a_cloud_event_is_written_under_the_documented_attributes() {
    let mut envelope = with_header("subject", "Köln 100%");
    envelope.headers.set("a-b", "x&y=z").unwrap();
    envelope.headers.set("dataschema", "not a uri").unwrap();
    envelope.partition_key = Some("7".parse().unwrap());
    envelope.correlation_id = Some("c".parse().unwrap());
    envelope.occurred_at = Some(Timestamp::from_millis(0));
    envelope.expires = Some(Timestamp::from_millis(1));
    envelope.timeout = true;
    let headers = cloudevents::to_binary(&envelope, &source());
    let expected = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "m"),
        ("ce-source", "/shop"),
        ("ce-hapaxmessageid", "m"),
        ("ce-type", "shop.add-item"),
        ("ce-correlationid", "c"),
        ("ce-partitionkey", "7"),
        ("ce-time", "1970-01-01T00:00:00.000Z"),
        ("ce-expirytime", "1970-01-01T00:00:00.001Z"),
        ("ce-hapaxtimeout", "true"),
        ("ce-subject", "K%C3%B6ln%20100%25"),
        ("ce-hapaxheaders", "subject&a-b=x%2526y%253Dz&dataschema=not%2520a%2520uri"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn headers_that_the_specification_forbids_as_attributes_are_listed() {
    let forbidden = [
        ("empty", ""),
        ("nonchar", "\u{fffe}"),
        ("data", "v"),
        ("id", "v"),
        ("1st", "v"),
        ("twentyonecharacters21", "v"),
    ];
    for (name, value) in forbidden {
        let headers = cloudevents::to_binary(&with_header(name, value), &source());
        let (last, list) = headers.last().unwrap();
        assert!(last == "ce-hapaxheaders" && list.starts_with(&format!("{name}=")), "{name}: {headers:?}");
    }
}

#[test]
fn the_id_of_a_foreign_event_is_source_and_id() {
    let read = read_event(&[("content-type", "application/json")]).unwrap();
    assert_eq!(read.message_id.to_string(), "https://erp 17");
    assert_eq!(read.message_type.as_str(), "erp.order");
    assert_eq!(pairs(&read.headers), [("source", "https://erp"), ("id", "17")]);
}

#[test]
fn foreign_events_that_differ_in_source_or_id_are_different_messages() {
    let long = "x".repeat(300);
    let events = [
        ("a", "b"),
        ("a", "c"),
        ("b", "b"),
        ("a", "b c"),
        ("a b", "c"),
        ("a b", "c d"),
        ("a", "b c d"),
        ("ab", "c"),
        ("a", "bc"),
        ("a", &long),
        (&long, "a"),
        ("b", &long),
        ("a", "b\nc"),
        ("a\nb", "c"),
        ("a ", "b"),
        ("a", " b"),
    ];
    let encode = |text: &str| text.replace(' ', "%20").replace('\n', "%0A");
    let ids: Vec<_> = events
        .map(|(source, id)| read_event(&[("ce-source", &encode(source)), ("ce-id", &encode(id))]).unwrap().message_id)
        .to_vec();
    assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), events.len());
}

#[test]
fn an_id_too_long_is_hashed_and_kept_as_a_header() {
    let long = "x".repeat(300);
    let read = read_event(&[("ce-id", &long)]).unwrap();
    assert_eq!(
        read.message_id.to_string(),
        "cloudevents-sha256:24b5142c4540832d6fbab0eec9a1c2d560e66442b81b8fef5be82bcfbd2a0080"
    );
    assert_eq!(read.headers.value("id"), Some(long.as_str()));
}

#[test]
fn an_event_derived_from_ours_by_another_is_foreign() {
    let mut envelope = envelope();
    envelope.idempotency_key = Some("once".parse().unwrap());
    let headers = cloudevents::to_binary(&envelope, &source()).into_iter().map(|(name, value)| {
        let value = if name == "ce-id" { "derived".to_owned() } else { value };
        (name, value)
    });
    let read = cloudevents::from_binary(headers, "{}").unwrap();
    assert_eq!(read.message_id.to_string(), "/shop derived");
    assert_eq!(read.idempotency_key, None);
    assert_eq!(read.headers.value("hapaxidempotencykey"), Some("once"));
    assert_eq!(read.headers.value("hapaxmessageid"), Some("m"));
}

#[test]
fn a_foreign_producer_may_have_its_ids_taken_as_they_are() {
    let read = read_event(&[("ce-hapaxmessageid", "17"), ("ce-hapaxschema", "2")]).unwrap();
    assert_eq!((read.message_id.to_string(), read.schema), ("17".to_owned(), 2));
    assert!(read.headers.is_empty());
}

#[test]
fn documented_attributes_of_a_foreign_event_become_fields() {
    let read = read_event(&[
        ("ce-time", "2018-04-05T17:31:00+02:00"),
        ("ce-partitionkey", "p"),
        ("ce-traceparent", "00-a-b-01"),
        ("ce-correlationid", "c"),
        ("ce-causationid", "16"),
        ("ce-expirytime", "2018-04-06T00:00:00Z"),
    ])
    .unwrap();
    assert_eq!(read.occurred_at, Some(Timestamp::parse("2018-04-05T15:31:00Z").unwrap()));
    assert_eq!(read.partition_key.unwrap().as_str(), "p");
    assert_eq!(read.traceparent.unwrap().as_str(), "00-a-b-01");
    assert_eq!(read.correlation_id.unwrap().as_str(), "c");
    assert_eq!(read.causation_id.unwrap().to_string(), "16");
    assert_eq!(read.expires, Some(Timestamp::parse("2018-04-06T00:00:00Z").unwrap()));
}

#[test]
fn attributes_that_do_not_fit_their_field_do_not_lose_a_foreign_event() {
    let long = "x".repeat(300);
    let read = read_event(&[("ce-time", "1969-07-20T20:17:40Z"), ("ce-partitionkey", &long)]).unwrap();
    assert_eq!((read.occurred_at, read.partition_key), (None, None));
    assert_eq!(read.headers.value("time"), Some("1969-07-20T20:17:40Z"));
    assert_eq!(read.headers.value("partitionkey"), Some(long.as_str()));
}

#[test]
fn extensions_of_a_foreign_event_are_headers_and_become_extensions_again() {
    let read = read_event(&[("CE-Subject", "s"), ("ce-comexample", "Euro%20%E2%82%AC%20%f0%9f%98%80")]).unwrap();
    assert_eq!(read.headers.value("comexample"), Some("Euro € 😀"));
    let again = cloudevents::to_binary(&read, &source());
    assert!(again.contains(&("ce-subject".to_owned(), "s".to_owned())));
    assert!(again.contains(&("ce-comexample".to_owned(), "Euro%20%E2%82%AC%20%F0%9F%98%80".to_owned())));
}

#[test]
fn a_quoted_value_of_an_older_draft_is_read() {
    let read = read_event(&[("ce-subject", r#""a \"b\" \\ %41""#)]).unwrap();
    assert_eq!(read.headers.value("subject"), Some(r#"a "b" \ A"#));
}

#[test]
fn a_value_that_is_no_utf_8_when_decoded_is_refused() {
    let error = read_event(&[("ce-subject", "%C0%A0")]).unwrap_err();
    assert!(matches!(error, ReadError::Invalid { .. }), "{error}");
}

#[test]
fn an_event_of_another_version_is_refused() {
    for version in ["0.3", "1.1", "2.0", "1"] {
        let error = read_event(&[("ce-specversion", version)]).unwrap_err();
        assert_eq!(error, ReadError::UnknownVersion { found: version.to_owned() });
    }
}

#[test]
fn an_event_without_a_required_attribute_is_an_error_that_names_it() {
    for required in ["specversion", "id", "source", "type"] {
        let header = format!("ce-{required}");
        let headers = event(&[]).into_iter().filter(|(name, _)| *name != header);
        let error = cloudevents::from_binary(headers, "").unwrap_err();
        assert!(matches!(error, ReadError::Missing { name, .. } if name == required), "{error}");
    }
    for required in ["ce-id", "ce-source", "ce-type"] {
        assert!(matches!(read_event(&[(required, "")]), Err(ReadError::Missing { .. })), "{required}");
    }
}

#[test]
fn an_event_without_a_content_type_is_not_guessed_at() {
    assert_eq!(read_event(&[]).unwrap().content_type.as_str(), "application/octet-stream");
}

#[test]
fn a_gateway_that_writes_a_structured_event_in_binary_mode_loses_nothing() {
    let mut envelope = with_header("a-b", "1");
    envelope.headers.set("subject", "2").unwrap();
    envelope.headers.set("c.d", "").unwrap();
    envelope.schema = 2;
    let mut headers = Vec::new();
    for (name, value) in json_of(&envelope).as_object().unwrap() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match name.as_str() {
            "data" => {}
            "datacontenttype" => headers.push(("Content-Type".to_owned(), text)),
            name => headers.push((format!("Ce-{name}"), text.replace('%', "%25"))),
        }
    }
    assert_eq!(cloudevents::from_binary(headers, envelope.body.clone()).unwrap(), envelope);
}

#[test]
fn a_source_is_a_uri_reference() {
    for text in ["https://shop.example/a?b#c", "/orders", "urn:uuid:6e8bc430", "1-555-123-4567", "a%20b"] {
        assert_eq!(Source::parse(text).unwrap().as_str(), text);
    }
    for malformed in ["", "a b", "é", "<a>", "a\n", &"x".repeat(256)] {
        assert!(Source::parse(malformed).is_err(), "{malformed:?}");
    }
}

// Structured mode.

#[test]
fn a_json_body_stands_in_data_byte_for_byte() {
    for body in [r#"{"b": 1.0, "a":[1e3,"\u00e9"], "a": null}"#, "null", "\"x\"", "[1,\n 2]"] {
        let mut envelope = envelope();
        envelope.body = body.into();
        let json = cloudevents::to_structured(&envelope, &source());
        assert!(String::from_utf8(json.clone()).unwrap().ends_with(&format!("\"data\":{body}}}")));
        assert_eq!(Fingerprint::of(&cloudevents::from_structured(&json).unwrap()), Fingerprint::of(&envelope));
    }
}

#[test]
fn a_body_that_json_would_change_stands_in_base64() {
    for (content_type, body) in [
        ("application/json", &b" {}"[..]),
        ("application/json", b"{}\n"),
        ("application/json", b"{"),
        ("application/json", b""),
        ("application/json", b"\"\xff\""),
        ("application/msgpack", b"\x80"),
        ("text/plain", b"{}"),
    ] {
        let mut envelope = envelope();
        envelope.content_type = ContentType::parse(content_type).unwrap();
        envelope.body = bytes::Bytes::from_static(body);
        let json = json_of(&envelope);
        assert!(json.get("data").is_none() && json["data_base64"].is_string(), "{json}");
        assert_eq!(cloudevents::from_structured(&serde_json::to_vec(&json).unwrap()).unwrap(), envelope);
    }
}

#[test]
fn numbers_and_flags_have_their_json_types() {
    let mut envelope = envelope();
    envelope.schema = 2;
    envelope.timeout = true;
    let json = json_of(&envelope);
    assert_eq!((&json["hapaxschema"], &json["hapaxtimeout"]), (&2.into(), &true.into()));
}

#[test]
fn foreign_data_is_read_by_its_content_type() {
    let of = |members: &str| {
        let read = read_json(members).unwrap();
        (read.content_type.to_string(), String::from_utf8(read.body.to_vec()).unwrap())
    };
    let expect = |content_type: &str, body: &str| (content_type.to_owned(), body.to_owned());
    assert_eq!(of(r#","data": {"a" : 1} "#), expect("application/json", r#"{"a" : 1}"#));
    assert_eq!(of(r#","data":"text""#), expect("application/json", "\"text\""));
    assert_eq!(of(r#","data":null"#), expect("application/json", "null"));
    assert_eq!(of(r#","datacontenttype":"text/xml","data":"<a x=\"1\"/>""#), expect("text/xml", r#"<a x="1"/>"#));
    assert_eq!(of(r#","datacontenttype":"a/b+JSON;c=d","data":"x""#), expect("a/b+JSON;c=d", "\"x\""));
    assert_eq!(of(r#","data_base64":"YWI=""#), expect("application/octet-stream", "ab"));
    assert_eq!(of(r#","data_base64":"YWI","datacontenttype":"text/plain""#), expect("text/plain", "ab"));
    assert_eq!(of(""), expect("application/json", ""));
}

#[test]
fn attributes_of_any_json_type_are_kept_as_text() {
    let read = read_json(r#","n":5,"b":true,"s":"a\nb","nothing":null,"time":null,"o":{"x": 1}"#).unwrap();
    let extensions = &pairs(&read.headers)[2..];
    assert_eq!(extensions, [("n", "5"), ("b", "true"), ("s", "a%0Ab"), ("o", "{\"x\": 1}")]);
}

#[test]
fn a_malformed_structured_event_is_an_error() {
    for json in ["", "{", "[]", "null", "1", "{} x", "{\"id\":}", "\u{feff}{}", "{\"a\":1,}"] {
        let error = cloudevents::from_structured(json.as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::Malformed { .. }), "{json}: {error}");
    }
    assert!(matches!(read_json(r#","data":1,"data_base64":"YQ==""#), Err(ReadError::Malformed { .. })));
    assert!(matches!(read_json(r#","data_base64":"?""#), Err(ReadError::Malformed { .. })));
    assert!(matches!(read_json(r#","data_base64":1"#), Err(ReadError::Malformed { .. })));
}

#[test]
fn an_attribute_given_twice_with_different_values_is_an_error() {
    for (members, name) in [(r#","id":"18""#, "id"), (r#","data":1,"data":1"#, "data")] {
        assert_eq!(read_json(members).unwrap_err(), ReadError::Repeated { name: name.to_owned() });
    }
}
