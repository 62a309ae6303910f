//! A message as a row.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use hapax_core::{
    envelope::{ContentType, Destination, Envelope, Headers, Outgoing},
    ids::{CausationId, InvalidId, MessageId, TypeName},
    time::Timestamp,
};
use serde::{
    Deserializer, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use uuid::Uuid;

const IDEMPOTENCY_KEY: &str = "hapax-idempotency-key";
const SCHEMA: &str = "hapax-schema";
const REPLY_TO: &str = "hapax-reply-to";
const TIMEOUT: &str = "hapax-timeout";

/// The columns of a message, as they are bound and read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::sql) struct Row {
    pub(in crate::sql) id: Uuid,
    pub(in crate::sql) destination: String,
    pub(in crate::sql) key: Option<String>,
    pub(in crate::sql) message_type: String,
    pub(in crate::sql) content_type: String,
    pub(in crate::sql) correlation_id: Option<String>,
    pub(in crate::sql) causation_id: Option<String>,
    pub(in crate::sql) tenant: Option<String>,
    pub(in crate::sql) traceparent: Option<String>,
    pub(in crate::sql) occurred_at: Option<i64>,
    pub(in crate::sql) due_at: Option<i64>,
    pub(in crate::sql) expires_at: Option<i64>,
    pub(in crate::sql) headers: Option<String>,
    pub(in crate::sql) body: Bytes,
}

impl Row {
    /// The row of `outgoing`; `None` for an id that is no UUID.
    pub(in crate::sql) fn of(outgoing: &Outgoing) -> Option<Self> {
        let Outgoing { destination, envelope } = outgoing;
        let millis = |time: Timestamp| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Some(Self {
            id: envelope.message_id.as_uuid()?,
            destination: destination.to_string(),
            key: envelope.partition_key.as_ref().map(|key| key.as_str().to_owned()),
            message_type: envelope.message_type.as_str().to_owned(),
            content_type: envelope.content_type.as_str().to_owned(),
            correlation_id: envelope.correlation_id.as_ref().map(|id| id.as_str().to_owned()),
            causation_id: envelope.causation_id.as_ref().map(ToString::to_string),
            tenant: envelope.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()),
            traceparent: envelope.traceparent.as_ref().map(|trace| trace.as_str().to_owned()),
            occurred_at: envelope.occurred_at.map(millis),
            due_at: envelope.due.map(millis),
            expires_at: envelope.expires.map(millis),
            headers: headers(envelope),
            body: envelope.body.clone(),
        })
    }

    /// The message again.
    ///
    /// # Errors
    /// Why it cannot be read: another program has written it, or changed it.
    pub(in crate::sql) fn outgoing(self) -> Result<Outgoing, String> {
        let column = |name: &'static str| move |error: InvalidId| format!("column `{name}`: {error}");
        let time =
            |millis: Option<i64>| millis.and_then(|millis| u64::try_from(millis).ok()).map(Timestamp::from_millis);
        let destination = Destination::parse(&self.destination).map_err(column("destination"))?;
        let message_type = self.message_type.parse::<TypeName>().map_err(column("type"))?;
        let mut envelope = Envelope::new(MessageId::from(self.id), message_type, self.body);
        envelope.content_type = ContentType::parse(&self.content_type).map_err(column("content_type"))?;
        envelope.partition_key = parsed(self.key, "key")?;
        envelope.correlation_id = parsed(self.correlation_id, "correlation_id")?;
        envelope.causation_id = parsed::<MessageId>(self.causation_id, "causation_id")?.map(CausationId);
        envelope.tenant = parsed(self.tenant, "tenant")?;
        envelope.traceparent = parsed(self.traceparent, "traceparent")?;
        envelope.occurred_at = time(self.occurred_at);
        envelope.due = time(self.due_at);
        envelope.expires = time(self.expires_at);
        if let Some(headers) = self.headers {
            set_headers(&mut envelope, &headers).map_err(|error| format!("column `headers`: {error}"))?;
        }
        Ok(Outgoing { destination, envelope: Arc::new(envelope) })
    }
}

fn parsed<T: std::str::FromStr<Err = InvalidId>>(text: Option<String>, name: &str) -> Result<Option<T>, String> {
    text.map(|text| text.parse().map_err(|error| format!("column `{name}`: {error}"))).transpose()
}

/// A JSON object of the application's headers, in their order, and of what has no column of its own.
fn headers(envelope: &Envelope) -> Option<String> {
    let Envelope { idempotency_key, schema, reply_to, timeout, headers, .. } = envelope;
    let schema = (*schema != 1).then(|| schema.to_string());
    let reply_to = reply_to.as_ref().map(ToString::to_string);
    let own = [
        (IDEMPOTENCY_KEY, idempotency_key.as_ref().map(|key| key.as_str())),
        (SCHEMA, schema.as_deref()),
        (REPLY_TO, reply_to.as_deref()),
        (TIMEOUT, timeout.then_some("true")),
    ];
    let own = own.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let mut all = own.chain(headers.iter()).peekable();
    all.peek()?;
    let mut text = Vec::new();
    let mut json = serde_json::Serializer::new(&mut text);
    let written = json.serialize_map(None).and_then(|mut map| {
        for (name, value) in all {
            map.serialize_entry(name, value)?;
        }
        map.end()
    });
    written.ok().and_then(|()| String::from_utf8(text).ok())
}

