//! Settings of Debezium's connector.

use crate::{
    args::{Common, DebeziumArgs},
    failure::Failure,
    print::Out,
};

#[cfg(feature = "postgres")]
pub(super) fn run(asked: &DebeziumArgs, common: &Common, out: &mut Out) -> Result<(), Failure> {
    use hapax::stores::postgres::{
        PostgresOptions,
        outbox::{DebeziumConnector, RouteBy},
    };

    let url = asked.url.clone().or_else(|| common.store()).ok_or_else(|| {
        Failure::usage("it needs the URL of the database: `hapax outbox debezium postgres://USER@HOST/DATABASE`")
    })?;
    let mut database = hapax::Postgres::options(url);
    database = common.schema.iter().fold(database, PostgresOptions::schema);
    database = common.table_prefix.iter().fold(database, PostgresOptions::table_prefix);
    let route_by = match asked.route_by.as_str() {
        "destination" => RouteBy::Destination,
        "type" => RouteBy::Type,
        other => {
            let why = format!("`--route-by {}` is not known: use destination or type", other.escape_debug());
            return Err(Failure::usage(why));
        }
    };
    let mut connector = DebeziumConnector::of(database).route_by(route_by).expand_payload(asked.expand_payload);
    connector = asked.topic.iter().fold(connector, DebeziumConnector::topic_replacement);
    connector = asked.connector_name.iter().fold(connector, DebeziumConnector::connector_name);
    connector = asked.slot.iter().fold(connector, DebeziumConnector::slot);
    connector = asked.password.iter().fold(connector, DebeziumConnector::password);
    if asked.no_headers || !asked.header.is_empty() {
        connector = connector.headers(asked.header.iter().map(|h| h.split_once('=').unwrap_or((h, h))));
    }
    let text = if asked.sql { connector.sql() } else { connector.to_json().map(|json| json + "\n") };
    out.text(&text.map_err(|error| Failure::usage(error.to_string()))?)
}

#[cfg(not(feature = "postgres"))]
pub(super) fn run(_: &DebeziumArgs, _: &Common, _: &mut Out) -> Result<(), Failure> {
    Err(Failure::usage("this program was built without PostgreSQL: build it with the feature `postgres`"))
}
