//! Debezium's outbox event router, as far as our settings use it, after its documentation ("Outbox Event Router") and that of
//! Kafka's `RegexRouter`. It is no Debezium: what both get wrong alike nobody sees here.

use std::collections::{BTreeMap, HashMap};

use hapax::stores::postgres::outbox::DebeziumConnector;
use serde_json::Value;
use sqlx::PgPool;

/// What Kafka is given.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) topic: String,
    pub(crate) key: Option<String>,
    pub(crate) headers: Vec<(String, Option<String>)>,
    pub(crate) value: Vec<u8>,
}

pub(crate) struct Router {
    pub(crate) config: BTreeMap<String, String>,
}

impl Router {
    pub(crate) fn new(connector: &DebeziumConnector) -> Self {
        let json: Value = serde_json::from_str(&connector.to_json().unwrap()).unwrap();
        let config = json["config"].as_object().unwrap();
        let text = |value: &Value| value.as_str().expect("Kafka Connect takes texts").to_owned();
        Self { config: config.iter().map(|(name, value)| (name.clone(), text(value))).collect() }
    }

    /// A setting of the router.
    pub(crate) fn of(&self, name: &str) -> &str {
        self.config.get(&format!("transforms.outbox.{name}")).map_or("", String::as_str)
    }

    /// Columns that become headers, and under which names.
    pub(crate) fn placed(&self) -> Vec<(String, String)> {
        let pairs = self.of("table.fields.additional.placement").split(',').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| match pair.split(':').collect::<Vec<_>>()[..] {
            [column, "header", header] => (column.to_owned(), header.to_owned()),
            _ => panic!("{pair}"),
        };
        pairs.map(pair).collect()
    }

    /// What Java's `matches` and `replaceFirst` make of `value`, by the server's own regular expressions, which number their
    /// groups.
    pub(crate) async fn topic(&self, pool: &PgPool, value: &str) -> String {
        let (mut regex, mut replacement) =
            (self.of("route.topic.regex").to_owned(), self.of("route.topic.replacement").to_owned());
        let mut number = 0;
        while let Some((before, rest)) = regex.split_once("(?<") {
            let (name, behind) = rest.split_once('>').unwrap();
            number += 1;
            replacement = replacement.replace(&format!("${{{name}}}"), &format!("\\{number}"));
            regex = format!("{before}({behind}");
        }
        assert!(!replacement.contains('$'), "{replacement}");
        let sql = "SELECT CASE WHEN $1 ~ $2 THEN regexp_replace($1, $2, $3) ELSE $1 END";
        let whole = format!("^(?:{regex})$");
        let topic: String =
            sqlx::query_scalar(sql).bind(value).bind(whole).bind(replacement).fetch_one(pool).await.unwrap();
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(topic.chars().all(legal) && (1..=249).contains(&topic.len()), "`{topic}` is no topic");
        topic
    }

    /// What becomes of one change, as `test_decoding` tells it.
    pub(crate) async fn apply(&self, pool: &PgPool, told: &str, change: &str) -> Option<Record> {
        let row = columns(change.strip_prefix(told)?.strip_prefix("INSERT: ")?);
        let column = |name: &str| row.get(name).unwrap_or_else(|| panic!("no column `{name}`")).clone();
        let mut headers = vec![("id".to_owned(), column(self.of("table.field.event.id")))];
        headers.extend(self.placed().into_iter().map(|(of, header)| (header, column(&of))));
        let payload = column(self.of("table.field.event.payload")).expect("null would be a tombstone");
        let value = if self.of("table.expand.json.payload") == "true" {
            assert!(payload.starts_with(['{', '[']), "nothing else is expanded: {payload}");
            let json: Value = serde_json::from_str(&payload).unwrap();
            json.to_string().into_bytes()
        } else {
            let hex = payload.strip_prefix("\\x").expect("bytes");
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(byte).collect()
        };
        let routed = column(self.of("route.by.field")).expect("never null");
        let key = column(self.of("table.field.event.key"));
        Some(Record { topic: self.topic(pool, &routed).await, key, headers, value })
    }
}

/// `NAME[TYPE]:VALUE`, as often as it comes.
pub(crate) fn columns(told: &str) -> HashMap<String, Option<String>> {
    let (mut columns, mut rest) = (HashMap::new(), told);
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('[').unwrap();
        let (_, value) = behind.split_once("]:").unwrap();
        let (value, behind) = match value.strip_prefix('\'') {
            None => {
                let (value, behind) = value.split_once(' ').unwrap_or((value, ""));
                ((value != "null").then(|| value.to_owned()), behind)
            }
            Some(quoted) => {
                let (mut text, mut left) = (String::new(), quoted);
                loop {
                    let (before, behind) = left.split_once('\'').unwrap();
                    text.push_str(before);
                    let Some(more) = behind.strip_prefix('\'') else { break (Some(text), behind.trim_start()) };
                    text.push('\'');
                    left = more;
                }
            }
        };
        columns.insert(name.trim_matches('"').to_owned(), value);
        rest = behind;
    }
    columns
}
