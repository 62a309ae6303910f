//! How a group is written: as one statement.

use std::{collections::HashMap, sync::Arc, time::Duration};

use hapax_core::ports::StoreError;
use hapax_stores::sql::{
    postgres::wire::{self, Server, Wire},
    races::Races,
};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};

use super::{
    super::served::{
        asks::{Ask, Lease, Message, Take, What, leases, messages},
        receiver::{Given, Rest},
        signals::{Looked, Position},
        writer::{self, Answers},
    },
    PostgresQueue,
    arguments::{Bind, as_i64},
    statements::{self, Kinds, end, row},
};

/// One group, in bytes as it counts them: far above a usual one, far below what the server takes as one message.
pub(super) const GROUP_BYTES_MAX: usize = 16 << 20;

/// One writer's own state.
pub(super) struct Writer {
    wire: Wire,
    server: Server,
    texts: HashMap<Kinds, Arc<str>>,
    take_ordered: Arc<str>,
}

impl Writer {
    pub(super) fn new(server: &Server) -> Self {
        let take_ordered = server.text(&statements::take_ordered());
        Self { wire: server.wire(), server: server.clone(), texts: HashMap::new(), take_ordered }
    }
}

impl writer::Writer for Writer {
    type Queues = PostgresQueue;
    type Told = Vec<PgRow>;
    type Fault = wire::Fault;

    fn place(&self) -> &str {
        self.server.place()
    }

    fn group_bytes_max(&self) -> usize {
        GROUP_BYTES_MAX
    }

    async fn write(&mut self, group: &[Ask<PostgresQueue>]) -> Result<Vec<PgRow>, wire::Fault> {
        let mut races = Races::default();
        loop {
            let written = match group {
                [Ask::Take(Take { freed: Some(freed), wanted, .. })] => {
                    let lock = self.server.text(&statements::order_lock(wanted.queue));
                    let mut arguments = PgArguments::default();
                    bind_take(&mut arguments, group);
                    arguments.bind(freed.iter().map(|key| &**key).collect::<Vec<&str>>());
                    self.wire.locked(&lock, &self.take_ordered, arguments).await
                }
                _ => {
                    let kinds = kinds(group);
                    let server = &self.server;
                    let text =
                        self.texts.entry(kinds).or_insert_with(|| server.text(&statements::group(kinds))).clone();
                    self.wire.write(&text, arguments(group, kinds)).await
                }
            };
            match written {
                Err(fault) if fault.is_of_a_race() && races.allow(false) => {}
                written => return written,
            }
        }
    }

    fn answers<'t>(&self, group: &[Ask<PostgresQueue>], told: &'t Vec<PgRow>) -> Result<Answers<'t>, wire::Fault> {
        answers(group, told).map_err(wire::Fault::of_answer)
    }

    async fn close(&mut self) {
        self.wire.close().await;
    }
}

impl writer::Fault for wire::Fault {
    fn is_unknown(&self) -> bool {
        self.is_unknown()
    }

    fn is_of_all(&self) -> bool {
        self.is_of_all()
    }

    fn is_of_a_lock(&self) -> bool {
        self.is_of_a_lock()
    }

    fn store_error(&self, operation: &'static str, place: &str) -> StoreError {
        self.store_error(operation, place)
    }
}

fn answers<'t>(group: &[Ask<PostgresQueue>], rows: &'t [PgRow]) -> Result<Answers<'t>, sqlx::Error> {
    let (mut answers, mut looked, mut count) = (Answers::default(), Looked::default(), 0);
    for row in rows {
        match row.try_get::<i32, _>(0)? {
            row::ENDED => drop(answers.ended.insert((row.try_get(2)?, row.try_get(1)?))),
            row::SENT => answers.sent.push(row.try_get(2)?),
            row::GIVEN => answers.given.push(given(row)?),
            row::LOOKED => {
                let last: (Option<i64>, Option<i64>) = (row.try_get(4)?, row.try_get(2)?);
                looked.last = last.0.zip(last.1).map(|(due, id)| Position { due, id });
                looked.more = row.try_get::<Option<&str>, _>(6)?.is_some();
                (looked.now, count) = (row.try_get(1)?, row.try_get(3)?);
            }
            row::TOOK => {
                let ms: i64 = row.try_get(1)?;
                looked.idle = Duration::from_millis(u64::try_from(ms).unwrap_or_default());
            }
            _ => return Err(sqlx::Error::RowNotFound),
        }
    }
    if !answers.given.is_empty() {
        looked.idle = Duration::ZERO;
    }
    if let [Ask::Take(Take { freed: Some(_), .. })] = group {
        looked.left = looked.more;
        looked.more |= count >= statements::WINDOW;
    }
    answers.looked = Some(looked);
    Ok(answers)
}

