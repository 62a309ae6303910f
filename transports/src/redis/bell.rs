//! How who waits hears of a message without asking again and again: the server holds a question until there is something.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::redis::{Cmd, Value, cmd, pipe};
use hapax_core::ports::{ErrorKind, TransportError};
use tokio::{
    sync::{Semaphore, oneshot},
    time::{Instant, sleep, timeout},
};

use super::{
    Broker,
    errors::{late, malformed},
    held::Missed,
    link::{Lane, Open},
    receiver::{End, RECEIVING, Taken},
};

/// Who wants an answer that the server holds tells it again after as long: it may not have heard the question when it was told.
const RING: Duration = Duration::from_millis(2);
/// And then after twice as long each time, up to this: one that does not hear is not to be shouted at.
const RING_MAX: Duration = Duration::from_millis(250);
/// How much longer than it was told to hold an answer a server may take for it: a busy disk writes what was taken. Who waits looks by itself
/// then, and what the answer brings after all is given back.
const GRACE: Duration = Duration::from_secs(1);
/// After a server has kept silent it is not asked to tell of anything for as long: each question that it leaves open is kept until its
/// own time is over.
const SILENCE: Duration = Duration::from_secs(10);

/// The server holds a question until something comes into a queue, whoever sends it, and has the next one answered in the moment in which
/// it lets go of the first: so what is taken for who waits is taken with no further journey, and goes to the disk together with what has
/// come.
///
/// Such a question (`XREAD` with `BLOCK`, beside the group) holds up what comes behind it, so it has a connection of its own.
pub(super) struct Bell {
    queue: String,
    lane: Lane,
    /// For one who makes the connection.
    opening: Arc<Semaphore>,
    /// When an answer was waited for in vain.
    silent: Mutex<Option<Instant>>,
}

/// What the server has answered: whether it has told, and what it was asked for behind that. The one may fail without the other.
struct Heard {
    told: Result<(), TransportError>,
    then: Result<Value, TransportError>,
}

/// To whom what was taken goes.
pub(super) type Answer = oneshot::Sender<Result<Taken, TransportError>>;

/// What a call waits for.
pub(super) struct Wait {
    /// Something behind this entry.
    pub(super) last: String,
    /// Or until then.
    pub(super) longest: Duration,
}

/// What a call that took all there was has found out for the next.
pub(super) struct Known {
    /// The newest entry.
    pub(super) last: String,
    /// When something that is not new has to be looked for.
    pub(super) until: Instant,
}

impl Known {
    pub(super) fn wait(self) -> Option<Wait> {
        let longest = self.until.saturating_duration_since(Instant::now());
        (!longest.is_zero()).then_some(Wait { last: self.last, longest })
    }
}

impl Bell {
    pub(super) fn new(queue: String) -> Self {
        Self { queue, lane: Lane::default(), opening: Arc::new(Semaphore::new(1)), silent: Mutex::default() }
    }

