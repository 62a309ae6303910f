//! Whatever a check is given that it cannot check: a clear sentence and a remedy, and never a panic from inside.
#![allow(clippy::unwrap_used)]

use std::{collections::HashMap, pin::pin, task::Poll, time::Duration};

use hapax_core::{Context, Correlation, Handle, Handler, HandlerError, Message, Registry, Saga};
use hapax_model::check::{Budgets, Check, Checked, Failure};
use serde::{Deserialize, Serialize, Serializer};

/// Tells a handler what to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tick {
    left: u32,
    does: Does,
}

impl Message for Tick {
    const TYPE: &'static str = "clock.tick";
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Does {
    Nothing,
    SendsItself,
    SetsATimeout,
    Panics,
    PanicsAtTheSecond,
    GivesWay,
    SendsMany,
    SendsWhatItCannotRead,
    SendsWhatCannotBeWritten,
    KeepsWhatCannotBeWritten,
}

/// What cannot be written as JSON: keys that are no text.
type Pairs = HashMap<(u8, u8), u8>;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Clock {
    ticks: u32,
    pairs: Pairs,
}

impl Saga for Clock {
    const NAME: &'static str = "clock";
}

fn tick(does: Does) -> Tick {
    Tick { left: 0, does }
}

impl Handle<Tick> for Clock {
    fn correlate(_: &Tick) -> Correlation<'_> {
        Correlation::of("clock", "c")
    }

    async fn handle(&mut self, Tick { left, does }: Tick, cx: &mut Context) -> Result<(), HandlerError> {
        self.ticks += 1;
        let next = Tick { left: left.saturating_sub(1), does };
        match does {
            Does::Nothing => Ok(()),
            Does::SendsItself if left > 0 => cx.send_local(next),
            Does::SendsItself => Ok(()),
            Does::SetsATimeout => cx.timeout(Duration::from_secs(60), next).map(drop),
            Does::Panics => panic!("the clock has stopped"),
            Does::PanicsAtTheSecond => {
                assert!(self.ticks < 2, "it ticks twice");
                Ok(())
            }
            Does::GivesWay => {
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
                .await
            }
            Does::SendsMany => (0..left).try_for_each(|_| cx.publish(Tock { odd: Odd::Good })),
            Does::SendsWhatItCannotRead => cx.send_local(Tock { odd: Odd::Unreadable }),
            Does::SendsWhatCannotBeWritten => cx.publish(Tock { odd: Odd::Unwritable }),
            Does::KeepsWhatCannotBeWritten => {
                self.pairs.insert((1, 2), 3);
                Ok(())
            }
        }
    }
}

/// Odd in one way or the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tock {
    odd: Odd,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum Odd {
    Good,
    Unreadable,
    Unwritable,
    Unnamed,
}

impl Serialize for Odd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Good => serializer.serialize_str("Good"),
            Self::Unnamed => serializer.serialize_str("Unnamed"),
            Self::Unreadable => serializer.serialize_str("nobody knows this word"),
            Self::Unwritable => Err(serde::ser::Error::custom("it is unspeakable")),
        }
    }
}

impl Message for Tock {
    const TYPE: &'static str = "clock.tock";
}

impl Handle<Tock> for Clock {
    fn correlate(tock: &Tock) -> Correlation<'_> {
        assert!(!matches!(tock.odd, Odd::Unnamed), "it has no name");
        Correlation::of("clock", "c")
    }

    async fn handle(&mut self, _: Tock, _: &mut Context) -> Result<(), HandlerError> {
        Ok(())
    }
}

fn clock() -> Check<Clock> {
    Check::saga(Registry::new().starts::<Tick>().starts::<Tock>())
}

fn does(does: Does) -> Check<Clock> {
    clock().message(tick(does))
}

fn fails(checked: Checked, claim: &str, seen: &str, advice: &str) -> Failure {
    println!("{checked}\n");
    let failure = checked.failure.unwrap();
    assert_eq!(failure.claim, claim, "{failure}");
    assert!(failure.seen.contains(seen), "{failure}");
    assert!(failure.advice.contains(advice), "{failure}");
    failure
}

fn refused(checked: Checked, seen: &str) {
    fails(checked, "it_can_be_checked", seen, "the check has not begun");
}

fn holds(checked: Checked) {
    println!("{checked}\n");
    assert!(checked.failure.is_none());
}