fn given(row: &PgRow) -> Result<Given<'_>, sqlx::Error> {
    let rest = || Ok(Rest { deliveries: row.try_get(3)?, envelope: row.try_get(5)?, key: row.try_get(6)? });
    Ok(Given { token: row.try_get(1)?, id: row.try_get(2)?, rest: rest() })
}

fn kinds(group: &[Ask<PostgresQueue>]) -> Kinds {
    let mut kinds = Kinds::default();
    for lease in leases(group) {
        match lease.what {
            What::Ack => kinds.ack = true,
            What::Retry { .. } => kinds.retry = true,
            What::SetAside { .. } => kinds.set_aside = true,
            What::Extend { .. } => kinds.extend = true,
        }
        kinds.ordered |= lease.ordered && !matches!(lease.what, What::Extend { .. });
    }
    kinds.send = messages(group).next().is_some();
    kinds.take = group.iter().any(|ask| matches!(ask, Ask::Take(_)));
    kinds
}

/// In the order that [`statements::group`] tells.
fn arguments(group: &[Ask<PostgresQueue>], kinds: Kinds) -> PgArguments {
    let mut arguments = PgArguments::default();
    if kinds.ack || kinds.retry || kinds.set_aside || kinds.extend {
        bind_leases(&mut arguments, group, kinds);
    }
    if kinds.send {
        let all: Vec<&Message> = messages(group).collect();
        arguments.bind(all.iter().map(|message| message.queue).collect::<Vec<Option<i64>>>());
        arguments.bind(all.iter().map(|message| message.topic.as_deref()).collect::<Vec<Option<&str>>>());
        arguments.bind(all.iter().map(|message| message.due).collect::<Vec<i64>>());
        arguments.bind(all.iter().map(|message| message.key.as_deref()).collect::<Vec<Option<&str>>>());
        arguments.bind(all.iter().map(|message| &*message.id).collect::<Vec<&str>>());
        arguments.bind(all.iter().map(|message| &*message.envelope).collect::<Vec<&[u8]>>());
    }
    if kinds.take {
        bind_take(&mut arguments, group);
    }
    arguments
}

fn bind_leases(arguments: &mut PgArguments, group: &[Ask<PostgresQueue>], kinds: Kinds) {
    let mut all: Vec<&Lease> = leases(group).collect();
    all.sort_unstable_by_key(|lease| lease.id);
    let mut tokens: Vec<i64> = all.iter().map(|lease| lease.token).collect();
    arguments.bind(all.iter().map(|lease| lease.id).collect::<Vec<i64>>()).bind(&tokens[..]);
    let what = |lease: &&Lease| match lease.what {
        What::Ack => (end::ACK, 0, 0),
        What::Retry { delay, uncounted } => (end::RETRY, delay, uncounted),
        What::SetAside { .. } => (end::SET_ASIDE, 0, 0),
        What::Extend { .. } => (end::EXTEND, 0, 0),
    };
    let whats: Vec<(i16, i64, i64)> = all.iter().map(what).collect();
    arguments.bind(whats.iter().map(|what| what.0).collect::<Vec<i16>>());
    arguments.bind(whats.iter().map(|what| what.1).collect::<Vec<i64>>());
    arguments.bind(whats.iter().map(|what| what.2).collect::<Vec<i64>>());
    tokens.sort_unstable();
    tokens.dedup();
    arguments.bind(tokens);
    if kinds.set_aside {
        let letters = all.iter().map(|lease| match &lease.what {
            What::SetAside { endpoint, reason } => Some((&**endpoint, &**reason)),
            _ => None,
        });
        let letters: Vec<Option<(&str, &str)>> = letters.collect();
        arguments.bind(letters.iter().map(|letter| letter.map(|l| l.0)).collect::<Vec<Option<&str>>>());
        arguments.bind(letters.iter().map(|letter| letter.map(|l| l.1)).collect::<Vec<Option<&str>>>());
    }
    if kinds.extend {
        let lease = |lease: &&Lease| if let What::Extend { lease } = lease.what { Some(lease) } else { None };
        arguments.bind(all.iter().find_map(lease).unwrap_or_default());
    }
}

fn bind_take(arguments: &mut PgArguments, group: &[Ask<PostgresQueue>]) {
    for ask in group {
        if let Ask::Take(take) = ask {
            arguments
                .bind(take.wanted.queue)
                .bind(take.wanted.from.due)
                .bind(take.wanted.from.id)
                .bind(as_i64(take.wanted.max));
            arguments.bind(as_i64(take.wanted.bytes_max)).bind(take.wanted.token).bind(take.wanted.lease);
        }
    }
}
