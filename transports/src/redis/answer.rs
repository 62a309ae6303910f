//! What the server answers, read.

use ::redis::Value;

/// A field of an entry: its name and its value, as they came.
pub(super) type Field = (Vec<u8>, Vec<u8>);

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) fields: Vec<Field>,
}

pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::Okay => Some("OK".to_owned()),
        _ => None,
    }
}

pub(super) fn array(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        Value::Nil => Some(Vec::new()),
        _ => None,
    }
}

/// `[ID, [NAME, VALUE, NAME, VALUE, ..]]`
pub(super) fn entry(value: Value) -> Option<Entry> {
    let [id, fields]: [Value; 2] = array(value)?.try_into().ok()?;
    let mut parts = array(fields)?.into_iter().map(|part| match part {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    let mut fields = Vec::new();
    while let Some(name) = parts.next() {
        fields.push((name?, parts.next()??));
    }
    Some(Entry { id: text(id)?, fields })
}

pub(super) fn entries(value: Value) -> Option<Vec<Entry>> {
    array(value)?.into_iter().map(entry).collect()
}

/// The value of `name` in `[NAME, VALUE, NAME, VALUE, ..]`.
pub(super) fn named(value: Value, name: &str) -> Option<Value> {
    let mut parts = array(value)?.into_iter();
    while let Some(key) = parts.next() {
        let value = parts.next()?;
        if text(key).is_some_and(|key| key == name) {
            return Some(value);
        }
    }
    None
}

/// The two numbers of an entry's id, by which entries are ordered.
pub(super) fn place(id: &str) -> Option<[u64; 2]> {
    let (millis, number) = id.split_once('-')?;
    Some([millis.parse().ok()?, number.parse().ok()?])
}
