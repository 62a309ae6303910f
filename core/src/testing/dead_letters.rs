//! Checks that a place for [`DeadLetters`] keeps its promises, each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::dead_letters_suite!(MyBuilder::new()); // one test for each promise
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Broken, Checked, Kept, Report,
    report::run,
    samples,
    wait::{SideBySide, insistently, together},
};
use crate::{
    envelope::Envelope,
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page},
    time::Timestamp,
};

const KEPT_WHOLE: &str = "dead letters 1, kept whole";
const ONCE_PER_CAUSE: &str = "dead letters 2, once per cause";
const DISCARDED_ALONE: &str = "dead letters 3, discarded alone";

/// More than any check adds.
const ALL: Page = Page::first(100);

/// Opens the place under test.
#[async_trait]
pub trait Builder: fmt::Debug + Send + Sync {
    /// Another handle onto the same letters, as another process would open it.
    async fn dead_letters(&self) -> Arc<dyn DeadLetters>;
}

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::dead_letters_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::dead_letters_suite!(@run [builder first_broken])
}

/// One test for each promise of [`DeadLetters`], named as the promise. The argument is an
/// expression for a [`Builder`], made anew in each test; the crate needs tokio
/// with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! dead_letters_suite {
    (@run [$($args:tt)*]) => { $crate::dead_letters_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        $($each)*! {
            [$($args)*]
            KEPT_WHOLE kept_whole
            ONCE_PER_CAUSE once_per_cause
            DISCARDED_ALONE discarded_alone
        }
    };
    ($builder:expr) => { $crate::dead_letters_suite!(@each [$crate::suite_tests] [dead_letters $builder]); };
}

/// One handle, and the promise that is being checked with it.
#[derive(Clone)]
struct Hand {
    letters: Arc<dyn DeadLetters>,
    promise: &'static str,
}

impl Hand {
    async fn new(builder: &dyn Builder, promise: &'static str) -> Self {
        Self { letters: builder.dead_letters().await, promise }
    }

