//! Writers: tasks with one connection each, who share one line of requests. Whatever has queued while the last group was
//! being written goes into the next one, in one statement and so in one commit; there is no timer, and a lone request goes at
//! once.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use hapax_core::ports::TransportError;
use hapax_stores::sql::postgres::wire::{Fault, Server, Wire};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{
    super::errors::transport_error,
    arguments::{Bind, as_i64},
    receiver::Claim,
    signals::{Looked, Position},
    statements::{self, Kinds, end, row},
};

/// Messages and settlements that share a commit, at most: more would keep the first waiting for the last.
const GROUP_MAX: usize = 1024;
/// Bodies of one group, in bytes: far above a usual group, far below what the server takes as one message.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How often a group is written again because its transaction met others in a way the server does not allow. Each time the
/// server has rolled it back, and one of those it met has gone on.
const RACES_MAX: usize = 10;
/// Members of a group that is written one by one and that meet others' locks, until the rest is given up: it is the table
/// then, and each of them would wait as long.
const LOCKS_MAX: usize = 3;

/// What a writer is asked for.
pub(super) enum Ask {
    /// Ends leases, or begins them anew.
    End(End),
    Send(Send),
    Take(Take),
    /// Write what is queued, then close.
    Close,
}

/// Told is how many leases were still held.
pub(super) struct End {
    pub(super) operation: &'static str,
    pub(super) leases: Vec<Lease>,
    /// `None`: nobody asks what became of it.
    pub(super) answer: Option<oneshot::Sender<Result<usize, TransportError>>>,
}

pub(super) struct Lease {
    pub(super) id: i64,
    pub(super) token: i64,
    /// It was given in the order of a key.
    pub(super) ordered: bool,
    pub(super) what: What,
}

pub(super) enum What {
    Ack,
    Retry { delay: i64, uncounted: i64 },
    SetAside { endpoint: Arc<str>, reason: String },
    Extend { lease: i64 },
}

/// Messages of one call. Told are the queues they went to.
pub(super) struct Send {
    pub(super) operation: &'static str,
    pub(super) messages: Vec<Message>,
    pub(super) answer: oneshot::Sender<Result<Vec<i64>, TransportError>>,
}

pub(super) struct Message {
    pub(super) queue: Option<i64>,
    pub(super) topic: Option<String>,
    pub(super) due: i64,
    pub(super) key: Option<String>,
    pub(super) id: String,
    pub(super) envelope: Vec<u8>,
}

pub(super) struct Take {
    pub(super) operation: &'static str,
    pub(super) queue: i64,
    pub(super) from: Position,
    pub(super) max: usize,
    pub(super) bytes_max: usize,
    pub(super) token: i64,
    pub(super) lease: i64,
    /// Keys of which something was settled here; `None`: no order is asked for.
    pub(super) freed: Option<Vec<Arc<str>>>,
    /// What becomes of the rows.
    pub(super) claim: Claim,
    pub(super) answer: oneshot::Sender<Result<(Claim, Looked), TransportError>>,
}

impl Ask {
    fn rows(&self) -> usize {
        match self {
            Self::End(end) => end.leases.len(),
            Self::Send(send) => send.messages.len(),
            Self::Take(_) | Self::Close => 1,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Send(send) => send.messages.iter().map(|message| message.envelope.len()).sum(),
            _ => 0,
        }
    }

    /// Nobody waits for it any more, and nothing of it has been written.
    fn is_left(&self) -> bool {
        match self {
            Self::End(end) => end.answer.as_ref().is_some_and(oneshot::Sender::is_closed),
            Self::Send(send) => send.answer.is_closed(),
            Self::Take(take) => take.answer.is_closed(),
            Self::Close => true,
        }
    }

