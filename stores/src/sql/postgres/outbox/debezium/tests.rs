//! Settings for Debezium held still, word for word: there is no Debezium here that would show a change which nobody meant.
#![allow(clippy::unwrap_used)]

use super::{super::super::Postgres, DebeziumConnector, RouteBy};

fn connector() -> DebeziumConnector {
    DebeziumConnector::of(Postgres::options("postgres://shop:s3cret@db.example:5433/orders"))
}

/// Compared whole, so that no setting changes by accident.
#[test]
fn the_settings_of_each_variant_are_these() {
    assert_eq!(connector().to_json().unwrap(), include_str!("golden/usual.json").trim_end());
    let database = Postgres::options("postgres://shop@db.example/orders").schema("billing").table_prefix("app_");
    let other = DebeziumConnector::of(database)
        .connector_name("billing.out")
        .slot("billing_slot")
        .password("${file:/etc/kafka/secrets.properties:billing}")
        .route_by(RouteBy::Type)
        .topic_replacement("billing-${routedByValue}")
        .expand_payload(true)
        .headers([("type", "message-type"), ("traceparent", "traceparent")]);
    assert_eq!(other.to_json().unwrap(), include_str!("golden/expanded.json").trim_end());
}

#[test]
fn no_password_is_ever_shown() {
    let json = connector().to_json().unwrap();
    assert!(!json.contains("s3cret"), "{json}");
    for password in ["s3cret", "", "${}", "${env}", "${env:}", "${:x}", "x${env:x}", "${env:x}x", "${a:${b:c}}"] {
        let refused = connector().password(password).to_json().unwrap_err().to_string();
        assert!(refused.contains("${env:NAME}") && !refused.contains("s3cret"), "{password}: {refused}");
    }
    assert!(!format!("{:?}", connector()).contains("s3cret"));
}

#[test]
fn what_debezium_could_not_work_with_is_refused_with_the_remedy() {
    let told = |connector: DebeziumConnector| connector.to_json().unwrap_err().to_string();
    let topic = |topic: &str| told(connector().topic_replacement(topic));
    for wrong in ["", "a:b", "a b", "ü${routedByValue}", "$1", "a$", "${routedByValue", "\\$", "${routed}", "..", "$"]
    {
        assert!(topic(wrong).contains("topic `"), "{wrong}: {}", topic(wrong));
    }
    assert!(topic("${routedByValue}${routedByValue}").contains("one `${routedByValue}`"));
    assert!(topic(&"a".repeat(150)).contains("149 bytes"));
    assert!(connector().topic_replacement("a".repeat(149)).to_json().is_ok());
    assert!(connector().topic_replacement("${kind}-${routedByValue}").to_json().is_ok());
    let kind = connector().route_by(RouteBy::Type).topic_replacement("${kind}.${routedByValue}");
    assert!(told(kind).contains("by destination only"));
    assert!(told(connector().headers([("body", "body")])).contains("`body` is none for a header"));
    assert!(told(connector().headers([("due_at", "due")])).contains("`due_at`"));
    assert!(told(connector().headers([("type", "a,b")])).contains("`a,b`"));
    assert!(told(connector().headers([("type", "id")])).contains("twice"));
    assert!(told(connector().headers([("type", "a"), ("tenant", "a")])).contains("twice"));
    assert!(told(connector().connector_name("a b")).contains("`a b`"));
    assert!(told(connector().connector_name("")).contains("connector ``"));
    assert!(told(connector().slot("Big")).contains("`slot`"));
    let long = Postgres::options("postgres://h/d").schema("s".repeat(30)).table_prefix("p".repeat(30));
    assert!(told(DebeziumConnector::of(long)).contains("`slot`"));
    let none = Postgres::options("mysql://h/d");
    assert!(told(DebeziumConnector::of(none)).contains("postgres://"));
    let schema = Postgres::options("postgres://h/d").schema("a\"b");
    assert!(told(DebeziumConnector::of(schema)).contains("schema"));
}

#[test]
fn only_an_expanded_body_needs_something_of_the_table() {
    assert_eq!(connector().sql().unwrap(), "");
    let sql = connector().expand_payload(true).sql().unwrap();
    assert!(sql.contains("ALTER TABLE \"hapax\".outbox ADD") && !sql.contains("hapax.outbox"), "{sql}");
}