    async fn add(&self, letter: &DeadLetter) -> Result<(), Broken> {
        insistently(self.promise, "setting a letter aside", || self.letters.add(letter)).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, Broken> {
        insistently(self.promise, "listing letters", || self.letters.list(endpoint, page)).await
    }

    /// How many were there, and whether it had to be asked again: then some may have gone without being counted.
    async fn discard(&self, letters: &[&DeadLetter]) -> Result<(usize, bool), Broken> {
        let letters: Vec<DeadLetter> = letters.iter().map(|letter| (*letter).clone()).collect();
        let asked = AtomicU32::new(0);
        let discarded = insistently(self.promise, "discarding letters", || {
            asked.fetch_add(1, Ordering::Relaxed);
            self.letters.discard(&letters)
        });
        Ok((discarded.await?, asked.load(Ordering::Relaxed) > 1))
    }

    async fn expect_discarded(&self, letters: &[&DeadLetter], there: usize) -> Checked {
        let (told, again) = self.discard(letters).await?;
        if told == there || (again && told < there) {
            return Ok(Kept::Shown);
        }
        Err(Broken::new(self.promise, format!("{told} letters are told to be discarded, {there} of them were there")))
    }

    async fn expect(&self, endpoint: &EndpointName, page: &Page, letters: &[&DeadLetter]) -> Result<(), Broken> {
        let listed = self.list(endpoint, page).await?;
        if listed.iter().eq(letters.iter().copied()) {
            return Ok(());
        }
        Err(Broken::new(self.promise, format!("{page:?} was to list {letters:+?}, it lists {listed:+?}")))
    }
}

/// Promise 1. *Kept whole:* once `add` has returned, `list` shows the letter with its id, headers and body as received;
/// oldest first, by pages, and only those of the endpoint and of the message asked for.
pub async fn kept_whole(builder: &dyn Builder) -> Checked {
    let (hand, other) = (Hand::new(builder, KEPT_WHOLE).await, Hand::new(builder, KEPT_WHOLE).await);
    let endpoint = samples::endpoint();
    let plain = DeadLetter {
        envelope: Arc::new(samples::envelope("")),
        saga: None,
        destination: None,
        time: Timestamp::from_millis(1_700_000_000_002),
        ..samples::letter(&endpoint)
    };
    let last = DeadLetter { time: Timestamp::from_millis(1_700_000_000_003), ..samples::letter(&endpoint) };
    let letters = [samples::letter(&endpoint), plain, last];
    for (index, letter) in letters.iter().enumerate() {
        hand.add(letter).await?;
        other.expect(&endpoint, &ALL, &letters[..=index].iter().collect::<Vec<_>>()).await?;
    }
    hand.add(&samples::letter(&samples::endpoint())).await?;
    other.expect(&endpoint, &Page { skip: 1, limit: 1, message_id: None }, &[&letters[1]]).await?;
    other.expect(&endpoint, &Page { skip: 3, limit: 1, message_id: None }, &[]).await?;
    let one = Page { message_id: Some(letters[2].envelope.message_id.clone()), ..ALL };
    other.expect(&endpoint, &one, &[&letters[2]]).await?;
    Ok(Kept::Shown)
}

/// Promise 2. *Once per cause:* adding the same letter again (same message id, endpoint, saga, destination, type and body)
/// is success and keeps one. Letters that differ in one of these are others.
pub async fn once_per_cause(builder: &dyn Builder) -> Checked {
    const TIMES: usize = 4;
    let hand = Hand::new(builder, ONCE_PER_CAUSE).await;
    let endpoint = samples::endpoint();
    let letter = samples::letter(&endpoint);
    let mut checks = SideBySide::default();
    for attempts in 0..TIMES {
        let hand = Hand::new(builder, ONCE_PER_CAUSE).await;
        let again = DeadLetter { attempts: attempts as u32, reason: format!("{attempts}"), ..letter.clone() };
        checks.add(async move { hand.add(&again).await });
    }
    checks.end().await?;
    let kept = hand.list(&endpoint, &ALL).await?.len();
    if kept != 1 {
        return Err(Broken::new(
            ONCE_PER_CAUSE,
            format!("one letter that was added {TIMES} times is kept {kept} times"),
        ));
    }

    let altered = |alter: fn(&mut Envelope)| {
        let mut envelope = (*letter.envelope).clone();
        alter(&mut envelope);
        DeadLetter { envelope: Arc::new(envelope), ..letter.clone() }
    };
    let others = [
        altered(|envelope| envelope.body = b"another body under the same id".as_slice().into()),
        altered(|envelope| envelope.body = Bytes::new()),
        altered(|envelope| envelope.message_type = samples::message_type()),
        DeadLetter { saga: None, ..letter.clone() },
        DeadLetter { saga: Some(samples::saga("other")), ..letter.clone() },
        DeadLetter { destination: None, ..letter.clone() },
        DeadLetter { destination: samples::letter(&endpoint).destination, ..letter.clone() },
        DeadLetter { saga: None, destination: None, ..letter.clone() },
        DeadLetter { envelope: samples::letter(&endpoint).envelope, ..letter.clone() },
    ];
    let whole = |listed: &DeadLetter, other: &DeadLetter| listed.is_same(other) && listed.envelope == other.envelope;
    for (other, times) in others.iter().flat_map(|other| [(other, 1), (other, 2)]) {
        hand.add(other).await?;
        let same = hand.list(&endpoint, &ALL).await?.iter().filter(|listed| whole(listed, other)).count();
        if same != 1 {
            return Err(Broken::new(ONCE_PER_CAUSE, format!("added {times} times, {other:?} is kept {same} times")));
        }
    }
    let elsewhere = DeadLetter { endpoint: samples::endpoint(), ..letter };
    hand.add(&elsewhere).await?;
    hand.expect(&elsewhere.endpoint, &ALL, &[&elsewhere]).await?;
    Ok(Kept::Shown)
}

/// Promise 3. *Discarded alone:* once `discard` has returned, `list` does not show the letters and shows all others, and they can be
/// added again. It tells how many were there; of several that discard a letter at once, one is told of it at most.
pub async fn discarded_alone(builder: &dyn Builder) -> Checked {
    const TIMES: usize = 4;
    let (hand, other) = (Hand::new(builder, DISCARDED_ALONE).await, Hand::new(builder, DISCARDED_ALONE).await);
    let endpoint = samples::endpoint();
    let letter = samples::letter(&endpoint);
    let mut envelope = (*letter.envelope).clone();
    envelope.body = b"another body under the same id".as_slice().into();
    let letters = [
        letter.clone(),
        DeadLetter { envelope: Arc::new(envelope), ..letter.clone() },
        DeadLetter { saga: Some(samples::saga("other")), ..letter.clone() },
        DeadLetter { destination: None, ..letter.clone() },
        samples::letter(&endpoint),
        DeadLetter { endpoint: samples::endpoint(), ..letter },
    ];
    let [first, body, saga, destination, last, elsewhere] = &letters;
    for letter in &letters {
        hand.add(letter).await?;
    }
    // Told apart by what makes a letter the same, and by nothing else.
    let again = DeadLetter { reason: "told otherwise".into(), attempts: 1, ..first.clone() };
    hand.expect_discarded(&[&again], 1).await?;
    other.expect(&endpoint, &ALL, &[body, saga, destination, last]).await?;
    hand.expect_discarded(&[first], 0).await?;
    hand.expect_discarded(&[first, destination, last], 2).await?;
    other.expect(&endpoint, &ALL, &[body, saga]).await?;
    hand.expect_discarded(&[], 0).await?;
    other.expect(&elsewhere.endpoint, &ALL, &[elsewhere]).await?;
    hand.add(first).await?;
    other.expect(&endpoint, &ALL, &[body, saga, first]).await?;

    let mut discards = Vec::new();
    for _ in 0..TIMES {
        let (hand, first) = (Hand::new(builder, DISCARDED_ALONE).await, first.clone());
        discards.push(async move { hand.discard(&[&first]).await });
    }
    let answers = together(discards).await?;
    let (told, again) = answers.iter().fold((0, false), |(all, any), (told, again)| (all + told, any || *again));
    if told > 1 || (told == 0 && !again) {
        return Err(Broken::new(DISCARDED_ALONE, format!("{TIMES} discard one letter at once, {told} are told of it")));
    }
    // In whatever order: where letters are read by taking and giving them back, several who do so at once may mix them up.
    let listed = other.list(&endpoint, &ALL).await?;
    if listed.len() == 2 && [body, saga].into_iter().all(|letter| listed.contains(letter)) {
        return Ok(Kept::Shown);
    }
    Err(Broken::new(DISCARDED_ALONE, format!("{body:+?} and {saga:+?} were to be left, {listed:+?} are")))
}
