//! What goes together and what does not, who is answered when, and what becomes of those who are gone: by calls that end when the test says so.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::*;

/// Some times as long is longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Doubles what it is asked for, once it may.
struct Doubling {
    together: Arc<Together<u32, u32>>,
    may: Semaphore,
    calls: Mutex<Vec<usize>>,
    at_once: AtomicUsize,
}

impl Doubling {
    fn new(calls_max: usize, together_max: usize) -> Arc<Self> {
        Self::within(Bounds::of(calls_max, together_max, PATIENCE))
    }

    fn within(bounds: Bounds) -> Arc<Self> {
        let (together, may) = (Together::new(bounds), Semaphore::new(0));
        Arc::new(Self { together, may, calls: Mutex::default(), at_once: AtomicUsize::new(0) })
    }

    async fn of(self: Arc<Self>, these: Vec<u32>) -> Result<Vec<u32>, Unanswered> {
        self.of_bytes(these, 1).await
    }

    async fn of_bytes(self: Arc<Self>, these: Vec<u32>, bytes: usize) -> Result<Vec<u32>, Unanswered> {
        let this = self.clone();
        let call = move |mut caller: Caller<u32, u32>| async move {
            while let Some((these, askers)) = caller.next() {
                this.at_once.fetch_add(1, Ordering::Relaxed);
                this.may.acquire().await.unwrap().forget();
                this.at_once.fetch_sub(1, Ordering::Relaxed);
                this.calls.lock().unwrap().push(these.len());
                let mut answers = these.into_iter().map(|this| this * 2);
                for asker in askers {
                    asker.answer_from(&mut answers);
                }
            }
        };
        self.together.ask(these, bytes, call).await
    }