fn set_headers(envelope: &mut Envelope, text: &str) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_str(text);
    // Its own words may hold what stands there.
    let bad = |error: serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        format!("it is not a JSON object of texts, at line {line} column {column}")
    };
    let pairs = json.deserialize_map(Pairs).map_err(bad)?;
    json.end().map_err(bad)?;
    let mut headers = Headers::default();
    for (name, value) in pairs {
        let bad = |error: InvalidId| format!("`{}`: {error}", name.escape_debug());
        match &*name {
            IDEMPOTENCY_KEY => envelope.idempotency_key = Some(value.parse().map_err(bad)?),
            SCHEMA => envelope.schema = value.parse().map_err(|_| format!("`{SCHEMA}` is not 0 to 255"))?,
            REPLY_TO => envelope.reply_to = Some(Destination::parse(&value).map_err(bad)?),
            TIMEOUT => envelope.timeout = value == "true",
            _ => headers.set(&name, &value).map_err(bad)?,
        }
    }
    envelope.headers = headers;
    Ok(())
}

/// A JSON object's members, all text, in their order.
struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use hapax_core::{
        envelope::{ContentType, Destination, Envelope, Outgoing},
        ids::{CausationId, MessageId, TypeName},
        time::Timestamp,
    };

    use super::Row;
    use crate::golden;

    fn outgoing(change: impl FnOnce(&mut Envelope)) -> Outgoing {
        let mut envelope = Envelope::new(MessageId::random(), TypeName::parse("shop.order-placed").unwrap(), "{}");
        change(&mut envelope);
        Outgoing { destination: Destination::parse("endpoint:billing").unwrap(), envelope: Arc::new(envelope) }
    }

    #[test]
    fn a_message_is_the_same_when_it_comes_back() {
        let bare = outgoing(|_| {});
        assert_eq!(Row::of(&bare).unwrap().outgoing().unwrap(), bare);
        assert_eq!(Row::of(&bare).unwrap().headers, None);
        let full = outgoing(|envelope| {
            envelope.idempotency_key = Some("once \"only\"".parse().unwrap());
            envelope.correlation_id = Some("process".parse().unwrap());
            envelope.causation_id = Some(CausationId("before".parse().unwrap()));
            envelope.partition_key = Some("kéy".parse().unwrap());
            envelope.content_type = ContentType::MESSAGE_PACK;
            envelope.schema = 7;
            envelope.headers.set("z-last", "1").unwrap();
            envelope.headers.set("a-first", "2 \u{1f4e6}").unwrap();
            envelope.occurred_at = Some(Timestamp::from_millis(1));
            envelope.due = Some(Timestamp::from_millis(2));
            envelope.expires = Some(Timestamp::MAX);
            envelope.tenant = Some("tenant".parse().unwrap());
            envelope.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
            envelope.reply_to = Some(Destination::parse("endpoint:shop").unwrap());
            envelope.timeout = true;
        });
        assert_eq!(Row::of(&full).unwrap().outgoing().unwrap(), full);
    }

    /// Held still: a row may be stored by one version and sent by another, and other programs read the table. See [`crate::golden`].
    #[test]
    fn a_message_keeps_its_columns() {
        let id = "0190163d-8694-739b-aea5-966c26f8ad91";
        let sent = |envelope: Envelope, to: &str| {
            golden::outgoing(to, Envelope { message_id: id.parse().unwrap(), sequence: None, ..envelope })
        };
        let some = |text: &str| Some(text.to_owned());
        let small = || Row {
            id: id.parse().unwrap(),
            destination: "endpoint:shop".to_owned(),
            message_type: "shop.add-item".to_owned(),
            content_type: "application/json".to_owned(),
            body: r#"{"order":"7"}"#.into(),
            ..Row::default()
        };
        let full = || Row {
            destination: "topic:shop.item-added".to_owned(),
            key: some("7"),
            correlation_id: some("process"),
            causation_id: some("f47ac10b-58cc-4372-a567-0e02b2c3d479"),
            tenant: some("acme"),
            traceparent: some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            occurred_at: Some(1_700_000_000_000),
            due_at: Some(1_700_000_000_001),
            expires_at: Some(1_700_000_060_000),
            headers: some(
                r#"{"hapax-idempotency-key":"intent 1","hapax-schema":"3","hapax-reply-to":"endpoint:desk","hapax-timeout":"true","shop":"Köln 100%","apple":"2nd","content-type":"mine"}"#,
            ),
            body: r#"{"order":"7","note":"ü"}"#.into(),
            ..small()
        };
        for (outgoing, kept) in [
            (sent(golden::small(), "endpoint:shop"), &small as &dyn Fn() -> Row),
            (sent(golden::full(), "topic:shop.item-added"), &full as &dyn Fn() -> Row),
        ] {
            assert_eq!(Row::of(&outgoing).unwrap(), kept());
            let read = kept().outgoing().unwrap();
            assert!(read == outgoing, "read: {read:+#?}\nkept: {outgoing:+#?}");
        }
    }

    #[test]
    fn what_others_have_changed_is_told_by_its_column() {
        let row = || Row::of(&outgoing(|_| {})).unwrap();
        let told = |row: Row| row.outgoing().unwrap_err();
        assert!(told(Row { destination: "billing".into(), ..row() }).contains("`destination`"));
        assert!(told(Row { message_type: String::new(), ..row() }).contains("`type`"));
        assert!(told(Row { headers: Some("[1]".into()), ..row() }).contains("`headers`"));
        assert!(told(Row { headers: Some("{\"hapax-schema\":\"x\"}".into()), ..row() }).contains("hapax-schema"));
        assert!(told(Row { key: Some(String::new()), ..row() }).contains("`key`"));
    }

    #[test]
    fn only_uuids_are_ids_of_rows() {
        let other = outgoing(|envelope| envelope.message_id = "not-a-uuid".parse().unwrap());
        assert_eq!(Row::of(&other), None);
    }
}
