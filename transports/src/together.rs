//! What is asked for at the same time goes together: whatever came while others were under way, without a timer.
//!
//! One call at a time would leave the broker idle while its answer travels; a call for each message costs both sides more than the
//! message. So a few calls are under way at most, and the next takes all that waits then. Who asks gets an answer for what it has asked
//! for and for nothing else, and gets it when its own call is answered.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hapax_core::ports::{ErrorKind, TransportError};
use tokio::sync::oneshot;

/// What waits for a call, and how many are under way.
pub(crate) struct Together<T, A> {
    state: Mutex<State<T, A>>,
    calls_max: usize,
    together_max: usize,
}

struct State<T, A> {
    asked: Vec<Asked<T, A>>,
    /// Tasks that make calls.
    callers: usize,
}

struct Asked<T, A> {
    these: Vec<T>,
    answer: oneshot::Sender<Vec<A>>,
}

/// What goes in one call.
pub(crate) struct Batch<T, A> {
    pub(crate) these: Vec<T>,
    /// Who has asked for how many of them, in their order.
    asking: Vec<(usize, oneshot::Sender<Vec<A>>)>,
}

/// Who makes calls, one after the other, as long as something waits.
pub(crate) struct Caller<T, A> {
    together: Arc<Together<T, A>>,
    has_ended: bool,
}

impl<T: Send + 'static, A: Send + 'static> Together<T, A> {
    /// With as many calls under way at a time, and as many things in each, unless one asks for more by itself.
    pub(crate) fn new(calls_max: usize, together_max: usize) -> Arc<Self> {
        let state = Mutex::new(State { asked: Vec::new(), callers: 0 });
        Arc::new(Self { state, calls_max, together_max })
    }

    fn state(&self) -> MutexGuard<'_, State<T, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for `these`, in their order. `call` is spawned if there is room for another call. It goes on if whoever asks is dropped. `None`
    /// if the runtime is ending: what became of them is unknown.
    pub(crate) async fn ask<C, F>(self: &Arc<Self>, these: Vec<T>, call: C) -> Option<Vec<A>>
    where
        C: FnOnce(Caller<T, A>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let has_room = {
            let mut state = self.state();
            state.asked.push(Asked { these, answer });
            let has_room = state.callers < self.calls_max;
            state.callers += usize::from(has_room);
            has_room
        };
        if has_room {
            tokio::spawn(call(Caller { together: self.clone(), has_ended: false }));
        }
        answered.await.ok()
    }
}

impl<T: Send + 'static, A: Send + 'static> Caller<T, A> {
    /// What goes next; with nothing that waits this one has ended.
    pub(crate) fn next(&mut self) -> Option<Batch<T, A>> {
        let mut state = self.together.state();
        let (mut count, mut size) = (0, 0);
        for asked in &state.asked {
            size += asked.these.len();
            if count > 0 && size > self.together.together_max {
                break;
            }
            count += 1;
        }
        if count == 0 {
            // In one with the look: what comes after it finds a place for a caller.
            state.callers -= 1;
            self.has_ended = true;
            return None;
        }
        let (mut these, mut asking) = (Vec::new(), Vec::with_capacity(count));
        for mut asked in state.asked.drain(..count) {
            asking.push((asked.these.len(), asked.answer));
            these.append(&mut asked.these);
        }
        Some(Batch { these, asking })
    }
}

impl<T, A> Drop for Caller<T, A> {
    /// With its runtime. If it was the last, nobody would care for what waits.
    fn drop(&mut self) {
        if !self.has_ended {
            let mut state = self.together.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.callers -= 1;
            if state.callers == 0 {
                state.asked.clear();
            }
        }
    }
}

impl<T, A> Batch<T, A> {
    /// How many have asked.
    #[cfg(feature = "rabbitmq")]
    pub(crate) fn asking(&self) -> impl Iterator<Item = usize> + '_ {
        self.asking.iter().map(|(count, _)| *count)
    }

    /// Tells each what became of what it has asked for. There is an answer for each of these.
    pub(crate) fn answer(self, answers: Vec<A>) {
        let mut answers = answers.into_iter();
        for (count, answer) in self.asking {
            // Who asked may be gone.
            drop(answer.send(answers.by_ref().take(count).collect()));
        }
    }
}

