//! Sagas begin, end, and wait for timeouts.

use std::time::Duration;

use hapax::{
    Completed, Context, Correlation, Handle, HandlerError, Message, Missing, Registry, Saga, envelope::Envelope,
    time::Timestamp,
};
use hapax_model::{
    Call,
    ledger::{Act, Ledger, Post, Posted, runs_of},
};
use hapax_tests::{Bench, Shape, Workbench, message, words};
use serde::{Deserialize, Serialize};

use crate::{before, post, quiet};

fn posted(ledger: &str) -> Posted {
    Posted { ledger: ledger.into(), cause: "p".into(), run: 1, number: 0, index: 0 }
}

/// A saga for which only a post may start it.
fn started_by_post(missing: Missing) -> Registry<Ledger> {
    Registry::new().starts::<Post>().handles::<Posted>().when_missing(missing)
}

#[tokio::test]
async fn a_message_that_may_not_start_a_saga_follows_the_rule_for_missing_sagas() {
    let rules =
        [(Missing::Retry, "Failed"), (Missing::DeadLetter, "DeadLetter"), (Missing::Drop, "Dropped: saga missing")];
    for (rule, word) in rules {
        let bench = Bench::new(Shape::One).of(started_by_post(rule));
        assert_eq!(words(&bench.pass(&[message("p", &posted("a"))]).await), [word]);
        assert!(bench.store.stored(&bench.key("a")).await.is_none(), "nothing is left of it");
        let outcomes = bench.pass(&[message("m", &post("m")), message("p", &posted("a"))]).await;
        assert_eq!(words(&outcomes), ["Handled", "Handled"], "started in the same pass");
    }
}

#[tokio::test]
async fn a_message_for_a_completed_saga_follows_the_rule_for_completed_sagas() {
    for (rule, word) in [(Completed::Drop, "Dropped: saga completed"), (Completed::DeadLetter, "DeadLetter")] {
        for shape in Shape::ALL {
            let bench = Bench::new(shape).of(Ledger::registry().when_completed(rule));
            let close = message("close", &Post { act: Act::Close, ..post("close") });
            assert_eq!(words(&bench.pass(std::slice::from_ref(&close)).await), ["Handled"]);
            assert_eq!(words(&bench.pass(&[message("new", &post("new"))]).await), [word], "{shape:?}");
            assert_eq!(words(&bench.pass(&[close]).await), ["Duplicate"], "a copy is still a copy");
            assert_eq!(runs_of("new"), 0);
        }
    }
}

#[tokio::test]
async fn completion_leaves_a_tombstone_on_which_a_late_twin_conflicts() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let m = message("m", &Post { act: Act::Close, ..post("m") });
        // A twin has loaded "absent", and stands before its save while the other one starts and completes the saga.
        let (key, mut twin) = bench.incoming(std::slice::from_ref(&m), 1);
        let mut late = Box::pin(bench.manager.pass(&key, &mut twin, &[]));
        bench.world.until(before(Call::Save), &mut late).await;
        assert_eq!(words(&bench.pass(&[m]).await), ["Handled"]);
        assert_eq!(words(&late.await), ["Again Conflict"], "{shape:?}");
        assert_eq!(bench.out.sent().len(), 1);
        let tombstone = bench.store.stored(&key).await.unwrap().entity;
        assert!(tombstone.completed && tombstone.state.is_empty() && tombstone.outbox.is_empty());
    }
}

#[tokio::test]
async fn completion_keeps_the_entries_of_others() {
    let bench = Bench::new(Shape::One).ledgers();
    bench.crash(&message("m", &post("m")), before(Call::Dispatch)).await;
    bench.pass(&[message("close", &Post { act: Act::Close, ..quiet("close") })]).await;
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.outbox.len(), 1);
    bench.sweep(&bench.key("a")).await;
    assert_eq!(bench.out.sent().len(), 1);
}

/// Handles `posting`, and gives the timeout that it has set.
async fn alarm(bench: &Workbench, posting: &Post) -> Envelope {
    assert_eq!(words(&bench.pass(&[message(&posting.cause, posting)]).await), ["Handled"]);
    let sent = bench.out.sent();
    let alarm = sent.iter().find(|sent| sent.envelope.timeout).unwrap();
    assert_eq!(alarm.destination.to_string(), "endpoint:upper");
    assert!(alarm.envelope.due.is_some_and(|due| due > bench.clock.wall()));
    (*alarm.envelope).clone()
}

#[tokio::test]
async fn a_timeout_is_handled_once_while_its_saga_waits_for_it() {
    let bench = Bench::new(Shape::One).ledgers();
    let alarm = alarm(&bench, &Post { act: Act::SetAlarm, ..quiet("set") }).await;
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.timeouts.len(), 1);
    assert_eq!(words(&bench.pass(std::slice::from_ref(&alarm)).await), ["Handled"]);
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.timeouts.len(), 0);
    assert_eq!(words(&bench.pass(&[alarm]).await), ["Duplicate"]);
    assert_eq!(bench.lines("a").await.len(), 2);
}

#[tokio::test]
async fn a_cancelled_timeout_is_never_handled() {
    let bench = Bench::new(Shape::One).ledgers();
    let alarm = alarm(&bench, &Post { act: Act::SetAlarm, ..quiet("set") }).await;
    bench.pass(&[message("cancel", &Post { act: Act::CancelAlarm, ..quiet("cancel") })]).await;
    assert_eq!(words(&bench.pass(&[alarm]).await), ["Dropped: timeout not live"]);
    assert_eq!(bench.lines("a").await.len(), 2);
}