#[test]
fn what_is_too_little_or_too_much_is_refused_with_the_limit() {
    refused(clock().report(), "add .message(..)");
    refused(clock().messages((0..9).map(|_| tick(Does::Nothing))).report(), "9 messages are too many: 8 at most");
    refused(does(Does::Nothing).workers(0).report(), ".workers(2)");
    refused(does(Does::Nothing).workers(255).report(), "255 workers are too many: 4 at most");
    refused(does(Does::Nothing).workers(usize::MAX).report(), "4 at most");
    refused(does(Does::Nothing).crashes(200).report(), "crashes: 200 are too many: 7");
    refused(does(Does::Nothing).duplicates(8).report(), "duplicates: 8");
    refused(does(Does::Nothing).faults(Budgets { late: u8::MAX, ..Budgets::NONE }).report(), "late: 255");
}

#[test]
fn the_limits_themselves_can_be_explored() {
    holds(clock().messages((0..8).map(|_| tick(Does::Nothing))).workers(1).faults(Budgets::NONE).report());
    holds(does(Does::Nothing).workers(4).faults(Budgets { sweeps: 7, process_crashes: 7, ..Budgets::NONE }).report());
    holds(does(Does::Nothing).workers(4).crashes(7).report());
    holds(does(Does::Nothing).workers(2).duplicates(7).report());
}

#[test]
fn a_message_that_nothing_causes_is_a_warning() {
    let never = "m1 never came: no clock.tock has ever left, which was to cause it".to_owned();
    let caused = |does: Does| {
        let check = clock().message(Tick { left: 1, does }).after::<Tock, _>(tick(Does::Nothing)).report();
        assert!(check.failure.is_none(), "{check}");
        check.warnings
    };
    assert!(caused(Does::Nothing).contains(&never));
    assert!(!caused(Does::SendsMany).contains(&never));
}

#[test]
fn a_message_that_nobody_handles_is_refused() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Unknown;
    impl Message for Unknown {
        const TYPE: &'static str = "clock.unknown";
    }
    refused(clock().message(Unknown).report(), "clock does not handle clock.unknown");
}

#[test]
fn a_message_that_cannot_be_written_or_read_is_refused() {
    refused(clock().message(Tock { odd: Odd::Unwritable }).report(), "clock.tock cannot be written as JSON");
    refused(clock().message(Tock { odd: Odd::Unreadable }).report(), "the body of clock.tock cannot be read");
    refused(clock().message(Tock { odd: Odd::Unnamed }).report(), "reading clock.tock panicked: it has no name");
}

#[test]
fn a_malformed_name_is_refused() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Nameless;
    impl Message for Nameless {
        const TYPE: &'static str = "no name at all";
    }
    impl Handle<Nameless> for Clock {
        fn correlate(_: &Nameless) -> Correlation<'_> {
            "c".into()
        }
        async fn handle(&mut self, _: Nameless, _: &mut Context) -> Result<(), HandlerError> {
            Ok(())
        }
    }
    refused(clock().message(Nameless).report(), "no name at all");
    refused(Check::saga(Registry::<Clock>::new().starts::<Nameless>()).message(Nameless).report(), "no name at all");
    let twice = Registry::<Clock>::new().starts::<Tick>().handles::<Tick>();
    refused(Check::saga(twice).message(tick(Does::Nothing)).report(), "handled twice");
}

#[test]
fn two_messages_that_are_equal_are_two_messages() {
    let check = clock().messages([tick(Does::Nothing), tick(Does::Nothing)]);
    holds(
        check.at_rest("both count", |world| world.state::<Clock>("c").is_some_and(|clock| clock.ticks == 2)).report(),
    );
}

#[test]
fn sixteen_messages_can_be_told_apart_and_not_one_more() {
    let chain = |left| clock().message(Tick { left, does: Does::SendsItself }).workers(1).faults(Budgets::NONE);
    holds(chain(15).report());
    let failure = fails(chain(16).report(), "there_are_few_messages", "more than 16 messages", "fewer messages");
    assert_eq!(failure.steps.len(), 17, "{failure}");
    assert!(failure.steps[1].contains("is sent when that of step 1 is handled, and comes back"), "{failure}");
}

#[test]
fn a_saga_that_winds_itself_up_for_ever_is_told_so() {
    let failure = fails(
        does(Does::SetsATimeout).report(),
        "there_are_few_messages",
        "more than 16 messages",
        "a reminder that sets the next one",
    );
    assert!(failure.replay.starts_with("the same check with .workers(1):"), "it is met before all else: {failure}");
}

#[test]
fn more_messages_of_one_run_than_can_be_numbered_are_told_so() {
    let many = |left| {
        let check = Check::saga(Registry::<Clock>::new().starts::<Tick>());
        check.message(Tick { left, does: Does::SendsMany }).workers(1).faults(Budgets::NONE)
    };
    holds(many(255).report());
    fails(many(256).report(), "there_are_few_messages", "256 messages at once: a check takes 255", "a shorter list");
}