/// What [`ask`](Together::ask) has no answer for.
pub(crate) fn ended(operation: &'static str) -> TransportError {
    TransportError::new(ErrorKind::UnknownOutcome, operation, "the runtime in which it was asked is ending")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// Doubles what it is asked for, once it may.
    struct Doubling {
        together: Arc<Together<u32, u32>>,
        may: Semaphore,
        calls: Mutex<Vec<usize>>,
        at_once: AtomicUsize,
    }

    impl Doubling {
        fn new(calls_max: usize, together_max: usize) -> Arc<Self> {
            let (together, may) = (Together::new(calls_max, together_max), Semaphore::new(0));
            Arc::new(Self { together, may, calls: Mutex::default(), at_once: AtomicUsize::new(0) })
        }

        async fn of(self: Arc<Self>, these: Vec<u32>) -> Option<Vec<u32>> {
            let this = self.clone();
            self.together
                .ask(these, move |mut caller| async move {
                    while let Some(batch) = caller.next() {
                        this.at_once.fetch_add(1, Ordering::Relaxed);
                        this.may.acquire().await.unwrap().forget();
                        this.at_once.fetch_sub(1, Ordering::Relaxed);
                        this.calls.lock().unwrap().push(batch.these.len());
                        let answers = batch.these.iter().map(|this| this * 2).collect();
                        batch.answer(answers);
                    }
                })
                .await
        }
    }

    async fn others() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_comes_while_calls_are_under_way_goes_together_and_each_gets_its_own_answers() {
        let doubling = Doubling::new(2, 100);
        let mut asked = Vec::new();
        for number in 0..10 {
            asked.push((number, tokio::spawn(doubling.clone().of(vec![number, number + 100]))));
            others().await;
        }
        assert_eq!(doubling.at_once.load(Ordering::Relaxed), 2);
        doubling.may.add_permits(100);
        for (number, asked) in asked {
            assert_eq!(asked.await.unwrap(), Some(vec![number * 2, number * 2 + 200]));
        }
        let mut calls = std::mem::take(&mut *doubling.calls.lock().unwrap());
        calls.sort_unstable();
        assert_eq!(calls, [2, 2, 16]);
        assert_eq!(doubling.together.state().callers, 0);
        assert_eq!(doubling.clone().of(vec![7]).await, Some(vec![14]));
    }

    #[tokio::test]
    async fn no_more_go_together_than_may_but_what_is_asked_for_at_once_is_never_parted() {
        let doubling = Doubling::new(1, 4);
        let asked: Vec<_> = [1, 3, 2, 9, 1].map(|count| tokio::spawn(doubling.clone().of(vec![1; count]))).into();
        others().await;
        doubling.may.add_permits(100);
        for asked in asked {
            asked.await.unwrap().unwrap();
        }
        assert_eq!(*doubling.calls.lock().unwrap(), [4, 2, 9, 1]);
    }

    #[tokio::test]
    async fn it_goes_on_when_who_has_asked_is_dropped() {
        let doubling = Doubling::new(1, 100);
        let dropped = tokio::spawn(doubling.clone().of(vec![1]));
        let stays = tokio::spawn(doubling.clone().of(vec![2]));
        others().await;
        dropped.abort();
        doubling.may.add_permits(100);
        assert_eq!(stays.await.unwrap(), Some(vec![4]));
    }

    #[test]
    fn with_the_runtime_of_the_last_call_who_waits_is_told_and_another_runtime_goes_on() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let doubling = Doubling::new(1, 100);
        let first = runtime();
        first.block_on(async {
            tokio::spawn(doubling.clone().of(vec![1]));
            others().await;
        });
        let waits = std::thread::spawn({
            let doubling = doubling.clone();
            move || runtime().block_on(doubling.of(vec![2]))
        });
        while doubling.together.state().asked.is_empty() {
            std::thread::yield_now();
        }
        drop(first);
        assert_eq!(waits.join().unwrap(), None);
        doubling.may.add_permits(1);
        assert_eq!(runtime().block_on(doubling.of(vec![3])), Some(vec![6]));
    }
}