    fn fail(self, fault: &Fault, place: &str) {
        let error = |operation| transport_error(operation, fault.store_error(operation, place));
        match self {
            Self::End(End { operation, answer: Some(answer), .. }) => drop(answer.send(Err(error(operation)))),
            Self::Send(Send { operation, answer, .. }) => drop(answer.send(Err(error(operation)))),
            Self::Take(Take { operation, answer, .. }) => drop(answer.send(Err(error(operation)))),
            Self::End(_) | Self::Close => tracing::debug!(place, ?fault, "what nobody waits for has failed"),
        }
    }
}

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
            let group = next_group(&mut waiting);
            self.write_group(group).await;
        }
        self.wire.close().await;
    }

    async fn write_group(&mut self, group: Vec<Ask>) {
        if group.is_empty() {
            return;
        }
        match self.write(&group).await {
            Ok(rows) => self.answer(group, rows),
            Err(fault) if group.len() == 1 || fault.is_unknown() || fault.is_of_all() => self.fail_all(group, &fault),
            // Nothing of it was written. One by one, the member that is at fault hurts only itself.
            Err(fault) => {
                let place = self.server.place();
                tracing::warn!(%place, ?fault, "a group of {} requests is written one by one", group.len());
                let mut locks = 0;
                for ask in group {
                    let alone = vec![ask];
                    if locks == LOCKS_MAX {
                        self.fail_all(alone, &fault);
                        continue;
                    }
                    match self.write(&alone).await {
                        Ok(rows) => self.answer(alone, rows),
                        Err(fault) => {
                            locks += usize::from(fault.is_of_a_lock());
                            self.fail_all(alone, &fault);
                        }
                    }
                }
            }
        }
    }

    fn fail_all(&self, group: Vec<Ask>, fault: &Fault) {
        group.into_iter().for_each(|ask| ask.fail(fault, self.server.place()));
    }

    async fn write(&mut self, group: &[Ask]) -> Result<Vec<PgRow>, Fault> {
        let mut races = 0;
        loop {
            let written = match group {
                [Ask::Take(Take { freed: Some(freed), queue, .. })] => {
                    let lock = self.server.text(&statements::order_lock(*queue));
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
                Err(fault) if fault.is_of_a_race() && races < RACES_MAX => races += 1,
                written => return written,
            }
        }
    }

    /// Tells each member its own result, by number and token of what it asked for.
    fn answer(&self, group: Vec<Ask>, rows: Vec<PgRow>) {
        let answers = match Answers::of(&rows) {
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
                        queues.clone_from(&answers.sent);
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
struct Answers<'r> {
    ended: HashSet<(i64, i64)>,
    sent: Vec<i64>,
    given: Vec<&'r PgRow>,
    /// The server's time, how many a take has looked at, the last of them, and whether there are others.
    looked: (i64, i64, Option<Position>, bool),
    took: Duration,
}

impl<'r> Answers<'r> {
    fn of(rows: &'r [PgRow]) -> Result<Self, sqlx::Error> {
        let mut answers = Self {
            ended: HashSet::new(),
            sent: Vec::new(),
            given: Vec::new(),
            looked: (0, 0, None, false),
            took: Duration::ZERO,
        };
        for row in rows {
            match row.try_get::<i32, _>(0)? {
                row::ENDED => drop(answers.ended.insert((row.try_get(2)?, row.try_get(1)?))),
                row::SENT => answers.sent.push(row.try_get(2)?),
                row::GIVEN => answers.given.push(row),
                row::LOOKED => {
                    let last: (Option<i64>, Option<i64>) = (row.try_get(4)?, row.try_get(2)?);
                    let last = last.0.zip(last.1).map(|(due, id)| Position { due, id });
                    let is_more = row.try_get::<Option<&str>, _>(6)?.is_some();
                    answers.looked = (row.try_get(1)?, row.try_get(3)?, last, is_more);
                }
                row::TOOK => {
                    let ms: i64 = row.try_get(1)?;
                    answers.took = Duration::from_millis(u64::try_from(ms).unwrap_or_default());
                }
                _ => return Err(sqlx::Error::RowNotFound),
            }
        }
        Ok(answers)
    }

    fn looked(&self, take: &Take) -> Looked {
        let (now, count, last, is_more) = self.looked;
        let idle = if self.given.is_empty() { self.took } else { Duration::ZERO };
        match take.freed {
            None => Looked { now, last, more: is_more, left: false, idle },
            Some(_) => Looked { now, last, more: is_more || count >= statements::WINDOW, left: is_more, idle },
        }
    }
}

/// Takes the next group out of `waiting`: in order, one take at most, and each lease once. What would be a second one waits
/// for the next group; so does all behind it that has to do with the same.
fn next_group(waiting: &mut VecDeque<Ask>) -> Vec<Ask> {
    let (mut group, mut held) = (Vec::new(), VecDeque::new());
    let (mut rows, mut bytes, mut takes) = (0, 0, false);
    let mut leases: HashSet<(i64, i64)> = HashSet::new();
    while let Some(ask) = waiting.pop_front() {
        if ask.is_left() {
            continue;
        }
        if !group.is_empty() && (rows + ask.rows() > GROUP_MAX || bytes + ask.size() > GROUP_BYTES_MAX) {
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

fn kinds(group: &[Ask]) -> Kinds {
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
fn arguments(group: &[Ask], kinds: Kinds) -> PgArguments {
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

fn bind_leases(arguments: &mut PgArguments, group: &[Ask], kinds: Kinds) {
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

fn bind_take(arguments: &mut PgArguments, group: &[Ask]) {
    for ask in group {
        if let Ask::Take(take) = ask {
            arguments.bind(take.queue).bind(take.from.due).bind(take.from.id).bind(as_i64(take.max));
            arguments.bind(as_i64(take.bytes_max)).bind(take.token).bind(take.lease);
        }
    }
}
