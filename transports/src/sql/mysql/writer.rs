//! Writers: tasks with one connection each, who share one line of requests. Whatever has queued while the last group was
//! being written goes into the next one, in one text and so in one commit; there is no timer, and a lone request goes at once.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use hapax_stores::sql::mysql::wire::{Fault, Server, Text, Wire};
use sqlx::{Row, mysql::MySqlRow};
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};

use super::{
    arguments::rows,
    asks::{Alone, Ask, End, Lease, Message, Send, Take, alone},
    ordered,
    signals::{Late, Looked, Position},
    statements::{self, Group, row},
};

/// Messages and settlements that share a commit, at most: more would keep the first waiting for the last.
const GROUP_MAX: usize = 1024;
/// The text of one group, in bytes: far above a usual group.
pub(super) const TEXT_BYTES_MAX: usize = 16 << 20;
/// How often a group is written again because its transaction met others in a way the server does not allow, or waited for
/// them for too long. Each time it was rolled back, and one of those it met has gone on.
pub(super) const RACES_MAX: usize = 10;

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
enum Told {
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

    /// Ends when the last handle to the queue is gone, or when it is told to close.
    pub(super) async fn run(mut self, queue: Arc<Mutex<mpsc::Receiver<Ask>>>) {
        let mut taken = Vec::new();
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let mut queue = queue.lock().await;
                if queue.recv_many(&mut taken, GROUP_MAX).await == 0 {
                    break;
                }
                // Those who are ready to ask get into this group instead of the next one.
                tokio::task::yield_now().await;
                while taken.len() < GROUP_MAX
                    && let Ok(ask) = queue.try_recv()
                {
                    taken.push(ask);
                }
                if taken.iter().any(|ask| matches!(ask, Ask::Close)) {
                    queue.close(); // For all writers. What has queued is written.
                }
                waiting.extend(taken.drain(..));
            }
            let group = next_group(&mut waiting, self.text_max);
            self.write_group(group).await;
        }
        self.wire.close().await;
    }

    async fn write_group(&mut self, group: Vec<Ask>) {
        if group.is_empty() {
            return;
        }
        match self.write(&group).await {
            Ok(told) => self.answer(group, told),
            Err(fault) if group.len() == 1 || fault.is_unknown() || fault.is_of_all() => self.fail_all(group, &fault),
            // Nothing of it was written. One by one, the member that is at fault hurts only itself.
            Err(fault) => {
                let place = self.server.place();
                tracing::warn!(%place, ?fault, "a group of {} requests is written one by one", group.len());
                for ask in group {
                    let alone = vec![ask];
                    match self.write(&alone).await {
                        Ok(told) => self.answer(alone, told),
                        Err(fault) => self.fail_all(alone, &fault),
                    }
                }
            }
        }
    }

    fn fail_all(&self, group: Vec<Ask>, fault: &Fault) {
        group.into_iter().for_each(|ask| ask.fail(fault, self.server.place()));
    }

    async fn write(&mut self, group: &[Ask]) -> Result<Told, Fault> {
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
                        Alone::Ack(lease) => (&self.ack[usize::from(lease.ordered)], lease.arguments()),
                        Alone::Message(queue, message) => (&self.send, message.arguments(queue)),
                    };
                    self.wire.write(sql, arguments).await.map(|answer| Told::Alone(answer.affected > 0))
                }
                _ => self.wire.transaction(text(group, &self.server)).await.map(|told| Told::Group(rows(told))),
            };
            if group.iter().any(Ask::dates) {
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

    /// Tells each member its own result, by number and token of what it asked for.
    fn answer(&self, group: Vec<Ask>, told: Told) {
        let answers = match &told {
            Told::Group(rows) => Answers::of(rows),
            Told::Ordered(given, looked) => {
                Ok(Answers { given: given.iter().collect(), looked: Some(*looked), ..Answers::default() })
            }
            Told::Alone(written) => {
                let ended = leases(&group).filter(|_| *written).map(|lease| (lease.id, lease.token));
                Ok(Answers { ended: ended.collect(), ..Answers::default() })
            }
        };
        let answers = match answers {
            Ok(answers) => answers,
            // It is committed: what cannot be told is not known.
            Err(error) => return self.fail_all(group, &Fault::of_answer(error)),
        };
        for ask in group {
            match ask {
                Ask::End(End { leases, answer: Some(answer), .. }) => {
                    let ended = leases.iter().filter(|lease| answers.ended.contains(&(lease.id, lease.token)));
                    let _ = answer.send(Ok(ended.count()));
                }
                Ask::Send(Send { messages, answer, .. }) => {
                    let mut queues: Vec<i64> = messages.iter().filter_map(|message| message.queue).collect();
                    queues.dedup();
                    if messages.iter().any(|message| message.topic.is_some()) {
                        queues.extend(&answers.sent);
                    }
                    let _ = answer.send(Ok(queues));
                }
                Ask::Take(take) => {
                    let looked = answers.looked(&take);
                    let claim = take.claim.filled(&answers.given);
                    let _ = take.answer.send(Ok((claim, looked))); // If nobody is there, it gives itself back.
                }
                Ask::End(_) | Ask::Close => {}
            }
        }
    }
}

