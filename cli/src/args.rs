//! The command line: which command, with what.

use hapax::{
    Postgres,
    stores::postgres::outbox::{DebeziumConnector, RouteBy},
};

/// What `hapax` prints when it is asked nothing.
const HELP: &str = "\
hapax outbox debezium URL [OPTION...]   settings with which Debezium sends an outbox; `hapax outbox debezium --help` for the options

It ends with 0, or with 2 if it was asked what makes no sense, or with 1 if it could not answer.
";

const DEBEZIUM: &str = "\
hapax outbox debezium URL [OPTION...]

Prints the settings of a connector of Debezium with its outbox event router, as Kafka Connect takes them, for the outbox in a
PostgreSQL database. The database is not asked; of URL (postgres://USER@HOST:PORT/DATABASE) the password is not used. Open the
outbox with `debezium(true)`. Untested against Debezium itself.

  --schema NAME           schema of the outbox; default hapax
  --table-prefix PREFIX   what the names of its tables begin with; default nothing
  --route-by COLUMN       destination (default) or type: by what a message gets its topic
  --topic TEXT            the topic, with ${routedByValue} and, by destination, ${kind} in it
  --header COLUMN[=NAME]  a column that becomes a header; several times; default all
  --no-headers            none but `id`
  --expand-payload        JSON bodies become JSON with a schema; needs what --sql prints
  --connector-name NAME   default hapax-outbox
  --slot NAME             replication slot and publication; default SCHEMA_TABLE
  --password TEXT         placeholder of Kafka Connect; default ${env:HAPAX_DEBEZIUM_PASSWORD}
  --sql                   prints what the table needs first, as SQL, instead of the settings; nothing without --expand-payload
";

/// One parsed command line.
#[derive(Debug)]
pub(crate) enum Command {
    /// A page of help.
    Help(&'static str),
    Debezium(Box<DebeziumConnector>, Print),
}

/// What is printed of a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Print {
    Json,
    Sql,
}

/// Parses what stands behind `hapax`.
///
/// # Errors
/// One line that names the wrong argument and the remedy.
pub(crate) fn parse(args: &[String]) -> Result<Command, String> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match &words[..] {
        [] | ["help" | "--help" | "-h", ..] | ["outbox"] | ["outbox", "--help" | "-h"] => Ok(Command::Help(HELP)),
        ["outbox", "debezium", rest @ ..] => debezium(rest),
        ["outbox", other, ..] => Err(format!("`outbox {}` is not a command: run `hapax --help`", other.escape_debug())),
        [other, ..] => Err(format!("`{}` is not a command: run `hapax --help`", other.escape_debug())),
    }
}

/// What was given, before it is put together.
#[derive(Default)]
struct Given<'a> {
    url: Option<&'a str>,
    schema: Option<&'a str>,
    prefix: Option<&'a str>,
    route_by: Option<&'a str>,
    topic: Option<&'a str>,
    name: Option<&'a str>,
    slot: Option<&'a str>,
    password: Option<&'a str>,
    headers: Vec<&'a str>,
    no_headers: bool,
    expand: bool,
    sql: bool,
}

fn debezium(args: &[&str]) -> Result<Command, String> {
    const TRY: &str = "run `hapax outbox debezium --help`";
    if args.iter().any(|arg| ["--help", "-h"].contains(arg)) {
        return Ok(Command::Help(DEBEZIUM));
    }
    let (mut given, mut args) = (Given::default(), args.iter().copied());
    while let Some(arg) = args.next() {
        let once = match arg {
            "--expand-payload" | "--no-headers" | "--sql" => {
                let flag = match arg {
                    "--sql" => &mut given.sql,
                    "--no-headers" => &mut given.no_headers,
                    _ => &mut given.expand,
                };
                *flag = true;
                continue;
            }
            "--header" => {
                given.headers.push(args.next().ok_or_else(|| format!("`{arg}` needs a value: {TRY}"))?);
                continue;
            }
            "--schema" => &mut given.schema,
            "--table-prefix" => &mut given.prefix,
            "--route-by" => &mut given.route_by,
            "--topic" => &mut given.topic,
            "--connector-name" => &mut given.name,
            "--slot" => &mut given.slot,
            "--password" => &mut given.password,
            // Its text may be a URL with a password, which is not repeated.
            _ if arg.starts_with('-') && !arg.contains("://") => {
                return Err(format!("`{}` is not an option: {TRY}", arg.escape_debug()));
            }
            _ if given.url.is_some() => return Err(format!("one URL only: {TRY}")),
            url => {
                given.url = Some(url);
                continue;
            }
        };
        let value = args.next().ok_or_else(|| format!("`{arg}` needs a value: {TRY}"))?;
        if once.replace(value).is_some() {
            return Err(format!("`{arg}` is there twice: give it once"));
        }
    }
    given.connector()
}