#[tokio::test]
async fn a_timeout_that_comes_in_the_pass_that_cancels_it_is_not_handled() {
    let bench = Bench::new(Shape::One).ledgers();
    let alarm = alarm(&bench, &Post { act: Act::SetAlarm, ..quiet("set") }).await;
    let cancel = message("cancel", &Post { act: Act::CancelAlarm, ..quiet("cancel") });
    assert_eq!(words(&bench.pass(&[cancel, alarm]).await), ["Handled", "Dropped: timeout not live"]);
}

#[tokio::test]
async fn completion_cancels_all_timeouts() {
    let bench = Bench::new(Shape::One).ledgers();
    let alarm = alarm(&bench, &Post { act: Act::SetAlarm, ..quiet("set") }).await;
    bench.pass(&[message("close", &Post { act: Act::Close, ..quiet("close") })]).await;
    assert_eq!(bench.store.stored(&bench.key("a")).await.unwrap().entity.timeouts.len(), 0);
    assert_eq!(words(&bench.pass(&[alarm]).await), ["Dropped: timeout not live"], "and is no dead letter");
}

#[tokio::test]
async fn a_timeout_of_a_saga_that_is_not_there_is_dropped_by_a_rule_of_its_own() {
    let bench = Bench::new(Shape::One).ledgers();
    let alarm = alarm(&bench, &Post { act: Act::SetAlarm, ..quiet("set") }).await;
    // Of the same name and with nothing in it, as of another name.
    let renamed = Bench::new(Shape::One).ledgers();
    assert_eq!(words(&renamed.pass(&[alarm]).await), ["Dropped: timeout of no saga"]);
    assert!(renamed.store.stored(&renamed.key("a")).await.is_none(), "nothing is begun by it");
}

#[tokio::test]
async fn the_due_time_of_a_timeout_is_fixed_when_it_is_saved() {
    let bench = Bench::new(Shape::One).ledgers();
    let set = message("set", &Post { act: Act::SetAlarm, ..quiet("set") });
    bench.crash(&set, before(Call::Finish)).await;
    bench.clock.pass(Duration::from_secs(3600));
    bench.sweep(&bench.key("a")).await;
    let due: Vec<Option<Timestamp>> = bench.out.sent().iter().map(|sent| sent.envelope.due).collect();
    assert_eq!(due.len(), 2, "sent by its owner, and again by the sweeper");
    assert_eq!(due[0], due[1]);
}

#[tokio::test]
async fn an_expired_message_is_dropped_unless_it_was_handled_before() {
    let bench = Bench::new(Shape::One).ledgers();
    let mut m = message("m", &post("m"));
    m.expires = Some(Timestamp::from_millis(bench.clock.wall().as_millis() - 1));
    assert_eq!(words(&bench.pass(std::slice::from_ref(&m)).await), ["Dropped: expired"]);
    let mut n = message("n", &post("n"));
    bench.crash(&n, before(Call::Dispatch)).await;
    n.expires = m.expires;
    assert_eq!(words(&bench.pass(&[n]).await), ["Handled"], "what is saved is finished");
}

#[tokio::test]
async fn poison_is_dead_lettered_without_being_handled() {
    let bench = Bench::new(Shape::One).ledgers();
    let max = hapax::manager::Limits::default().poison_above;
    let m = message("m", &post("m"));
    assert_eq!(words(&bench.pass_again(std::slice::from_ref(&m), max + 1).await), ["DeadLetter"]);
    assert_eq!(runs_of("m"), 0);
    assert_eq!(words(&bench.pass_again(&[m], max).await), ["Handled"], "the last attempt counts");
}

#[tokio::test]
async fn what_is_seen_or_has_an_entry_is_never_poison() {
    const OFTEN: u32 = 1000;
    for shape in Shape::ALL {
        let bench = Bench::new(shape).ledgers();
        let (m, n) = (message("m", &post("m")), message("n", &post("n")));
        bench.pass(std::slice::from_ref(&m)).await;
        bench.crash(&n, before(Call::Dispatch)).await;
        assert_eq!(words(&bench.pass_again(&[m], OFTEN).await), ["Duplicate"]);
        assert_eq!(words(&bench.pass_again(&[n], OFTEN).await), ["Handled"]);
    }
}

#[derive(Serialize, Deserialize)]
struct Touch(String);

impl Message for Touch {
    const TYPE: &'static str = "rules.touch";
}

/// Is told things, and does nothing.
#[derive(Default, Serialize, Deserialize)]
struct Idle;

impl Saga for Idle {
    const NAME: &'static str = "idle";
}

impl Handle<Touch> for Idle {
    fn correlate(touch: &Touch) -> Correlation<'_> {
        (&touch.0).into()
    }

    async fn handle(&mut self, _: Touch, _: &mut Context) -> Result<(), HandlerError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_message_that_changes_nothing_is_saved_all_the_same() {
    for shape in Shape::ALL {
        let bench = Bench::new(shape).of(Registry::<Idle>::new().starts::<Touch>());
        let (first, second) = (message("first", &Touch("a".into())), message("second", &Touch("a".into())));
        // A twin that may decide otherwise stands before its save.
        let (key, mut twin) = bench.incoming(std::slice::from_ref(&first), 1);
        let mut late = Box::pin(bench.manager.pass(&key, &mut twin, &[]));
        bench.world.until(before(Call::Save), &mut late).await;
        assert_eq!(words(&bench.pass(&[first]).await), ["Handled"]);
        assert_eq!(words(&late.await), ["Again Conflict"], "{shape:?}");
        let version = bench.store.stored(&key).await.unwrap().version;
        assert_eq!(words(&bench.pass(&[second]).await), ["Handled"]);
        let stored = bench.store.stored(&key).await.unwrap();
        assert_ne!(stored.version, version);
        assert_eq!(stored.entity.commits, 2);
    }
}