    fn waiting(&self) -> Size {
        self.together.state().size
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
        assert_eq!(asked.await.unwrap(), Ok(vec![number * 2, number * 2 + 200]));
    }
    let mut calls = std::mem::take(&mut *doubling.calls.lock().unwrap());
    calls.sort_unstable();
    assert_eq!(calls, [2, 2, 16]);
    let callers = doubling.together.state().callers;
    assert_eq!((callers, doubling.waiting()), (0, Size::default()));
    assert_eq!(doubling.clone().of(vec![7]).await, Ok(vec![14]));
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

#[tokio::test(start_paused = true)]
async fn no_more_bytes_go_together_than_may_and_what_is_larger_goes_alone() {
    let doubling = Doubling::within(Bounds { together_bytes_max: 10, ..Bounds::of(1, 100, PATIENCE) });
    let sizes = [4, 6, 1, 50, 9, 2];
    let asked: Vec<_> = sizes.map(|bytes| tokio::spawn(doubling.clone().of_bytes(vec![1], bytes))).into();
    others().await;
    doubling.may.add_permits(100);
    for asked in asked {
        asked.await.unwrap().unwrap();
    }
    assert_eq!(*doubling.calls.lock().unwrap(), [2, 1, 1, 1, 1]);
}

#[tokio::test]
async fn a_call_goes_on_when_who_has_asked_is_dropped() {
    let doubling = Doubling::new(1, 100);
    let dropped = tokio::spawn(doubling.clone().of(vec![1]));
    others().await;
    let stays = tokio::spawn(doubling.clone().of(vec![2]));
    others().await;
    dropped.abort();
    doubling.may.add_permits(100);
    assert_eq!(stays.await.unwrap(), Ok(vec![4]));
    assert_eq!(*doubling.calls.lock().unwrap(), [1, 1]);
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_asked_for() {
    let doubling = Doubling::new(1, 100);
    let first = tokio::spawn(doubling.clone().of(vec![1]));
    others().await;
    let dropped = tokio::spawn(doubling.clone().of(vec![2; 30]));
    let stays = tokio::spawn(doubling.clone().of(vec![3]));
    others().await;
    dropped.abort();
    drop(dropped.await);
    doubling.may.add_permits(100);
    assert_eq!((first.await.unwrap(), stays.await.unwrap()), (Ok(vec![2]), Ok(vec![6])));
    assert_eq!(*doubling.calls.lock().unwrap(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_has_a_bound_and_who_is_gone_makes_room() {
    let bounds = Bounds { waiting_max: 3, waiting_bytes_max: 100, ..Bounds::of(1, 100, PATIENCE) };
    let doubling = Doubling::within(bounds);
    let first = tokio::spawn(doubling.clone().of(vec![1]));
    others().await;
    // Nothing waits yet, so that it may be as much as it likes.
    let large = tokio::spawn(doubling.clone().of_bytes(vec![2; 5], 1000));
    others().await;
    assert_eq!(doubling.clone().of(vec![3]).await, Err(Unanswered::Full));
    large.abort();
    drop(large.await);
    let small = tokio::spawn(doubling.clone().of_bytes(vec![4, 5], 99));
    others().await;
    assert_eq!(doubling.clone().of(vec![6, 7]).await, Err(Unanswered::Full), "too many");
    assert_eq!(doubling.clone().of_bytes(vec![6], 2).await, Err(Unanswered::Full), "too large");
    let last = tokio::spawn(doubling.clone().of(vec![6]));
    others().await;
    assert_eq!(doubling.waiting(), Size { things: 3, bytes: 100 });
    doubling.may.add_permits(100);
    for (asked, answer) in [(first, vec![2]), (small, vec![8, 10]), (last, vec![12])] {
        assert_eq!(asked.await.unwrap(), Ok(answer));
    }
    assert_eq!(doubling.waiting(), Size::default());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_ends_is_not_waited_for_without_end() {
    let doubling = Doubling::new(1, 100);
    let late = Unanswered::Late(PATIENCE * PATIENCES);
    let (under_way, waits) = (doubling.clone().of(vec![1]), doubling.clone().of(vec![2]));
    assert_eq!(futures_util::future::join(under_way, waits).await, (Err(late), Err(late)));
}

#[tokio::test]
async fn each_is_answered_as_soon_as_its_part_is_known() {
    let together = Together::<u32, u32>::new(Bounds::of(1, 100, PATIENCE));
    let may = Arc::new(Semaphore::new(0));
    let ask = |this: u32| {
        let (together, may) = (together.clone(), may.clone());
        tokio::spawn(async move {
            let call = move |mut caller: Caller<u32, u32>| async move {
                while let Some((these, askers)) = caller.next() {
                    let mut answers = these.into_iter();
                    for asker in askers {
                        may.acquire().await.unwrap().forget();
                        asker.answer_from(&mut answers);
                    }
                }
            };
            together.ask(vec![this], 1, call).await
        })
    };
    let (first, second, third) = (ask(1), ask(2), ask(3));
    others().await;
    may.add_permits(2);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(vec![1]), Ok(vec![2])));
    assert!(!third.is_finished());
    may.add_permits(1);
    assert_eq!(third.await.unwrap(), Ok(vec![3]));
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
    assert_eq!(waits.join().unwrap(), Err(Unanswered::Ended));
    doubling.may.add_permits(1);
    assert_eq!(runtime().block_on(doubling.of(vec![3])), Ok(vec![6]));
}

#[test]
fn each_that_was_not_refused_is_told_its_own_answer_or_why_there_is_none() {
    let failed = |why: &str| TransportError::new(ErrorKind::Unavailable, "sending", why.to_owned());
    let results = || vec![Ok(()), Err(DispatchError::Permanent(failed("refused"))), Ok(()), Ok(())];
    let mut some = results();
    tell(&mut some, Ok(vec![Ok(1), Err(failed("nowhere"))]), "sending");
    let [Ok(()), Err(DispatchError::Permanent(_)), Err(DispatchError::Transient(second)), Err(missing)] = &some[..]
    else {
        panic!("{some:?}")
    };
    assert_eq!(second.to_string(), "sending: nowhere");
    assert!(matches!(missing, DispatchError::Transient(e) if e.kind() == ErrorKind::UnknownOutcome), "{missing:?}");
    let mut none = results();
    tell::<()>(&mut none, Err(Unanswered::Full), "sending");
    let [Err(DispatchError::Transient(full)), Err(DispatchError::Permanent(_)), ..] = &none[..] else {
        panic!("{none:?}")
    };
    assert_eq!(full.kind(), ErrorKind::Unavailable, "nothing was sent");
    assert!(full.to_string().contains("send fewer at a time"), "{full}");
}