/// What a group was told.
#[derive(Default)]
struct Answers<'r> {
    ended: HashSet<(i64, i64)>,
    sent: Vec<i64>,
    given: Vec<&'r MySqlRow>,
    /// The server's time, how many a take has looked at, and how many milliseconds it has taken.
    took: (i64, i64, i64),
    looked: Option<Looked>,
}

impl<'r> Answers<'r> {
    fn of(rows: &'r [MySqlRow]) -> Result<Self, sqlx::Error> {
        let mut answers = Self::default();
        for row in rows {
            match row.try_get::<i64, _>(0)? {
                row::ENDED => drop(answers.ended.insert((row.try_get(2)?, row.try_get(1)?))),
                row::SENT => answers.sent.push(row.try_get(1)?),
                row::GIVEN => answers.given.push(row),
                row::LOOKED => answers.took = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?),
                _ => return Err(sqlx::Error::RowNotFound),
            }
        }
        Ok(answers)
    }

    fn looked(&self, take: &Take) -> Looked {
        if let Some(looked) = self.looked {
            return looked;
        }
        let (now, count, took) = self.took;
        let count = usize::try_from(count).unwrap_or_default();
        let place = |row: &&MySqlRow| Some(Position { due: row.try_get(4).ok()?, id: row.try_get(2).ok()? });
        let idle = if self.given.is_empty() { u64::try_from(took).unwrap_or_default() } else { 0 };
        Looked {
            now,
            last: self.given.iter().filter_map(place).max(),
            more: count >= take.wanted.max || count > self.given.len(),
            left: false,
            idle: Duration::from_millis(idle),
        }
    }
}

/// Takes the next group out of `waiting`: in order, one take at most, and each lease once. What would be a second one waits
/// for the next group; so does all behind it that has to do with the same.
fn next_group(waiting: &mut VecDeque<Ask>, text_max: usize) -> Vec<Ask> {
    let (mut group, mut held) = (Vec::new(), VecDeque::new());
    let (mut rows, mut bytes, mut takes) = (0, 0, false);
    let mut leases: HashSet<(i64, i64)> = HashSet::new();
    while let Some(ask) = waiting.pop_front() {
        if ask.is_left() {
            continue;
        }
        if !group.is_empty() && (rows + ask.rows() > GROUP_MAX || bytes + ask.size() > text_max) {
            waiting.push_front(ask);
            break;
        }
        let holds = match &ask {
            // In the order of keys a take is a transaction of its own.
            Ask::Take(take) if take.freed.is_some() => {
                if group.is_empty() {
                    group.push(ask);
                    break;
                }
                true
            }
            Ask::Take(_) => std::mem::replace(&mut takes, true),
            Ask::End(end) => {
                let twice = end.leases.iter().any(|lease| leases.contains(&(lease.id, lease.token)));
                leases.extend(end.leases.iter().map(|lease| (lease.id, lease.token)));
                twice
            }
            Ask::Send(_) | Ask::Close => false,
        };
        if holds {
            held.push_back(ask);
        } else {
            (rows, bytes) = (rows + ask.rows(), bytes + ask.size());
            group.push(ask);
        }
    }
    while let Some(ask) = held.pop_back() {
        waiting.push_front(ask);
    }
    group
}

fn leases(group: &[Ask]) -> impl Iterator<Item = &Lease> {
    let leases = group.iter().filter_map(|ask| if let Ask::End(end) = ask { Some(&end.leases) } else { None });
    leases.flatten()
}

fn messages(group: &[Ask]) -> impl Iterator<Item = &Message> {
    let messages = group.iter().filter_map(|ask| if let Ask::Send(send) = ask { Some(&send.messages) } else { None });
    messages.flatten()
}

/// All that a group asks for.
fn text(group: &[Ask], server: &Server) -> Text {
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