    fn silent(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_silent(&self) -> bool {
        self.silent().is_some_and(|since| since.elapsed() < SILENCE)
    }

    /// Waits until there is something behind the entry that is waited for, or for as long as was said, and asks `then`.
    async fn ask(&self, broker: &Broker, open: &Open, wait: &Wait, then: Cmd) -> Result<Heard, TransportError> {
        let mut read = cmd("XREAD");
        // Zero would be for ever.
        let millis = u64::try_from(wait.longest.as_millis()).unwrap_or(u64::MAX).max(1);
        read.arg("COUNT").arg(1).arg("BLOCK").arg(millis).arg("STREAMS").arg(&self.queue).arg(&wait.last);
        let mut both = pipe();
        both.add_command(read).add_command(then);
        let patience = broker.link.patience + wait.longest;
        let mut answers = broker.link.ask_all_within(open, RECEIVING, false, &both, patience).await?.into_iter();
        match (answers.next(), answers.next()) {
            (Some(told), Some(then)) => Ok(Heard { told: told.map(drop), then }),
            _ => Err(malformed(RECEIVING, broker.link.place())),
        }
    }

    /// Lets the server answer at once what was asked on `open`. In vain where it has not heard the question yet.
    async fn ring(&self, broker: &Broker, open: &Open, lane: &Lane) {
        let Some(id) = open.id else { return };
        let asked = async {
            // Behind an address there may be another server by now, where somebody else is called so.
            let beside = broker.link.open(lane).await?;
            if !open.is_beside(&beside) {
                return Ok(());
            }
            let mut unblock = cmd("CLIENT");
            unblock.arg("UNBLOCK").arg(id);
            let patience = broker.link.patience;
            broker.link.ask_within(&beside, RECEIVING, false, &unblock, patience).await.map(drop)
        };
        if let Err(error) = asked.await {
            tracing::debug!(%error, queue = self.queue, "who waits for messages looks again by itself only");
        }
    }
}

impl End {
    /// Takes once there is something, or it has taken too long, or something was given back here, or nobody asks any more.
    pub(super) async fn take_after(self: &Arc<Self>, wait: &Wait, max: usize, mut answer: Answer) {
        let is_ordered = self.broker.options.ordered_keys;
        let open = tokio::select! {
            open = self.bell_within(wait.longest) => open,
            () = answer.closed() => return,
        };
        let open = match open {
            Ok(open) => open,
            Err(e) => return drop(answer.send(Err(e))),
        };
        // Where there is an order, nothing is looked for before the answer.
        let looks = !is_ordered && self.trimmed();
        let then = match is_ordered {
            // What is taken for who is gone by then would be given back, and would come behind what came after it.
            true => cmd("PING"),
            false => self.take_call(&open.scripts, max, looks, &Missed::default()),
        };
        let mut asked = std::pin::pin!(self.bell.ask(&self.broker, &open, wait, then));
        let heard = tokio::select! {
            biased;
            heard = &mut asked => Some(heard),
            () = self.again.notified() => timeout(GRACE, self.rung(&open, &mut asked)).await.ok(),
            () = answer.closed() => None,
            () = sleep(wait.longest + GRACE) => None,
        };
        let is_heard = heard.is_some();
        let taken = match heard {
            Some(heard) if is_ordered => self.taken_if_asked(heard, max, &answer).await,
            Some(heard) => heard.and_then(|heard| self.taken_behind(heard)),
            None => Err(late(RECEIVING, self.broker.link.place(), wait.longest + GRACE, false)),
        };
        if looks && taken.is_err() {
            self.look_again();
        }
        if is_heard {
            // Who asked may be gone: then what was taken is given back as it is dropped.
            return drop(answer.send(taken));
        }
        if !answer.is_closed() {
            *self.bell.silent() = Some(Instant::now());
            open.lose();
        }
        // Who asked looks by itself; what comes now is for nobody, and is given back as it is dropped.
        drop(answer.send(taken));
        if let Ok(heard) = self.rung(&open, &mut asked).await
            && !is_ordered
        {
            drop(self.taken_behind(heard));
        }
    }

    /// The bell's connection, if it is there in time. It is made all the same, for who asks next: over a long line it takes longer than anybody
    /// waits here.
    async fn bell_within(self: &Arc<Self>, longest: Duration) -> Result<Arc<Open>, TransportError> {
        let link = &self.broker.link;
        if self.bell.is_silent() {
            let why = format!("{} has not told of new messages when asked to", link.place());
            return Err(TransportError::new(ErrorKind::Unavailable, RECEIVING, why));
        }
        if let Some(open) = link.opened(&self.bell.lane) {
            return Ok(open);
        }
        let unopened = || late(RECEIVING, link.place(), longest, false);
        // Whoever comes while it is made looks by itself at once.
        let permit = self.bell.opening.clone().try_acquire_owned().map_err(|_| unopened())?;
        let end = self.clone();
        let opening = tokio::spawn(async move {
            let _permit = permit;
            end.broker.link.open(&end.bell.lane).await
        });
        match timeout(longest, opening).await {
            Ok(Ok(open)) => open,
            _ => Err(unopened()),
        }
    }

    /// What was taken with the answer.
    fn taken_behind(self: &Arc<Self>, heard: Heard) -> Result<Taken, TransportError> {
        let taken = heard.then.and_then(|taken| self.read(taken));
        match (heard.told, taken) {
            (Ok(()), taken) => taken,
            // It was taken all the same, and nobody else is given it before its lease is over.
            (Err(_), Ok(taken)) if taken.has_any() => Ok(taken),
            (Err(e), _) => Err(e),
        }
    }

    /// What is there once the server has told, for who still asks.
    async fn taken_if_asked(
        self: &Arc<Self>,
        heard: Result<Heard, TransportError>,
        max: usize,
        answer: &Answer,
    ) -> Result<Taken, TransportError> {
        let heard = heard?;
        heard.told?;
        heard.then?;
        if answer.is_closed() {
            return Err(TransportError::new(ErrorKind::Unavailable, RECEIVING, "nobody asks any more"));
        }
        self.taken(max).await
    }

    /// The answer that the server holds.
    async fn rung<F: Future + Unpin>(&self, open: &Open, asked: &mut F) -> F::Output {
        let mut rest = RING;
        loop {
            let ring = async {
                self.bell.ring(&self.broker, open, &self.lane).await;
                sleep(rest).await;
            };
            tokio::select! {
                biased;
                answer = &mut *asked => return answer,
                () = ring => rest = (rest * 2).min(RING_MAX),
            }
        }
    }
}
