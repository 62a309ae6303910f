use std::{sync::Arc, time::Duration};

use ::redis::{Cmd, Value, cmd, pipe};
use hapax_core::ports::{ErrorKind, TransportError};
use tokio::time::{Instant, sleep};

use super::{
    Broker,
    errors::malformed,
    link::Lane,
    receiver::{End, RECEIVING, Taken},
    scripts::Loaded,
};

/// Who wants an answer that the server holds tells it again after as long: it may not have heard the question when it was told.
const RING: Duration = Duration::from_millis(2);

/// The server holds a question until something comes into a queue, whoever sends it, and has the next one answered in the moment in which
/// it lets go of the first: so what is taken for who waits is taken with no further journey, and goes to the disk together with what has
/// come.
///
/// Such a question (`XREAD` with `BLOCK`, beside the group) holds up what comes behind it, so it has a connection of its own.
pub(super) struct Bell {
    queue: String,
    lane: Lane,
}

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
        Self { queue, lane: Lane::default() }
    }

    /// Waits until there is something behind the entry `last`, or for `longest`, and asks `then`.
    pub(super) async fn ask(
        &self,
        broker: &Broker,
        last: &str,
        longest: Duration,
        then: impl FnOnce(&Loaded) -> Cmd,
    ) -> Result<Value, TransportError> {
        let open = broker.link.open(&self.lane).await?;
        let mut read = cmd("XREAD");
        // Zero would be for ever.
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX).max(1);
        read.arg("COUNT").arg(1).arg("BLOCK").arg(millis).arg("STREAMS").arg(&self.queue).arg(last);
        let mut both = pipe();
        both.add_command(read).add_command(then(&open.scripts));
        let patience = broker.link.patience + longest;
        let mut answers = broker.link.ask_all_within(&open, RECEIVING, false, &both, patience).await?.into_iter();
        match (answers.next(), answers.next()) {
            (Some(Ok(_)), Some(taken)) => taken,
            (Some(Err(e)), _) => Err(e),
            _ => Err(malformed(RECEIVING, broker.link.place())),
        }
    }

    /// Lets the server answer at once. In vain where it has not heard the question yet.
    pub(super) async fn ring(&self, broker: &Broker, lane: &Lane) {
        let Ok(open) = broker.link.open(&self.lane).await else { return };
        let Some(id) = open.id else { return };
        let asked = broker.link.ask(lane, RECEIVING, false, |_| {
            let mut unblock = cmd("CLIENT");
            unblock.arg("UNBLOCK").arg(id);
            unblock
        });
        if let Err(error) = asked.await {
            tracing::debug!(%error, queue = self.queue, "who waits for messages looks again by itself only");
        }
    }
}

impl End {
    /// The same once there is something, or it has taken too long, or something was given back here, or nobody asks any more.
    pub(super) async fn taken_after(
        self: &Arc<Self>,
        wait: &Wait,
        max: usize,
        is_unasked: impl Future<Output = ()>,
    ) -> Result<Taken, TransportError> {
        let looks = self.trimmed().await;
        let is_ordered = self.broker.options.ordered_keys;
        let asked = self.bell.ask(&self.broker, &wait.last, wait.longest, |scripts| match is_ordered {
            // What is taken for who is gone by then would be given back, and would come behind what came after it.
            true => cmd("PING"),
            false => self.take_call(scripts, max, looks),
        });
        let mut asked = std::pin::pin!(asked);
        let (answer, is_asked) = tokio::select! {
            biased;
            answer = &mut asked => (answer, true),
            () = self.again.notified() => (self.rung(&mut asked).await, true),
            () = is_unasked => (self.rung(&mut asked).await, false),
        };
        match (is_ordered, is_asked) {
            (false, _) => self.read(answer?),
            (true, true) => {
                answer?;
                self.taken(max).await
            }
            (true, false) => Err(TransportError::new(ErrorKind::Unavailable, RECEIVING, "nobody asks any more")),
        }
    }

    /// The answer that the server holds.
    async fn rung<F: Future + Unpin>(&self, asked: &mut F) -> F::Output {
        loop {
            let ring = async {
                self.bell.ring(&self.broker, &self.lane).await;
                sleep(RING).await;
            };
            tokio::select! {
                biased;
                answer = &mut *asked => return answer,
                () = ring => {}
            }
        }
    }
}
