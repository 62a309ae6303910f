//! Checks that a store of [`Bodies`] keeps its promises, each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::bodies_suite!(MyBuilder::new()); // one test for each promise
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`. It takes some seconds, for it waits for times to pass.

mod hand;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use hand::Hand;
use tokio::time::{Instant, sleep};

use super::{
    Broken, Checked, Kept, Report,
    report::run,
    samples,
    wait::{insistently, together},
};
use crate::{
    ids::MessageId,
    ports::{Bodies, BodyReference, Got, NewBody, Staged},
};

const KEPT_WHOLE: &str = "bodies 1, kept whole";
const ONCE_PER_NAME: &str = "bodies 2, once per name";
const UNTIL_THE_LAST_REFERENCE: &str = "bodies 3, until the last reference";
const RELEASED_IS_TOLD: &str = "bodies 4, released is told";
const HANDED_OVER_IN_ONE_STEP: &str = "bodies 5, handed over in one step";
const STAGED_STAYS: &str = "bodies 6, staged stays";
const TOLD_WHEN_OLD: &str = "bodies 7, told when old";
const COLLECTED: &str = "bodies 8, collected";

/// A time that passes while the suite waits; long beside what a busy machine takes between two steps.
const SHORT: Duration = Duration::from_millis(600);
/// A time that does not pass in the suite.
const LONG: Duration = Duration::from_secs(300);
/// What a timer may be ahead or a time rounded.
const TOLERANCE: Duration = Duration::from_millis(50);
/// More than any check puts.
const ALL: usize = 1000;

/// Opens the store of bodies under test.
#[async_trait]
pub trait Builder: fmt::Debug + Send + Sync {
    /// Another handle onto the same store, as another process would open it.
    async fn bodies(&self) -> Arc<dyn Bodies>;
}

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::bodies_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::bodies_suite!(@run [builder first_broken])
}

/// One test for each promise of [`Bodies`], named as the promise. The argument is an expression for a [`Builder`], made anew in
/// each test; the crate needs tokio with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! bodies_suite {
    (@run [$($args:tt)*]) => { $crate::bodies_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        $($each)*! {
            [$($args)*]
            KEPT_WHOLE kept_whole
            ONCE_PER_NAME once_per_name
            UNTIL_THE_LAST_REFERENCE until_the_last_reference
            RELEASED_IS_TOLD released_is_told
            HANDED_OVER_IN_ONE_STEP handed_over_in_one_step
            STAGED_STAYS staged_stays
            TOLD_WHEN_OLD told_when_old
            COLLECTED collected
        }
    };
    ($builder:expr) => { $crate::bodies_suite!(@each [$crate::suite_tests] [bodies $builder]); };
}

fn reference() -> BodyReference {
    BodyReference { message_id: MessageId::random(), endpoint: samples::endpoint(), saga: None }
}

/// Promise 1. *Kept whole:* once `put` has returned, `get` gives the bytes as they were put, also by a reference that was not named.
pub async fn kept_whole(builder: &dyn Builder) -> Checked {
    const LARGE: usize = 3 << 20;
    let hand = Hand::new(builder, KEPT_WHOLE).await;
    let large: Vec<u8> = (0..LARGE).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect();
    for bytes in [Bytes::new(), (0..=255).collect(), large.into()] {
        let (named, other) = (reference(), reference());
        let body = hand.body(bytes.clone(), &[&named]);
        let name = &body.staged.name;
        hand.expect(name, None, &Got::Missing, "a body that nobody has put").await?;
        hand.put(&body).await?;
        let want = Got::Body(bytes);
        let again = hand.again(builder).await;
        for by in [None, Some(&named), Some(&other)] {
            again.expect(name, by, &want, "it was put").await?;
        }
        hand.keep(name, Duration::ZERO).await?;
        again.expect(name, Some(&named), &want, "it is kept").await?;
    }
    Ok(Kept::Shown)
}

/// Promise 2. *Once per name:* putting a body under a name that is there is success and changes nothing.
pub async fn once_per_name(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, ONCE_PER_NAME).await;
    let (first, second) = (reference(), reference());
    let body = hand.body("a body", &[&first]);
    let name = &body.staged.name;
    hand.put(&body).await?;
    let other = NewBody { references: vec![second], bytes: "another".into(), ..body.clone() };
    hand.again(builder).await.put(&other).await?;
    hand.is_there(name, "it was put again with other bytes").await?;
    hand.keep(name, Duration::ZERO).await?;
    hand.put(&other).await?;
    sleep(TOLERANCE).await;
    if !hand.staged(Duration::ZERO, ALL).await?.is_empty() {
        return Err(hand.broken("a body that is kept is staged anew when it is put again"));
    }
    hand.release(name, &first, &[], Duration::ZERO).await?;
    hand.gone(name, None, "the only reference that was put first is released").await?;
    Ok(Kept::Shown)
}

/// Promise 3. *Until the last reference:* once `keep` has returned, the body is given until each of its references is released, and for as
/// long as the last `keep` has asked for everybody.
pub async fn until_the_last_reference(builder: &dyn Builder) -> Checked {
    const REFERENCES: usize = 12;
    let hand = Hand::new(builder, UNTIL_THE_LAST_REFERENCE).await;
    let name = hand.kept(&[&reference()], Duration::ZERO).await?;
    hand.release(&name, &reference(), &[], Duration::ZERO).await?;
    hand.collect().await?;
    hand.is_there(&name, "somebody who had no reference has released it").await?;
    let references: Vec<BodyReference> = (0..REFERENCES).map(|_| reference()).collect();
    let name = hand.kept(&references.iter().collect::<Vec<_>>(), Duration::ZERO).await?;
    let (last, others) = references.split_last().unwrap_or_else(|| unreachable!("there are some"));
    let mut releases = Vec::new();
    for other in others {
        let (hand, name, other) = (hand.again(builder).await, name.clone(), other.clone());
        releases.push(async move { hand.release(&name, &other, &[], Duration::ZERO).await });
    }
    together(releases).await?;
    hand.collect().await?;
    hand.expect(&name, Some(last), &Got::Body("a body".into()), "one reference is left").await?;
    hand.release(&name, last, &[], Duration::ZERO).await?;
    hand.gone(&name, None, "all its references are released, many at once").await?;

    let named = reference();
    for references in [&[][..], &[&named]] {
        let name = hand.kept(references, LONG).await?;
        hand.keep(&name, Duration::ZERO).await?;
        hand.release(&name, &named, &[], Duration::ZERO).await?;
        hand.collect().await?;
        hand.is_there(&name, "it is kept for everybody, for five minutes").await?;
    }
    let name = hand.kept(&[], Duration::ZERO).await?;
    hand.gone(&name, None, "it is kept for nobody").await?;
    Ok(Kept::Shown)
}

/// Promise 4. *Released is told:* a reference that was released is told to be so, for as long as the release has asked for at least, also
/// when the body is gone. It is never told that it is missing. So is one saga's reference where its message's was released and not to it.
pub async fn released_is_told(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, RELEASED_IS_TOLD).await;
    let (first, second) = (reference(), reference());
    let name = hand.kept(&[&first, &second], Duration::ZERO).await?;
    let other = hand.again(builder).await;
    hand.release(&name, &first, &[], LONG).await?;
    other.expect(&name, Some(&first), &Got::Released, "it was released, another was not").await?;
    other.expect(&name, Some(&second), &Got::Body("a body".into()), "it was not released, another was").await?;
    for told in [LONG, Duration::ZERO] {
        hand.release(&name, &second, &[], told).await?;
        hand.release(&name, &first, &[], told).await?;
        hand.collect().await?;
        for released in [&first, &second] {
            other.expect(&name, Some(released), &Got::Released, "both were released").await?;
        }
    }
    Ok(Kept::Shown)
}

/// Promise 5. *Handed over in one step:* references given in place of a released one hold the body as that one did; they are taken only if
/// it was one of the body's.
pub async fn handed_over_in_one_step(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, HANDED_OVER_IN_ONE_STEP).await;
    let whole = reference();
    let [first, second, third] =
        ["first", "second", "third"].map(|saga| BodyReference { saga: Some(samples::saga(saga)), ..whole.clone() });
    let name = hand.kept(&[&whole], Duration::ZERO).await?;
    hand.release(&name, &whole, std::slice::from_ref(&whole), Duration::ZERO).await?;
    hand.collect().await?;
    hand.expect(&name, Some(&whole), &Got::Body("a body".into()), "it was handed over to itself").await?;
    hand.release(&name, &whole, &[first.clone(), second.clone()], LONG).await?;
    hand.release(&name, &whole, std::slice::from_ref(&third), LONG).await?;
    hand.expect(&name, Some(&third), &Got::Released, "its message was released, and not to it").await?;
    for (by, others) in [(&first, &second), (&second, &second)] {
        hand.collect().await?;
        hand.expect(&name, Some(by), &Got::Body("a body".into()), "it was handed over").await?;
        hand.expect(&name, Some(others), &Got::Body("a body".into()), "it was handed over").await?;
        hand.release(&name, by, &[], Duration::ZERO).await?;
    }
    hand.collect().await?;
    hand.expect(&name, Some(&whole), &Got::Released, "it was handed over").await?;
    if let Got::Body(_) = hand.got(&name, None).await? {
        return Err(hand.broken("what was given in place of a reference that had been released before holds the body"));
    }
    Ok(Kept::Shown)
}

/// Promise 6. *Staged stays:* `collect` removes nothing that is staged. `unstage` removes a staged body and no other.
pub async fn staged_stays(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, STAGED_STAYS).await;
    let named = reference();
    for references in [&[][..], &[&named]] {
        let body = hand.body("a body", references);
        let name = &body.staged.name;
        hand.put(&body).await?;
        hand.collect().await?;
        hand.is_there(name, "it is staged").await?;
        if !hand.again(builder).await.unstage(name).await? || hand.unstage(name).await? {
            return Err(hand.broken("a staged body is to be removed once"));
        }
        hand.expect(name, None, &Got::Missing, "it is removed").await?;
        hand.put(&body).await?;
        hand.again(builder).await.keep(name, LONG).await?;
        if hand.unstage(name).await? {
            return Err(hand.broken("a body that is kept is removed"));
        }
        hand.is_there(name, "it is kept").await?;
    }
    let unknown = hand.body("a body", &[]).staged.name;
    if insistently(STAGED_STAYS, "keeping a body", || hand.bodies.keep(&unknown, LONG)).await? {
        return Err(hand.broken("a body that nobody has put is told to be kept"));
    }
    Ok(Kept::Shown)
}

/// Promise 7. *Told when old:* `staged` tells of the bodies of an endpoint that were put so long ago and are not kept, and of no others.
pub async fn told_when_old(builder: &dyn Builder) -> Checked {
    const APART: Duration = Duration::from_millis(20);
    let hand = Hand::new(builder, TOLD_WHEN_OLD).await;
    let other = Hand { endpoint: samples::endpoint(), ..hand.again(builder).await };
    let mut put = Vec::new();
    for _ in 0..3 {
        let body = hand.body("a body", &[&reference()]);
        hand.put(&body).await?;
        put.push(body.staged);
        sleep(APART).await;
    }
    let told = |found: Vec<Staged>, want: &[Staged], why: &str| match found == want {
        true => Ok(()),
        false => Err(hand.broken(format!("{why}: {want:?} were to be told of, {found:?} are"))),
    };
    let again = hand.again(builder).await;
    told(again.staged(Duration::ZERO, ALL).await?, &put, "three were put, one after the other")?;
    told(again.staged(Duration::ZERO, 2).await?, &put[..2], "two were asked for")?;
    told(again.staged(LONG, ALL).await?, &[], "nothing was put five minutes ago")?;
    told(other.staged(Duration::ZERO, ALL).await?, &[], "another endpoint has put nothing")?;
    hand.keep(&put[0].name, LONG).await?;
    hand.unstage(&put[1].name).await?;
    told(again.staged(Duration::ZERO, ALL).await?, &put[2..], "one is kept and one removed")?;
    Ok(Kept::Shown)
}

/// Promise 8. *Collected:* of a body that nobody needs any more, and whose releases need not be told any more, `collect` leaves nothing.
pub async fn collected(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, COLLECTED).await;
    let named = reference();
    let begun = Instant::now();
    let published = hand.kept(&[], SHORT).await?;
    hand.collect().await?;
    hand.is_there(&published, "it is kept for everybody, for a while").await?;
    hand.gone(&published, None, "it was kept for everybody, for a while").await?;
    if begun.elapsed() + TOLERANCE < SHORT {
        return Err(hand.broken(format!("a body kept for {SHORT:?} is gone after {:?}", begun.elapsed())));
    }
    let name = hand.kept(&[&named], Duration::ZERO).await?;
    let begun = Instant::now();
    hand.release(&name, &named, &[], SHORT).await?;
    hand.gone(&name, Some(&named), "its last reference was released a while ago").await?;
    if begun.elapsed() + TOLERANCE < SHORT {
        return Err(
            hand.broken(format!("a release to be told of for {SHORT:?} is forgotten after {:?}", begun.elapsed()))
        );
    }
    Ok(Kept::Shown)
}
