//! How a group is written: as one text of several statements, or as the one statement that it is by itself.

use std::{sync::Arc, time::Duration};

use hapax_core::ports::StoreError;
use hapax_stores::sql::{
    mysql::wire::{self, Server, Text, Wire},
    races::RACES_MAX,
};
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};
use tokio::time::Instant;

use super::{
    super::served::{
        asks::{Ask, End, Lease, Message, Send, Take, What, leases, messages},
        receiver::{Given, Rest},
        signals::{Late, Looked, Position},
        writer::{self, Answers},
    },
    MySqlQueue,
    arguments::{Bind, as_i64, rows},
    ordered,
    statements::{self, Group, row},
};

/// The text of one group, in bytes: far above a usual group.
pub(super) const TEXT_BYTES_MAX: usize = 16 << 20;

/// One writer's own state.
pub(super) struct Writer {
    wire: Wire,
    server: Server,
    text_max: usize,
    ack: [Arc<str>; 2],
    send: Arc<str>,
    late: Arc<Late>,
}

/// What was told to a group.
pub(super) enum Told {
    Group(Vec<MySqlRow>),
    /// To a take in the order of keys, which is a group by itself.
    Ordered(Vec<MySqlRow>, Looked),
    /// To one ack or one message: whether there was a row to write.
    Alone(bool),
}

impl Writer {
    pub(super) fn new(server: &Server, text_max: usize, late: Arc<Late>) -> Self {
        let ack = [false, true].map(|ordered| server.text(&statements::ack_alone(ordered)));
        let send = server.text(&statements::send_alone());
        Self { wire: server.wire(), server: server.clone(), text_max, ack, send, late }
    }
}

impl writer::Writer for Writer {
    type Queues = MySqlQueue;
    type Told = Told;
    type Fault = wire::Fault;

    fn place(&self) -> &str {
        self.server.place()
    }

    fn group_bytes_max(&self) -> usize {
        self.text_max
    }

    async fn write(&mut self, group: &[Ask<MySqlQueue>]) -> Result<Told, wire::Fault> {
        let (mut races, began) = (0, Instant::now());
        loop {
            let once = Instant::now();
            let told = match (group, alone(group)) {
                ([Ask::Take(Take { wanted, freed: Some(freed), .. })], _) => {
                    let given = ordered::take(&mut self.wire, &self.server, *wanted, freed).await;
                    given.map(|(given, looked)| Told::Ordered(given, looked))
                }
                (_, Some(alone)) => {
                    let (sql, arguments) = match alone {
                        Alone::Ack(lease) => (&self.ack[usize::from(lease.ordered)], ack_arguments(lease)),
                        Alone::Message(queue, message) => (&self.send, send_arguments(queue, message)),
                    };
                    self.wire.write(sql, arguments).await.map(|answer| Told::Alone(answer.affected > 0))
                }
                _ => self.wire.transaction(text(group, &self.server)).await.map(|told| Told::Group(rows(told))),
            };
            if group.iter().any(dates) {
                self.late.written_in(once.elapsed());
            }
            match told {
                Err(fault)
                    if fault.is_of_a_race() && races < RACES_MAX && began.elapsed() < self.server.limit() / 2 =>
                {
                    races += 1
                }
                told => return told,
            }
        }
    }

    fn answers<'t>(&self, group: &[Ask<MySqlQueue>], told: &'t Told) -> Result<Answers<'t>, wire::Fault> {
        let answers = match told {
            Told::Group(rows) => answers(group, rows),
            Told::Ordered(rows, looked) => rows.iter().map(given).collect::<Result<_, _>>().map(|given| Answers {
                given,
                looked: Some(*looked),
                ..Answers::default()
            }),
            Told::Alone(written) => {
                let ended = leases(group).filter(|_| *written).map(|lease| (lease.id, lease.token));
                Ok(Answers { ended: ended.collect(), ..Answers::default() })
            }
        };
        answers.map_err(wire::Fault::of_answer)
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

