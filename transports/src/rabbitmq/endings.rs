//! What ends deliveries goes together: acknowledgements of all that was given first are one word to the server, which writes
//! one entry to its log for it instead of one for each (AMQP 0-9-1, `basic.ack`, `multiple`).

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hapax_core::ports::{Settled, TransportError};
use lapin::{
    Acker,
    options::{BasicAckOptions, BasicNackOptions},
    types::DeliveryTag,
};
use tokio::time::timeout;

use super::{
    Broker,
    dispatcher::again,
    errors::{error_of, gone, late},
};
use crate::together::{Bounds, Caller, Together};

pub(super) const SETTLING: &str = "settling a message";
/// How often whoever waits for the answer to a settlement looks whether its connection has ended. No answer takes as long by
/// itself: it comes once what was said is written.
const LOOK: Duration = Duration::from_millis(100);
/// Calls at a time: what ends before another and what goes with it is decided in one place. It does not wait for the server.
const CALLS_MAX: usize = 1;
/// As many as an endpoint has under way unless told otherwise.
const TOGETHER_MAX: usize = 1024;

/// What is given on one channel and not settled.
#[derive(Default)]
pub(super) struct Unsettled(Mutex<BTreeSet<DeliveryTag>>);

impl Unsettled {
    fn tags(&self) -> MutexGuard<'_, BTreeSet<DeliveryTag>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A delivery on its channel.
#[derive(Clone)]
pub(super) struct Tagged {
    acker: Acker,
    tag: DeliveryTag,
    unsettled: Arc<Unsettled>,
}

impl Tagged {
    /// What was given after all that was tagged of the channel before.
    pub(super) fn new(acker: Acker, tag: DeliveryTag, unsettled: &Arc<Unsettled>) -> Self {
        unsettled.tags().insert(tag);
        Self { acker, tag, unsettled: unsettled.clone() }
    }

    /// Whether it can be settled still.
    pub(super) fn is_held(&self) -> bool {
        self.acker.usable()
    }
}

/// How a delivery ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Acknowledged,
    /// The server counts it and gives it again at once.
    GivenBack,
}

type Ended = Result<Settled, TransportError>;

/// A delivery that is to end.
pub(super) type Ending = (Tagged, How);

/// What is to end, of several calls of one endpoint: it does not wait for another's connection.
pub(super) type Endings = Arc<Together<Ending, Ended>>;

/// None so far.
pub(super) fn endings(patience: Duration) -> Endings {
    Together::new(Bounds::of(CALLS_MAX, TOGETHER_MAX, patience))
}

/// What is said to the server, and for which deliveries: their tags, and their places among what was asked for.
struct Word {
    acker: Acker,
    how: How,
    of: Vec<(DeliveryTag, usize)>,
}

impl Broker {
    /// Ends a delivery, once it is said to the server. AMQP has no answer to it.
    pub(super) async fn end(self: &Arc<Self>, endings: &Endings, tagged: Tagged, how: How) -> Ended {
        let broker = self.clone();
        let asked = endings.ask(vec![(tagged, how)], 0, move |caller| broker.end_together(caller));
        let ended = asked.await.map_err(|unanswered| unanswered.error(SETTLING))?;
        ended.into_iter().next().unwrap_or(Ok(Settled::LeaseLost))
    }

    /// What several have asked for, as long as there is any.
    async fn end_together(self: Arc<Self>, mut caller: Caller<Ending, Ended>) {
        while let Some((these, askers)) = caller.next() {
            let mut ended: Vec<Ended> = these.iter().map(|_| Ok(Settled::LeaseLost)).collect();
            let mut left: Vec<(usize, Ending)> = these.into_iter().enumerate().collect();
            while let Some((_, (first, _))) = left.first() {
                let unsettled = first.unsettled.clone();
                let is_its = |(_, (tagged, _)): &(usize, Ending)| Arc::ptr_eq(&tagged.unsettled, &unsettled);
                let (its, others) = left.into_iter().partition(is_its);
                self.end_on(&unsettled, its, &mut ended).await;
                left = others; // Of a channel that was lost a moment ago.
            }
            let mut ended = ended.into_iter();
            askers.into_iter().for_each(|asker| asker.answer_from(&mut ended));
        }
    }

