//! Settings with which Debezium sends what is in the table, instead of a relay.
//!
//! The outbox event router of Debezium reads the table as it is, from the server's log. What it takes no account of is said at
//! [`PostgresOutboxOptions::debezium`](super::PostgresOutboxOptions::debezium), by which a table is given to it.
//!
//! **Untested against Debezium itself**: the settings are compared with its documentation, with the real table, and with what
//! PostgreSQL's logical decoding says of real rows.

mod replacement;

use hapax_core::{
    envelope::{Destination, Envelope, Outgoing},
    ports::{ErrorKind, StoreError},
};
use serde_json::{Map, Value, json};

use super::super::{PostgresOptions, names::Names};

const OPERATION: &str = "writing Debezium's settings";
/// Of the slot and the publication: PostgreSQL's limit of a name.
const NAME_BYTES_MAX: usize = 63;
/// Kafka takes topics of 249 bytes; what is put around a name has the rest, see [`replacement`].
const ROUTED_BYTES_MAX: usize = hapax_core::ids::NAME_BYTES_MAX;
/// Text of the body, in a column that [`DebeziumConnector::sql`] adds.
const BODY_TEXT: &str = "body_text";
/// What headers may show. The id is always one, under `id`.
const HEADERS: [&str; 9] = [
    "type",
    "content_type",
    "correlation_id",
    "causation_id",
    "tenant",
    "traceparent",
    "occurred_at",
    "expires_at",
    "headers",
];

/// By which column a message gets its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RouteBy {
    /// `endpoint:NAME` or `topic:TYPE`. NAME or TYPE is `${routedByValue}`, `endpoint` or `topic` is `${kind}`: a colon is not
    /// for the name of a topic.
    #[default]
    Destination,
    /// The type, whoever it is for: `${routedByValue}`.
    Type,
}

/// A connector's settings, as Kafka Connect is given them. From [`DebeziumConnector::of`].
#[derive(Debug, Clone)]
#[must_use]
pub struct DebeziumConnector {
    database: PostgresOptions,
    name: String,
    slot: Option<String>,
    password: String,
    route_by: RouteBy,
    topic: Option<String>,
    expand: bool,
    headers: Vec<(String, String)>,
}

impl DebeziumConnector {
    /// For the outbox in `database`, under the usual names: connector `hapax-outbox`, slot and publication after the table,
    /// password `${env:HAPAX_DEBEZIUM_PASSWORD}`, every column of the message as a header under the column's name. Of the URL
    /// only host, port, user and database are used.
    pub fn of(database: PostgresOptions) -> Self {
        let headers = HEADERS.map(|column| (column.to_owned(), column.to_owned())).to_vec();
        Self {
            database,
            name: "hapax-outbox".to_owned(),
            slot: None,
            password: "${env:HAPAX_DEBEZIUM_PASSWORD}".to_owned(),
            route_by: RouteBy::default(),
            topic: None,
            expand: false,
            headers,
        }
    }

    /// The connector's name, and what its own topics (heartbeats) begin with: ASCII letters, digits, `.`, `_` and `-`.
    pub fn connector_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Name of the replication slot and of the publication: lower-case ASCII letters, digits and `_`, at most 63. Default
    /// `SCHEMA_TABLE`.
    pub fn slot(mut self, slot: impl Into<String>) -> Self {
        self.slot = Some(slot.into());
        self
    }

    /// Where Kafka Connect finds the password: a placeholder `${PROVIDER:KEY}` or `${PROVIDER:PATH:KEY}` of one of its
    /// `config.providers`. A password itself is refused, since these settings are read by many.
    pub fn password(mut self, placeholder: impl Into<String>) -> Self {
        self.password = placeholder.into();
        self
    }

    /// By which column a message gets its topic. Default by its destination.
    pub const fn route_by(mut self, route_by: RouteBy) -> Self {
        self.route_by = route_by;
        self
    }