impl Given<'_> {
    fn connector(self) -> Result<Command, String> {
        let url = self
            .url
            .ok_or("it needs the URL of the database: `hapax outbox debezium postgres://USER@HOST/DATABASE`")?;
        let mut database = Postgres::options(url);
        database = self.schema.into_iter().fold(database, hapax::stores::postgres::PostgresOptions::schema);
        database = self.prefix.into_iter().fold(database, hapax::stores::postgres::PostgresOptions::table_prefix);
        let route_by = match self.route_by {
            None | Some("destination") => RouteBy::Destination,
            Some("type") => RouteBy::Type,
            Some(other) => {
                return Err(format!("`--route-by {}` is not known: use destination or type", other.escape_debug()));
            }
        };
        let mut connector = DebeziumConnector::of(database).route_by(route_by).expand_payload(self.expand);
        connector = self.topic.into_iter().fold(connector, DebeziumConnector::topic_replacement);
        connector = self.name.into_iter().fold(connector, DebeziumConnector::connector_name);
        connector = self.slot.into_iter().fold(connector, DebeziumConnector::slot);
        connector = self.password.into_iter().fold(connector, DebeziumConnector::password);
        if self.no_headers && !self.headers.is_empty() {
            return Err("`--no-headers` and `--header` exclude each other: give one of them".to_owned());
        }
        if self.no_headers || !self.headers.is_empty() {
            connector = connector.headers(self.headers.iter().map(|h| h.split_once('=').unwrap_or((h, h))));
        }
        let print = if self.sql { Print::Sql } else { Print::Json };
        Ok(Command::Debezium(Box::new(connector), print))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Command, DEBEZIUM, Print, parse};

    fn parsed(line: &str) -> Result<Command, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn help_has_a_line_for_each_option() {
        for line in
            ["", "help", "--help", "-h", "outbox", "outbox --help", "outbox debezium --help", "outbox debezium x -h"]
        {
            assert!(matches!(parsed(line), Ok(Command::Help(_))), "{line}");
        }
        for option in ["schema", "table-prefix", "route-by", "topic", "header", "connector-name", "slot", "password"] {
            let lines = DEBEZIUM.lines().filter(|line| line.starts_with(&format!("  --{option} ")));
            assert_eq!(lines.count(), 1, "{option}");
        }
    }

    #[test]
    fn options_arrive_in_the_settings() {
        let line = "outbox debezium postgres://u@h/d --schema s --table-prefix p_ --route-by type --topic t.${routedByValue} \
                    --header type=kind --header tenant --expand-payload --connector-name n --slot sl --password ${file:a:b}";
        let Ok(Command::Debezium(connector, Print::Json)) = parsed(line) else { panic!("{:?}", parsed(line)) };
        let json: serde_json::Value = serde_json::from_str(&connector.to_json().unwrap()).unwrap();
        for (name, value) in [
            ("database.password", "${file:a:b}"),
            ("slot.name", "sl"),
            ("table.include.list", "s\\.p_outbox"),
            ("transforms.outbox.route.by.field", "type"),
            ("transforms.outbox.route.topic.replacement", "t.${routedByValue}"),
            ("transforms.outbox.table.fields.additional.placement", "type:header:kind,tenant:header:tenant"),
            ("transforms.outbox.table.expand.json.payload", "true"),
        ] {
            assert_eq!(json["config"][name], value, "{name}");
        }
        assert_eq!(json["name"], "n");
        let none = parsed("outbox debezium postgres://u@h/d --no-headers --sql").unwrap();
        let Command::Debezium(connector, Print::Sql) = none else { panic!("{none:?}") };
        assert!(!connector.to_json().unwrap().contains("additional.placement"));
    }

    #[test]
    fn a_wrong_argument_is_named_in_one_line_with_its_remedy() {
        for (line, named, remedy) in [
            ("outbx", "`outbx`", "--help"),
            ("outbox debzium", "`outbox debzium`", "--help"),
            ("outbox debezium", "URL", "postgres://"),
            ("outbox debezium --schema", "`--schema`", "needs a value"),
            ("outbox debezium --header", "`--header`", "needs a value"),
            ("outbox debezium u --fast", "`--fast`", "--help"),
            ("outbox debezium u v", "one URL", "--help"),
            ("outbox debezium u --slot a --slot b", "`--slot`", "once"),
            ("outbox debezium u --route-by key", "`--route-by key`", "destination"),
            ("outbox debezium u --no-headers --header type", "`--no-headers`", "one of them"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(named) && error.contains(remedy), "{line}: {error}");
            assert_eq!(error.lines().count(), 1, "{line}");
        }
    }
}
