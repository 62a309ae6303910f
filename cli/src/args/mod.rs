//! The command line: which command, with what.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod any;
mod letters;
mod outbox;
#[cfg(feature = "page")]
mod page;

use std::{path::PathBuf, time::Duration};

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use hapax::ids::{EndpointName, IdempotencyKey, MessageId, SagaKey, SagaName};

#[cfg(feature = "page")]
pub(crate) use self::page::PageArgs;
pub(crate) use self::{
    letters::{Chosen, DeadLetters, Edit, Filtered},
    outbox::{DebeziumArgs, Outbox, RowsArgs},
};
use crate::ids::{duration, id, most};

const AFTER: &str = "\
Where the store is stands in --store or in the variable HAPAX_STORE, and the endpoint's transport in --transport or HAPAX_TRANSPORT:
  shop.db, sqlite://shop.db             an SQLite file
  postgres://USER:PASSWORD@HOST/DB      PostgreSQL; --schema, --table-prefix
  mysql://USER:PASSWORD@HOST/DB         MariaDB; --table-prefix
  dynamodb://HOST:PORT/TABLE            DynamoDB without TLS (an emulator); built with the feature `dynamodb`
  cosmos://HOST:PORT/DATABASE           Cosmos DB without TLS (an emulator); built with the feature `cosmos`
  amqp://, nats://, redis://            transports, and kafka:// built with the feature `kafka`; queues in the store's own database are found by themselves

It ends with 0 if all that was asked is done; with 1 if it could not be done, or something was found that is not as it should be; with 2 if
what was asked makes no sense as it is. What changes something asks first, and writes a line of JSON to the standard error.";

/// Above the options that every command has, so that its own stand apart.
const ALL: &str = "Options of all commands";

/// What an operator sees of a store of hapax, and does to it.
#[derive(Debug, Parser)]
#[command(name = "hapax", version, after_help = AFTER, max_term_width = 120)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What all commands take.
#[derive(Debug, Clone, Group)]
pub(crate) struct Common {
    /// Where the store is
    #[arg(long, global = true, help_heading = ALL, value_name = "URL")]
    store: Option<String>,
    /// Where the endpoint's queues are, for what sends, and to see what is in them
    #[arg(long, global = true, help_heading = ALL, value_name = "URL")]
    transport: Option<String>,
    /// Schema of the tables in PostgreSQL
    #[arg(long, global = true, help_heading = ALL, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// What the names of the tables begin with
    #[arg(long, global = true, help_heading = ALL, value_name = "PREFIX")]
    pub(crate) table_prefix: Option<String>,
    /// What the names of the broker's queues begin with
    #[arg(long, global = true, help_heading = ALL, value_name = "PREFIX")]
    pub(crate) queue_prefix: Option<String>,
    /// The endpoint's queues keep the order of keys
    #[arg(long, global = true, help_heading = ALL)]
    pub(crate) ordered_keys: bool,
    /// Takes a PostgreSQL or MariaDB server on another machine without being shown who it is
    #[arg(long, global = true, help_heading = ALL)]
    pub(crate) danger_unverified_tls: bool,
    /// JSON, as docs/operator.md describes it
    #[arg(long, global = true, help_heading = ALL)]
    pub(crate) json: bool,
}

impl Common {
    /// Where the store is.
    pub(crate) fn store(&self) -> Option<String> {
        self.store.clone().or_else(|| variable("HAPAX_STORE"))
    }

    /// The same, and tables are called as usual.
    pub(crate) fn without_names(&self) -> Self {
        Self { schema: None, table_prefix: None, ..self.clone() }
    }

    /// Where the transport is, if it was said.
    pub(crate) fn transport(&self) -> Option<String> {
        self.transport.clone().or_else(|| variable("HAPAX_TRANSPORT"))
    }