    /// The topic's name, with `${routedByValue}` and, by destination, `${kind}` in it. Default
    /// `outbox.${kind}.${routedByValue}` by destination, so that an endpoint and a type of one name have two topics;
    /// `outbox.event.${routedByValue}` by type. What stands around the placeholders has at most 149 bytes, and is what names of
    /// topics may hold.
    pub fn topic_replacement(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Whether the body becomes JSON with a schema, instead of the bytes as they are. The router expands texts only: it needs a
    /// column more, which [`sql`](Self::sql) adds, and which each body fills a second time. Members that are `null` are left
    /// out by the router. Default no.
    pub const fn expand_payload(mut self, expand: bool) -> Self {
        self.expand = expand;
        self
    }

    /// Which columns become headers, and under which names, instead of all. Empty: only `id`, which always is one.
    pub fn headers<C: Into<String>, H: Into<String>>(mut self, headers: impl IntoIterator<Item = (C, H)>) -> Self {
        self.headers = headers.into_iter().map(|(column, header)| (column.into(), header.into())).collect();
        self
    }

    /// The settings as Kafka Connect's REST interface takes them: `{"name": .., "config": {..}}`, every value a text.
    ///
    /// # Errors
    /// `Misconfigured`: what Debezium could not work with, in one line with the remedy.
    pub fn to_json(&self) -> Result<String, StoreError> {
        let names = Names::new(&self.database, OPERATION)?;
        let (schema, table) = (names.schema(), names.table("outbox"));
        let place = self.database.place(OPERATION)?;
        let slot = self.slot_of(schema, &table)?;
        self.check()?;
        let mut config = Map::new();
        let mut set = |name: &str, value: &str| config.insert(name.to_owned(), json!(value));
        set("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        set("tasks.max", "1");
        set("database.hostname", place.get_host());
        set("database.port", &place.get_port().to_string());
        set("database.user", place.get_username());
        set("database.password", &self.password);
        set("database.dbname", place.get_database().unwrap_or_else(|| place.get_username()));
        set("topic.prefix", &self.name);
        set("plugin.name", "pgoutput");
        set("slot.name", &slot);
        set("publication.name", &slot);
        set("publication.autocreate.mode", "filtered");
        // A regular expression.
        set("table.include.list", &format!("{schema}\\.{table}"));
        // What was stored before the slot was there is sent as well; not what a relay had sent.
        set("snapshot.mode", "initial");
        set("snapshot.select.statement.overrides", &format!("{schema}.{table}"));
        let waiting = format!("SELECT * FROM \"{schema}\".\"{table}\" WHERE status = 0");
        set(&format!("snapshot.select.statement.overrides.{schema}.{table}"), &waiting);
        set("tombstones.on.delete", "false");
        set("binary.handling.mode", "bytes");
        // While only other tables change, the slot would hold the server's log back. In a transaction, since nothing else sees
        // to it that the server writes the word to its log at once.
        set("heartbeat.interval.ms", "10000");
        set("heartbeat.action.query", "SELECT pg_logical_emit_message(true, 'hapax-heartbeat', '')");
        set("message.prefix.exclude.list", "hapax-heartbeat");
        self.set_converters(&mut set);
        self.set_router(&mut set, schema, &table);
        let text = serde_json::to_string_pretty(&json!({ "name": self.name, "config": Value::Object(config) }));
        text.map_err(|error| wrong(error.to_string()))
    }

    fn set_converters(&self, set: &mut dyn FnMut(&str, &str) -> Option<Value>) {
        const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
        set("key.converter", "org.apache.kafka.connect.storage.StringConverter");
        set("header.converter", "org.apache.kafka.connect.storage.StringConverter");
        if self.expand {
            set("value.converter", JSON);
            set("value.converter.schemas.enable", "false");
        } else {
            // Heartbeats are no bytes, and go to the other one.
            set("value.converter", "io.debezium.converters.BinaryDataConverter");
            set("value.converter.delegate.converter.type", JSON);
            set("value.converter.delegate.converter.type.schemas.enable", "false");
        }
    }

    fn set_router(&self, set: &mut dyn FnMut(&str, &str) -> Option<Value>, schema: &str, table: &str) {
        set("predicates", "outbox");
        set("predicates.outbox.type", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches");
        let rows = format!("{}\\.{schema}\\.{table}", self.name.replace('.', "\\."));
        set("predicates.outbox.pattern", &rows);
        set("transforms", "outbox");
        let mut set = |name: &str, value: &str| set(&format!("transforms.outbox.{name}"), value);
        set("type", "io.debezium.transforms.outbox.EventRouter");
        set("predicate", "outbox");
        set("table.field.event.id", "id");
        set("table.field.event.key", "key");
        set("table.field.event.payload", if self.expand { BODY_TEXT } else { "body" });
        set("table.expand.json.payload", if self.expand { "true" } else { "false" });
        let headers: Vec<String> =
            self.headers.iter().map(|(column, header)| format!("{column}:header:{header}")).collect();
        if !headers.is_empty() {
            set("table.fields.additional.placement", &headers.join(","));
        }
        // Nobody changes rows of such a table; one that is changed all the same must not stop what comes behind it.
        set("table.op.invalid.behavior", "error");
        let (field, regex) = match self.route_by {
            RouteBy::Destination => ("destination", "(?<kind>endpoint|topic):(?<routedByValue>.*)"),
            RouteBy::Type => ("type", "(?<routedByValue>.*)"),
        };
        set("route.by.field", field);
        set("route.topic.regex", regex);
        set("route.topic.replacement", self.topic());
        // An empty body is a message.
        set("route.tombstone.on.empty.payload", "false");
    }

    /// What the table needs for [`expand_payload`](Self::expand_payload), as SQL to be applied once, before the connector is
    /// started and by the owner of the table; empty where nothing is needed. A message that does not say it is JSON is refused by the table
    /// from then on, in the transaction that stores it: the router would lose it.
    ///
    /// # Errors
    /// Names that are none.
    pub fn sql(&self) -> Result<String, StoreError> {
        let names = Names::new(&self.database, OPERATION)?;
        Ok(if self.expand { names.put_into(include_str!("debezium/expand.sql")) } else { String::new() })
    }

    fn topic(&self) -> &str {
        self.topic.as_deref().unwrap_or(match self.route_by {
            RouteBy::Destination => "outbox.${kind}.${routedByValue}",
            RouteBy::Type => "outbox.event.${routedByValue}",
        })
    }

    fn slot_of(&self, schema: &str, table: &str) -> Result<String, StoreError> {
        let slot = self.slot.clone().unwrap_or_else(|| format!("{schema}_{table}"));
        let usual = slot.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if usual && (1..=NAME_BYTES_MAX).contains(&slot.len()) {
            return Ok(slot);
        }
        Err(wrong(format!(
            "slot `{}`: name one with `slot`, of lower-case ASCII letters, digits and _, at most {NAME_BYTES_MAX}",
            slot.escape_debug()
        )))
    }

    fn check(&self) -> Result<(), StoreError> {
        let Self { name, password, headers, .. } = self;
        if !is_topic(name, ROUTED_BYTES_MAX) {
            let shown = name.escape_debug();
            return Err(wrong(format!("connector `{shown}`: use ASCII letters, digits and . _ - only, at most 100")));
        }
        if !is_placeholder(password) {
            return Err(wrong(
                "the password is shown in the settings: give a placeholder of Kafka Connect, as `${env:NAME}` or \
                 `${file:PATH:KEY}`",
            ));
        }
        replacement::check(self.topic(), self.route_by).map_err(wrong)?;
        let mut seen = vec!["id"];
        for (column, header) in headers {
            let shown = (column.escape_debug(), header.escape_debug());
            if !HEADERS.contains(&column.as_str()) {
                let (all, column) = (HEADERS.join(", "), shown.0);
                return Err(wrong(format!(
                    "column `{column}` is none for a header: use some of {all}; `id` always is one"
                )));
            }
            if !is_topic(header, ROUTED_BYTES_MAX) {
                return Err(wrong(format!("header `{}`: use ASCII letters, digits and . _ - only", shown.1)));
            }
            if seen.contains(&header.as_str()) {
                return Err(wrong(format!("header `{}` is there twice: give one of them another name", shown.1)));
            }
            seen.push(header);
        }
        Ok(())
    }
}

/// Why Debezium could not send `outgoing` as it is meant.
pub(in crate::sql) fn refusal(outgoing: &Outgoing) -> Option<String> {
    let Envelope { message_type, due, .. } = &*outgoing.envelope;
    let routed = match &outgoing.destination {
        Destination::Endpoint(name) => name.as_str(),
        Destination::Topic(name) => name.as_str(),
    };
    if due.is_some() {
        return Some("this outbox is Debezium's, which sends at commit: leave its due time out".to_owned());
    }
    let name = [routed, message_type.as_str()].into_iter().find(|name| !is_topic(name, ROUTED_BYTES_MAX))?;
    Some(format!(
        "this outbox is Debezium's, and `{}` can be no part of a topic of Kafka: use ASCII letters, digits and . _ - only",
        name.escape_debug()
    ))
}

fn is_topic(name: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_placeholder(text: &str) -> bool {
    let inner = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inner.and_then(|inner| inner.split_once(':')).is_some_and(|(provider, key)| {
        !provider.is_empty() && !key.is_empty() && !key.contains(['{', '}', '$']) && !provider.contains(['{', '}', '$'])
    })
}

fn wrong(why: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, OPERATION, why.into())
}

#[cfg(test)]
mod tests;
