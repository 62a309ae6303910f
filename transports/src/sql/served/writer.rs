//! Writers: tasks with one connection each, who share one line of requests. Whatever has queued while the last group was
//! being written goes into the next one, and so into one commit; there is no timer, and a lone request goes at once.

use std::{
    collections::{HashSet, VecDeque},
    fmt::Debug,
    sync::Arc,
};

use hapax_core::ports::StoreError;
use hapax_stores::sql::races::LOCKS_MAX;
use tokio::sync::{Mutex, mpsc};

use super::{
    Queues,
    asks::{Ask, End, Send, Take},
    receiver::{Given, Handover},
    signals::Looked,
};

/// Messages and settlements that share a commit, at most: more would keep the first waiting for the last.
const GROUP_MAX: usize = 1024;

/// A writer's connection, and how a group is written on it.
pub(crate) trait Writer: Sized {
    type Queues: Queues;
    /// What a group was told.
    type Told;
    type Fault: Fault;

    fn place(&self) -> &str;
    fn group_bytes_max(&self) -> usize;
    async fn write(&mut self, group: &[Ask<Self::Queues>]) -> Result<Self::Told, Self::Fault>;
    /// An error means that something was told which cannot be read, of what is committed.
    fn answers<'t>(&self, group: &[Ask<Self::Queues>], told: &'t Self::Told) -> Result<Answers<'t>, Self::Fault>;
    async fn close(&mut self);
}

/// What the server did not do.
pub(crate) trait Fault: Debug {
    /// The write may have taken effect.
    fn is_unknown(&self) -> bool;
    /// Trying members one by one would only repeat it.
    fn is_of_all(&self) -> bool;
    /// Others hold what it needs, for longer than was waited.
    fn is_of_a_lock(&self) -> bool;
    fn store_error(&self, operation: &'static str, place: &str) -> StoreError;
}

/// What a group was told.
#[derive(Default)]
pub(crate) struct Answers<'t> {
    /// Leases that were still held: numbers and tokens.
    pub(crate) ended: HashSet<(i64, i64)>,
    /// Queues that something published went to.
    pub(crate) sent: Vec<i64>,
    pub(crate) given: Vec<Given<'t>>,
    /// Of a take.
    pub(crate) looked: Option<Looked>,
}

/// Ends when the last handle to the queue is gone, or when it is told to close.
pub(crate) async fn run<W: Writer>(mut writer: W, queue: Arc<Mutex<mpsc::Receiver<Ask<W::Queues>>>>) {
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
        let group = next_group(&mut waiting, writer.group_bytes_max());
        write_group(&mut writer, group).await;
    }
    writer.close().await;
}

async fn write_group<W: Writer>(writer: &mut W, group: Vec<Ask<W::Queues>>) {
    if group.is_empty() {
        return;
    }
    match writer.write(&group).await {
        Ok(told) => answer(writer, group, &told),
        Err(fault) if group.len() == 1 || fault.is_unknown() || fault.is_of_all() => fail_all(writer, group, &fault),
        // Nothing of it was written. One by one, the member that is at fault hurts only itself.
        Err(fault) => {
            tracing::warn!(place = writer.place(), ?fault, "a group of {} requests is written one by one", group.len());
            let mut locks = 0;
            for ask in group {
                if ask.is_left() {
                    continue; // Nobody waits for it any more, and nothing of it has been written.
                }
                let alone = vec![ask];
                if locks == LOCKS_MAX {
                    fail_all(writer, alone, &fault);
                    continue;
                }
                match writer.write(&alone).await {
                    Ok(told) => answer(writer, alone, &told),
                    Err(fault) => {
                        locks += usize::from(fault.is_of_a_lock());
                        fail_all(writer, alone, &fault);
                    }
                }
            }
        }
    }
}

fn fail_all<W: Writer>(writer: &W, group: Vec<Ask<W::Queues>>, fault: &W::Fault) {
    group.into_iter().for_each(|ask| ask.fail(&|operation| fault.store_error(operation, writer.place())));
}

/// Tells each member its own result, by number and token of what it asked for.
fn answer<W: Writer>(writer: &W, group: Vec<Ask<W::Queues>>, told: &W::Told) {
    let mut answers = match writer.answers(&group, told) {
        Ok(answers) => answers,
        // It is committed: what cannot be told is not known.
        Err(fault) => return fail_all(writer, group, &fault),
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
            Ask::Take(Take { handover, answer, .. }) => {
                let handover: Handover<W::Queues> = handover.filled(std::mem::take(&mut answers.given));
                let looked = answers.looked.unwrap_or_default();
                let _ = answer.send(Ok((handover, looked))); // If nobody is there, it gives itself back.
            }
            Ask::End(_) | Ask::Close => {}
        }
    }
}

/// Takes the next group out of `waiting`: in order, one take at most, and each lease once. What would be a second one waits
/// for the next group; so does all behind it that has to do with the same.
fn next_group<Q: Queues>(waiting: &mut VecDeque<Ask<Q>>, bytes_max: usize) -> Vec<Ask<Q>> {
    let (mut group, mut held) = (Vec::new(), VecDeque::new());
    let (mut rows, mut bytes, mut takes) = (0, 0, false);
    let mut leases: HashSet<(i64, i64)> = HashSet::new();
    while let Some(ask) = waiting.pop_front() {
        if ask.is_left() {
            continue;
        }
        if !group.is_empty() && (rows + ask.rows() > GROUP_MAX || bytes + ask.size() > bytes_max) {
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