#[test]
fn what_a_saga_sends_to_itself_and_cannot_read_is_told() {
    let unreadable = || does(Does::SendsWhatItCannotRead);
    let failure =
        fails(unreadable().report(), "nothing_is_set_aside", "the body of clock.tock cannot be read", "`correlate`");
    assert_eq!(failure.steps.len(), 2, "{failure}");
    holds(unreadable().may_set_aside().report());
}

#[test]
fn what_cannot_be_written_is_a_story() {
    let sent = fails(does(Does::SendsWhatCannotBeWritten).report(), "nothing_is_set_aside", "", "the step says why");
    assert!(sent.steps.iter().any(|step| step.contains("it is unspeakable")), "{sent}");
    let kept = fails(does(Does::KeepsWhatCannotBeWritten).report(), "nothing_is_set_aside", "", "the step says why");
    assert!(kept.steps.iter().any(|step| step.contains("key must be a string")), "{kept}");
}

#[test]
fn a_handler_that_panics_is_a_story_with_the_place() {
    let failure = fails(does(Does::Panics).report(), "nothing_is_set_aside", "check_input.rs:", "the handler panics");
    assert!(failure.steps.iter().any(|step| step.contains("the handler panicked: the clock has stopped")), "{failure}");
    let twice = clock().messages([tick(Does::PanicsAtTheSecond), tick(Does::PanicsAtTheSecond)]);
    fails(twice.report(), "nothing_is_set_aside", "`it ticks twice` was at", "the handler panics");
    holds(does(Does::Panics).may_set_aside().report());
}

#[test]
fn a_handler_that_needs_a_runtime_is_told_that_there_is_none() {
    struct Spawns;
    impl Handler<Tick> for Spawns {
        const NAME: &'static str = "spawns";
        async fn handle(&self, _: Tick, _: &mut Context) -> Result<(), HandlerError> {
            // What tokio says outside of a runtime.
            panic!("there is no reactor running, must be called from the context of a Tokio 1.x runtime")
        }
    }
    let check = Check::handler(Spawns).message(tick(Does::Nothing));
    fails(check.report(), "nothing_is_set_aside", "there is no reactor running", "where there is no runtime");
}

#[test]
fn a_handler_that_asks_again_and_again_is_told_so() {
    fails(does(Does::GivesWay).report(), "it_can_be_checked", "has given way", "yield_now");
}

#[test]
fn a_handler_that_waits_for_somebody_else_is_told_so() {
    struct Waits;
    impl Handler<Tick> for Waits {
        const NAME: &'static str = "waits";
        async fn handle(&self, _: Tick, _: &mut Context) -> Result<(), HandlerError> {
            let (kept, waits) = (std::sync::Arc::new(()), std::future::pending::<()>());
            pin!(waits).await;
            drop(kept);
            Ok(())
        }
    }
    let check = Check::handler(Waits).message(tick(Does::Nothing));
    fails(check.report(), "it_can_be_checked", "no port", "a timer, a socket");
}

#[test]
fn a_sentence_that_panics_is_a_story_with_the_place() {
    let check = does(Does::Nothing).always("it ticks", |world| world.state::<Clock>("c").unwrap().ticks > 0);
    fails(check.report(), "it ticks", "check_input.rs:", ".is_none_or(|state| ..)");
    let check = does(Does::Nothing).at_rest("it never ticks", |world| {
        assert_eq!(world.state::<Clock>("c").unwrap().ticks, 0, "but it does");
    });
    fails(check.report(), "it never ticks", "but it does", "any order");
}

/// The last net: what panics where nobody expects it.
#[test]
fn a_panic_from_elsewhere_is_an_error_too() {
    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Drops {
        kept: bool,
    }
    impl Drop for Drops {
        fn drop(&mut self) {
            assert!(!self.kept || std::thread::panicking(), "it must not be let go");
        }
    }
    impl Saga for Drops {
        const NAME: &'static str = "drops";
    }
    impl Handle<Tick> for Drops {
        fn correlate(_: &Tick) -> Correlation<'_> {
            "d".into()
        }
        async fn handle(&mut self, _: Tick, _: &mut Context) -> Result<(), HandlerError> {
            self.kept = true;
            Ok(())
        }
    }
    let check = Check::saga(Registry::<Drops>::new().starts::<Tick>()).message(tick(Does::Nothing));
    fails(check.report(), "it_can_be_checked", "panicked: it must not be let go", "a Drop");
}