fn answers<'t>(group: &[Ask<MySqlQueue>], rows: &'t [MySqlRow]) -> Result<Answers<'t>, sqlx::Error> {
    let (mut answers, mut last, mut took) = (Answers::default(), None, None);
    for row in rows {
        match row.try_get::<i64, _>(0)? {
            row::ENDED => drop(answers.ended.insert((row.try_get(2)?, row.try_get(1)?))),
            row::SENT => answers.sent.push(row.try_get(1)?),
            row::GIVEN => {
                last = last.max(Some(Position { due: row.try_get(4)?, id: row.try_get(2)? }));
                answers.given.push(given(row)?);
            }
            row::LOOKED => took = Some((row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)),
            _ => return Err(sqlx::Error::RowNotFound),
        }
    }
    let take = group.iter().find_map(|ask| if let Ask::Take(take) = ask { Some(take) } else { None });
    if let (Some(take), Some((now, count, took))) = (take, took) {
        let (count, took): (i64, i64) = (count, took);
        let count = usize::try_from(count).unwrap_or_default();
        let idle = if answers.given.is_empty() { u64::try_from(took).unwrap_or_default() } else { 0 };
        answers.looked = Some(Looked {
            now,
            last,
            more: count >= take.wanted.max || count > answers.given.len(),
            left: false,
            idle: Duration::from_millis(idle),
        });
    }
    Ok(answers)
}

fn given(row: &MySqlRow) -> Result<Given<'_>, sqlx::Error> {
    let rest = || {
        let key: Option<&[u8]> = row.try_get(6)?;
        let key = key.map(std::str::from_utf8).transpose()?;
        Ok(Rest { deliveries: row.try_get(3)?, envelope: row.try_get(5)?, key })
    };
    Ok(Given { token: row.try_get(1)?, id: row.try_get(2)?, rest: rest() })
}

/// Whether it gives a message the time of its transaction, which a take may pass before the commit. How long a take has
/// waited for another says nothing of that.
fn dates(ask: &Ask<MySqlQueue>) -> bool {
    match ask {
        Ask::Send(_) => true,
        Ask::End(end) => end.leases.iter().any(|lease| matches!(lease.what, What::Retry { .. })),
        Ask::Take(_) | Ask::Close => false,
    }
}

/// What is one statement without a transaction around it, since it is a group by itself.
enum Alone<'g> {
    Ack(&'g Lease),
    Message(i64, &'g Message),
}

fn alone(group: &[Ask<MySqlQueue>]) -> Option<Alone<'_>> {
    let [ask] = group else { return None };
    match ask {
        Ask::End(End { leases, .. }) => match &leases[..] {
            [lease] if matches!(lease.what, What::Ack) => Some(Alone::Ack(lease)),
            _ => None,
        },
        Ask::Send(Send { messages, .. }) => match &messages[..] {
            [message] => Some(Alone::Message(message.queue?, message)),
            _ => None,
        },
        Ask::Take(_) | Ask::Close => None,
    }
}

/// For [`statements::ack_alone`].
fn ack_arguments(lease: &Lease) -> MySqlArguments {
    let mut arguments = MySqlArguments::default();
    arguments.bind(lease.id).bind(lease.token);
    arguments
}

/// For [`statements::send_alone`].
fn send_arguments(queue: i64, message: &Message) -> MySqlArguments {
    let mut arguments = MySqlArguments::default();
    arguments.bind(queue).bind(message.due).bind(as_i64(message.envelope.len()));
    arguments.bind(message.key.as_ref().map(String::as_bytes)).bind(message.id.as_bytes()).bind(&message.envelope[..]);
    arguments
}

/// All that a group asks for.
fn text(group: &[Ask<MySqlQueue>], server: &Server) -> Text {
    let mut text = Group::new(server, group.iter().map(Ask::size).sum());
    let mut ends: Vec<&Lease> = leases(group).collect();
    ends.sort_unstable_by_key(|lease| lease.id);
    text.ends(&ends);
    text.send(&messages(group).collect::<Vec<&Message>>());
    for ask in group {
        if let Ask::Take(take) = ask {
            text.take(take.wanted);
        }
    }
    text.text()
}