    /// Ends `these` of one channel and writes how each ended to its place.
    async fn end_on(&self, unsettled: &Unsettled, these: Vec<(usize, Ending)>, ended: &mut [Ended]) {
        let words = words(&unsettled.tags(), these);
        let said = join_all(words.iter().map(|word| self.say(word))).await;
        let mut tags = unsettled.tags();
        for (word, said) in words.into_iter().zip(said) {
            for (tag, place) in word.of {
                // Where it is not known whether this was said, another acknowledgement may say it too; of what was to be given back it must not.
                if word.how == How::Acknowledged || matches!(said, Ok(Settled::Done)) {
                    tags.remove(&tag);
                }
                if let Some(ended) = ended.get_mut(place) {
                    *ended = said.as_ref().copied().map_err(|e| again(SETTLING, e));
                }
            }
        }
    }

    async fn say(&self, word: &Word) -> Ended {
        match word.how {
            How::Acknowledged => {
                let options = BasicAckOptions { multiple: word.of.len() > 1 };
                self.written(&word.acker, word.acker.ack(options)).await
            }
            How::GivenBack => {
                let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
                self.written(&word.acker, word.acker.nack(options)).await
            }
        }
    }

    /// The driver forgets what it is asked for at the very moment at which it notices that the connection has ended, so the
    /// answer is not waited for longer than the connection lasts.
    async fn written(&self, acker: &Acker, asked: impl Future<Output = lapin::Result<bool>>) -> Ended {
        let (place, patience) = (self.link.place(), self.options.patience);
        let (mut asked, begun) = (pin!(asked), Instant::now());
        loop {
            match timeout(LOOK.min(patience), &mut asked).await {
                Ok(Ok(true)) => return Ok(Settled::Done),
                Ok(Ok(false)) => return Ok(Settled::LeaseLost),
                Ok(Err(e)) => return Err(error_of(SETTLING, place, e, true)),
                Err(_) if acker.poisoned() => return Err(gone(SETTLING, place, true)),
                Err(_) if begun.elapsed() >= patience => return Err(late(SETTLING, place, patience, true)),
                Err(_) => {}
            }
        }
    }
}

/// What is to be said of `these`, where `unsettled` is all that the server has given on their channel and was not told of: one word for
/// all up to the first that is not to be acknowledged now, and one for each other. What is not unsettled any more is in none.
fn words(unsettled: &BTreeSet<DeliveryTag>, these: Vec<(usize, Ending)>) -> Vec<Word> {
    let (mut acknowledged, mut words, mut taken) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    for (place, (Tagged { acker, tag, .. }, how)) in these {
        if !unsettled.contains(&tag) || !taken.insert(tag) {
            continue;
        }
        let word = Word { acker, how, of: vec![(tag, place)] };
        match how {
            How::Acknowledged => drop(acknowledged.insert(tag, word)),
            How::GivenBack => words.push(word),
        }
    }
    let last = up_to(unsettled, acknowledged.keys());
    let mut first: Option<Word> = None;
    for (tag, mut word) in acknowledged {
        match first.as_mut() {
            Some(first) if last.is_some_and(|last| tag <= last) => {
                first.acker = word.acker;
                first.of.append(&mut word.of);
            }
            None if last.is_some() => first = Some(word),
            _ => words.push(word),
        }
    }
    words.extend(first);
    words
}

/// The last of `acknowledged`, in their order, before which nothing is unsettled that is none of them: what is given up to there may be
/// acknowledged by one word.
fn up_to<'t>(
    unsettled: &BTreeSet<DeliveryTag>,
    acknowledged: impl Iterator<Item = &'t DeliveryTag>,
) -> Option<DeliveryTag> {
    unsettled.iter().zip(acknowledged).take_while(|(all, its)| all == its).last().map(|(tag, _)| *tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_says_no_more_than_was_asked_for() {
        let of =
            |unsettled: &[u64], acknowledged: &[u64]| up_to(&unsettled.iter().copied().collect(), acknowledged.iter());
        assert_eq!(of(&[1, 2, 3], &[1, 2, 3]), Some(3));
        assert_eq!(of(&[1, 2, 3], &[1, 3]), Some(1));
        assert_eq!(of(&[2, 3, 9], &[2, 3]), Some(3));
        assert_eq!(of(&[1, 2, 3], &[2, 3]), None);
        assert_eq!(of(&[4], &[]), None);
    }
}