    /// Whether that was said by the environment, which is easily forgotten.
    pub(crate) fn has_transport_from_environment(&self) -> bool {
        self.transport.is_none() && variable("HAPAX_TRANSPORT").is_some()
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What all commands take that change something.
#[derive(Debug, Clone, Group)]
pub(crate) struct Changing {
    /// Does not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Says what would be done, and does nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Who does it, for the record; default the user's name, else the number
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Appends a line of JSON about it to this file, too
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

/// Which part of the store.
#[derive(Debug, Clone, Group)]
pub(crate) struct Of {
    /// Of this endpoint alone
    #[arg(long, short, value_name = "NAME", value_parser = id::<EndpointName>)]
    pub(crate) endpoint: Option<EndpointName>,
    /// Of this saga, or stateless handler, alone
    #[arg(long, short, value_name = "NAME", value_parser = id::<SagaName>)]
    pub(crate) saga: Option<SagaName>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Makes the tables of a store, or brings them up to date
    Migrate(Migrate),
    /// How it stands: what waits, what was set aside, what is remembered
    Status(StatusArgs),
    /// Messages that were set aside
    #[command(subcommand)]
    DeadLetters(DeadLetters),
    /// Messages that are stored to be sent
    #[command(subcommand)]
    Outbox(Outbox),
    /// All that is known of one message
    Message(MessageArgs),
    /// Sends what waits in entities, as the endpoint's own sweeper does
    Sweep(Sweep),
    /// Looks whether the promise holds
    Audit(AuditArgs),
    /// Looks whether everything is set up in the way the promise needs
    Doctor(Doctor),
    /// Most of it as a web page, until Ctrl-C: it shows, and changes nothing unless --actions is there
    #[cfg(feature = "page")]
    Page(Box<PageArgs>),
    /// Prints what makes a shell complete these commands
    Completion {
        /// The shell
        shell: Completes,
    },
}

impl Command {
    /// Whether it answers with a text for another program: SQL, or a shell's.
    pub(crate) fn prints_no_json(&self) -> bool {
        match self {
            Self::Completion { .. } => true,
            Self::Migrate(asked) => asked.sql,
            Self::Outbox(Outbox::Debezium(asked)) => asked.sql,
            _ => false,
        }
    }
}

/// Shells that are completed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Completes {
    Bash,
    Zsh,
    Fish,
}

impl From<Completes> for Shell {
    fn from(shell: Completes) -> Self {
        match shell {
            Completes::Bash => Self::Bash,
            Completes::Zsh => Self::Zsh,
            Completes::Fish => Self::Fish,
        }
    }
}

#[derive(Debug, Group)]
pub(crate) struct Migrate {
    /// The tables of an outbox, too
    #[arg(long)]
    pub(crate) outbox: bool,
    /// The tables of queues, too
    #[arg(long)]
    pub(crate) queues: bool,
    /// Leaves the store's own tables out
    #[arg(long)]
    pub(crate) no_store: bool,
    /// Into an SQLite file that another program has, too
    #[arg(long)]
    pub(crate) share_file: bool,
    /// Prints the schema as SQL, to be applied by hand, and does nothing
    #[arg(long)]
    pub(crate) sql: bool,
    #[command(flatten)]
    pub(crate) changing: Changing,
}

#[derive(Debug, Group)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) of: Of,
    /// Counts no further than this
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
    /// Shows it again and again, until Ctrl-C
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// How often, with --watch
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) every: Duration,
}

#[derive(Debug, Group)]
pub(crate) struct MessageArgs {
    /// The message's id
    #[arg(value_parser = id::<MessageId>)]
    pub(crate) id: MessageId,
    #[command(flatten)]
    pub(crate) of: Of,
    /// Which instance of the saga: then that one alone is asked
    #[arg(long, value_parser = id::<SagaKey>)]
    pub(crate) key: Option<SagaKey>,
    /// Its idempotency key, where it has one
    #[arg(long, value_name = "KEY", value_parser = id::<IdempotencyKey>)]
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    /// Entities of each saga that are asked, and messages of each queue
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = most)]
    pub(crate) limit: usize,
}

#[derive(Debug, Group)]
pub(crate) struct Sweep {
    #[command(flatten)]
    pub(crate) of: Of,
    /// Only what has waited for so long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) older_than: Duration,
    /// Entities of each saga
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = most)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) changing: Changing,
}

#[derive(Debug, Group)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) of: Of,
    /// How often it looks: most of it compares two looks
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) looks: u32,
    /// Between two looks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) every: Duration,
    /// Entities that are looked at, beside those that wait
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) entities: usize,
}

#[derive(Debug, Group)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) of: Of,
    /// The longest time after which the transport may give a copy: the retention has to exceed it
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) redelivery: Option<Duration>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::{CommandFactory, Parser};

    use super::Args;

    #[test]
    fn the_commands_contradict_nothing() {
        Args::command().debug_assert();
    }

    /// Goal: no words make the parser panic. Method: words of the tool's own and others, drawn by a generator that is the same each time.
    #[test]
    fn any_words_are_parsed_or_refused() {
        const WORDS: [&str; 40] = [
            "status",
            "message",
            "dead-letters",
            "list",
            "show",
            "edit",
            "retry",
            "discard",
            "actions",
            "outbox",
            "purge",
            "archive",
            "debezium",
            "sweep",
            "audit",
            "doctor",
            "completion",
            "migrate",
            "--store",
            "--transport",
            "--json",
            "--all",
            "--yes",
            "--older-than",
            "7d",
            "--limit",
            "0",
            "-1",
            "18446744073709551616",
            "--endpoint",
            "shop",
            "",
            "é",
            "\u{0}",
            "--",
            "-",
            "--header",
            "a=b",
            "--since",
            "2026-11-29T12:00:00Z",
        ];
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut draw = |below: usize| {
            // xorshift64 (Marsaglia, 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let mut parsed = 0;
        for _ in 0..2_000 {
            let words: Vec<&str> = (0..draw(7)).map(|_| WORDS[draw(WORDS.len())]).collect();
            parsed += usize::from(Args::try_parse_from(std::iter::once("hapax").chain(words)).is_ok());
        }
        assert!(parsed > 0);
    }
}
