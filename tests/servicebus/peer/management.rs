//! The node that a queue is managed by: locks that begin anew.

use fe2o3_amqp::types::{
    messaging::{AmqpValue, ApplicationProperties, Body, Message, Properties},
    primitives::{Array, SimpleValue, Timestamp, Value},
};

use super::{
    connection::{Connection, Link},
    locked,
    namespace::{Carried, Token},
};

const RENEW: &str = "com.microsoft:renew-lock";
const RENEW_SESSION: &str = "com.microsoft:renew-session-lock";

impl Connection {
    /// Whether the locks that are named begin anew.
    pub(super) async fn answer(&mut self, channel: u16, queue: &str, request: &Carried) -> Option<()> {
        let asked = request.properties.clone().unwrap_or_default();
        let operation = request
            .application_properties
            .as_ref()
            .and_then(|all| all.0.iter().find_map(|(name, value)| (name == "operation").then(|| value.clone())));
        let Some(SimpleValue::String(operation)) = operation else { panic!("no operation: {operation:?}") };
        let body = match operation.as_str() {
            RENEW => {
                let tokens = tokens_of(request);
                let until = locked(&self.shared).renew(queue, &tokens);
                until.map(|until| ("expirations", Value::Array(Array::from(vec![time(until); tokens.len()]))))
            }
            RENEW_SESSION => {
                let Value::String(id) = asked_in(request, "session-id") else { panic!("no session: {request:?}") };
                let until = locked(&self.shared).renew_session(queue, id);
                until.map(|until| ("expiration", time(until)))
            }
            other => panic!("{other} is not known here"),
        };
        let mut said = ApplicationProperties::default();
        said.insert("statusCode".to_owned(), SimpleValue::Int(if body.is_some() { 200 } else { 410 }));
        let body = match body {
            Some((name, value)) => Value::Map([(Value::String(name.to_owned()), value)].into_iter().collect()),
            None => Value::Null,
        };
        let answer = Message {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: Some(Properties { correlation_id: asked.message_id, ..Properties::default() }),
            application_properties: Some(said),
            body: Body::Value(AmqpValue(body)),
            footer: None,
        };
        let links = &self.sessions.get(&channel)?.links;
        let to = asked.reply_to?;
        let handle = links.iter().find(|(_, link)| matches!(link, Link::Answers { to: its } if *its == to));
        let handle = *handle.unwrap_or_else(|| panic!("nobody hears answers at {to}")).0;
        self.transfer_out(channel, handle, &fastrand::u128(..).to_be_bytes(), &answer).await.map(drop)
    }
}

fn time(millis: i64) -> Value {
    Value::Timestamp(Timestamp::from_milliseconds(millis))
}

/// What a request says under this name.
fn asked_in<'r>(request: &'r Carried, name: &str) -> &'r Value {
    let Body::Value(AmqpValue(Value::Map(body))) = &request.body else { panic!("{:?}", request.body) };
    let found = body.iter().find(|(key, _)| matches!(key, Value::String(key) if key == name));
    found.unwrap_or_else(|| panic!("no {name}: {body:?}")).1
}

/// The locks that a request names.
fn tokens_of(request: &Carried) -> Vec<Token> {
    let Value::Array(tokens) = asked_in(request, "lock-tokens") else { panic!("no tokens: {request:?}") };
    let token = |value: &Value| match value {
        Value::Uuid(uuid) => *uuid.as_inner(),
        other => panic!("{other:?} is no token"),
    };
    tokens.iter().map(token).collect()
}
