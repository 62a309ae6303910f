//! What a person does with dead letters.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    InProcess, Memory,
    endpoint::office::{DeadLetterOffice, Deed, Filter},
    envelope::{Destination, Envelope, Outgoing},
    ports::{DeadLetter, DeadLetters, DispatchError, Dispatcher, ErrorKind, Refused, Transport},
    time::Timestamp,
};

use crate::{
    entities::Entities,
    work::{Auditor, Cut, Log, Task, WayOut, Worker, done, endpoint, letters, send, task},
};

/// A letter about a task, as its endpoint would have set it aside now.
pub(crate) fn letter(task: &Task) -> DeadLetter {
    let body = serde_json::to_vec(task).unwrap();
    let envelope = Envelope::new(task.name.parse().unwrap(), "work.task".parse().unwrap(), body);
    DeadLetter {
        envelope: Arc::new(envelope),
        endpoint: "work".parse().unwrap(),
        saga: Some("worker".parse().unwrap()),
        destination: None,
        reason: format!("{} could not be done", task.name),
        attempts: 5,
        time: Timestamp::now(),
    }
}

pub(crate) async fn office(store: &Memory, transport: impl Transport + 'static) -> DeadLetterOffice {
    endpoint(store, transport, &Log::default()).start().await.unwrap().dead_letter_office("alice")
}

pub(crate) async fn add(store: &Memory, tasks: impl IntoIterator<Item = Task>) {
    for task in tasks {
        store.add(&letter(&task)).await.unwrap();
    }
}

pub(crate) async fn all(office: &DeadLetterOffice) -> Vec<DeadLetter> {
    office.list(&Filter::default(), 0, usize::MAX).await.unwrap()
}

pub(crate) fn numbered(count: usize) -> impl Iterator<Item = Task> {
    (0..count).map(|number| task(["a", "b", "c"][number % 3], &format!("t-{number}")))
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_edited_and_retried_under_its_own_id_and_every_action_is_recorded() {
    let (store, hub, log) = (Memory::new(), InProcess::new("edited"), Log::default());
    send(&hub, &Task { fails: 1000, ..task("a", "hopeless") }).await;
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();

    let office = office(&store, hub.clone()).await;
    let shown = office.show(&"hopeless".parse().unwrap()).await.unwrap();
    assert_eq!((shown.len(), shown[0].reason.lines().next(), shown[0].attempts), (1, Some("told to fail"), 5));
    let mended = serde_json::to_vec(&task("a", "hopeless")).unwrap();
    let edited = office.edit(&shown[0], |envelope| envelope.body = mended.into()).await.unwrap();
    assert_eq!(all(&office).await, std::slice::from_ref(&edited));
    let outcome = office.retry(&[edited]).await.unwrap();
    assert_eq!((outcome.done, outcome.left), (1, 0));
    assert_eq!(all(&office).await, []);

    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!((done(&store, "worker", "a"), letters(&store).await.len()), (vec!["hopeless".to_owned()], 0));
    let actions = office.actions().await.unwrap();
    let told: Vec<_> = actions.iter().map(|action| (action.by.as_str(), action.deed, &*action.messages)).collect();
    let message = &["hopeless".to_owned()][..];
    assert_eq!(told, [("alice", Deed::Edited, message), ("alice", Deed::Retried, message)]);
}

/// Whoever runs the endpoint has its handle alone, and what is mended is handled while it runs.
#[tokio::test(start_paused = true)]
async fn the_handle_of_a_running_endpoint_has_its_office() {
    let (store, hub, log) = (Memory::new(), InProcess::new("at-work"), Log::default());
    send(&hub, &Task { fails: 1000, ..task("a", "hopeless") }).await;
    let shop = endpoint(&store, hub.clone(), &log).start().await.unwrap();
    let handle = shop.handle();
    let mended = async {
        hub.idle().await;
        let office = handle.dead_letter_office("alice");
        let letter = all(&office).await.swap_remove(0);
        let body = serde_json::to_vec(&task("a", "hopeless")).unwrap();
        let edited = office.edit(&letter, |envelope| envelope.body = body.into()).await.unwrap();
        assert_eq!(office.retry(&[edited]).await.unwrap().done, 1);
        hub.idle().await;
    };
    shop.run_until(mended).await.unwrap();
    assert_eq!((done(&store, "worker", "a"), letters(&store).await.len()), (vec!["hopeless".to_owned()], 0));

    // Also when it has stopped. Each who asks is recorded under a name of their own.
    let (alice, bob) = (handle.dead_letter_office("alice"), handle.dead_letter_office("bob"));
    add(&store, [task("a", "stray")]).await;
    assert_eq!(bob.discard_all(&Filter::default()).await.unwrap(), 1);
    let told: Vec<_> = alice.actions().await.unwrap().into_iter().map(|action| (action.by, action.deed)).collect();
    let told: Vec<_> = told.iter().map(|(by, deed)| (by.as_str(), *deed)).collect();
    assert_eq!(told, [("alice", Deed::Edited), ("alice", Deed::Retried), ("bob", Deed::Discarded)]);
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_header_alone_keeps_one_letter_and_one_of_the_id_is_refused() {
    let (store, hub) = (Memory::new(), InProcess::new("header"));
    add(&store, [task("a", "one"), task("a", "other")]).await;
    let office = office(&store, hub).await;
    let one = all(&office).await.swap_remove(0);
    let edited = office.edit(&one, |envelope| envelope.headers.set("colour", "red").unwrap()).await.unwrap();
    let shown = office.show(&"one".parse().unwrap()).await.unwrap();
    assert_eq!(shown, std::slice::from_ref(&edited));
    assert_eq!(shown[0].envelope.headers.value("colour"), Some("red"));
    assert_eq!(all(&office).await.len(), 2);

    let refused = office.edit(&edited, |envelope| envelope.message_id = "another".parse().unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    let refused = office.edit(&edited, |envelope| envelope.idempotency_key = Some("key".parse().unwrap())).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Misconfigured);
    assert_eq!(office.show(&"one".parse().unwrap()).await.unwrap(), shown);
}

/// The other saga has done it, and its dedup entry is gone: it must not do it again.
#[tokio::test(start_paused = true)]
async fn only_the_saga_that_failed_is_retried() {
    let (store, hub, log) = (Memory::new(), InProcess::new("scopes"), Log::default());
    send(&hub, &Task { fails: 1000, ..task("a", "shared") }).await;
    let both = |store: &Memory, hub: &InProcess| {
        endpoint(store, hub.clone(), &log).saga::<Auditor>(|auditor| auditor.starts::<Task>())
    };
    both(&store, &hub).run_until(hub.idle()).await.unwrap();
    assert_eq!((log.runs("auditor", "shared"), letters(&store).await.len()), (1, 1));

    let office = both(&store, &hub).start().await.unwrap().dead_letter_office("alice");
    let mended = serde_json::to_vec(&task("a", "shared")).unwrap();
    let edited = office.edit(&all(&office).await[0], |envelope| envelope.body = mended.into()).await.unwrap();
    assert_eq!(office.retry(&[edited]).await.unwrap().done, 1);
    let forgetful = Memory::new();
    both(&forgetful, &hub).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&forgetful, "worker", "a"), ["shared"]);
    assert_eq!(log.runs("auditor", "shared"), 1);

    // A saga that is not there any more is told of.
    send_to(&hub, "gone").await;
    both(&store, &hub).run_until(hub.idle()).await.unwrap();
    assert_eq!(letters(&store).await[0].reason, "endpoint work has no saga gone for work.task");
}

async fn send_to(hub: &InProcess, saga: &str) {
    let mut envelope = (*letter(&task("a", "astray")).envelope).clone();
    envelope.headers.set("retry-saga", saga).unwrap();
    let destination = Destination::Endpoint("work".parse().unwrap());
    hub.dispatch(&[Outgoing { destination, envelope: envelope.into() }]).await.remove(0).unwrap();
}

/// Handles what is sent before it confirms that it was, or never confirms.
#[derive(Debug, Clone)]
struct Eager {
    hub: InProcess,
    store: Memory,
    log: Log,
    confirms: bool,
}

#[async_trait]
impl Dispatcher for Eager {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let results = self.hub.dispatch(outgoing).await;
        endpoint(&self.store, self.hub.clone(), &self.log).run_until(self.hub.idle()).await.unwrap();
        if !self.confirms {
            std::future::pending::<()>().await;
        }
        results
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_fails_again_before_its_letter_is_gone_is_a_letter_again() {
    let (store, hub, log) = (Memory::new(), InProcess::new("again"), Log::default());
    add(&store, [Task { fails: 1000, ..task("a", "hopeless") }]).await;
    let eager = Eager { hub: hub.clone(), store: store.clone(), log, confirms: true };
    let office = office(&store, WayOut(hub, eager)).await;
    let before = all(&office).await;
    assert_eq!(office.retry(&before).await.unwrap().done, 1);
    let after = all(&office).await;
    assert_eq!((after.len(), after[0].reason.lines().next()), (1, Some("told to fail")));
    assert_eq!(letters(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_cut_short_leaves_a_letter_that_can_be_retried_or_discarded() {
    for discards in [false, true] {
        let (store, hub, log) = (Memory::new(), InProcess::new("cut-short"), Log::default());
        add(&store, [task("a", "once"), task("b", "other")]).await;
        let eager = Eager { hub: hub.clone(), store: store.clone(), log: log.clone(), confirms: false };
        let cut = office(&store, WayOut(hub.clone(), eager)).await;
        let before = all(&cut).await;
        // Before the deadline, at which the endpoint itself gives up.
        let retrying = tokio::time::timeout(Duration::from_secs(30), cut.retry(&before[..1])).await;
        assert!(retrying.is_err(), "the broker does not answer");
        drop(cut);

        let office = office(&store, hub.clone()).await;
        assert_eq!(all(&office).await, before);
        if discards {
            assert_eq!(office.discard(&before[..1]).await.unwrap(), 1);
        } else {
            assert_eq!(office.retry_all(&Filter::default()).await.unwrap().done, 2);
        }
        endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
        assert_eq!(done(&store, "worker", "a"), ["once"]);
        assert_eq!(log.runs("worker", "once"), 1);
        assert_eq!(all(&office).await.len(), usize::from(discards));
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_older_than_the_dedup_entries_is_retried_only_when_forced() {
    let (store, hub, log) = (Memory::new(), InProcess::new("old"), Log::default());
    let old = DeadLetter { time: Timestamp::from_millis(1), ..letter(&task("a", "old")) };
    add(&store, [task("a", "ahead")]).await;
    store.add(&old).await.unwrap();
    add(&store, [task("a", "behind"), task("b", "young")]).await;
    let office = office(&store, hub.clone()).await;
    let outcome = office.retry_all(&Filter::default()).await.unwrap();
    assert_eq!((outcome.done, outcome.left), (2, 2));
    assert!(outcome.reasons[0].reason.starts_with("it was set aside longer ago than"), "{}", outcome.reasons[0].reason);
    assert_eq!(outcome.reasons[1].reason, "one before it could not be sent");
    assert_eq!(all(&office).await[0], old);

    assert_eq!(office.retry_beyond_retention(&[old]).await.unwrap().done, 1);
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["ahead", "old"]);
    assert_eq!(done(&store, "worker", "b"), ["young"]);
    let actions = office.actions().await.unwrap();
    let told: Vec<_> = actions.iter().map(|action| (action.deed, action.messages.join(" "))).collect();
    let retried = (Deed::Retried, "ahead young".into());
    assert_eq!(told, [retried, (Deed::RetriedBeyondRetention, "old".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_named_twice_is_sent_once() {
    let (store, hub) = (Memory::new(), InProcess::new("twice"));
    add(&store, [task("a", "one"), task("a", "two")]).await;
    let office = office(&store, hub.clone()).await;
    let letters = all(&office).await;
    let outcome = office.retry(&[letters[0].clone(), letters[1].clone(), letters[0].clone()]).await.unwrap();
    assert_eq!((outcome.done, outcome.left), (2, 0));
    let actions = office.actions().await.unwrap();
    assert_eq!((actions[0].count, &actions[0].messages), (2, &vec!["one".to_owned(), "two".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_would_be_dropped_as_expired_stays_until_it_is_edited() {
    let (store, hub, log) = (Memory::new(), InProcess::new("expired"), Log::default());
    let letter = letter(&task("a", "expired"));
    let envelope = Envelope { expires: Some(Timestamp::from_millis(1)), ..(*letter.envelope).clone() };
    let expired = DeadLetter { envelope: Arc::new(envelope), ..letter };
    store.add(&expired).await.unwrap();
    let office = office(&store, hub.clone()).await;
    let outcome = office.retry(std::slice::from_ref(&expired)).await.unwrap();
    assert_eq!((outcome.done, outcome.left), (0, 1));
    assert!(outcome.reasons[0].reason.contains("edit its `expires`"), "{}", outcome.reasons[0].reason);

    let edited = office.edit(&expired, |envelope| envelope.expires = None).await.unwrap();
    assert_eq!(office.retry(&[edited]).await.unwrap().done, 1);
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["expired"]);
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_somebody_has_given_up_is_not_retried_or_edited_from_an_old_list() {
    let (store, hub, log) = (Memory::new(), InProcess::new("given-up"), Log::default());
    add(&store, [task("a", "given-up"), task("b", "kept")]).await;
    let office = office(&store, hub.clone()).await;
    let old = all(&office).await;
    assert_eq!(office.discard(&old[..1]).await.unwrap(), 1);
    let outcome = office.retry(&old).await.unwrap();
    assert_eq!((outcome.done, outcome.left), (1, 1));
    assert_eq!(outcome.reasons[0].reason, "it is not there any more");
    let refused = office.edit(&old[0], |envelope| envelope.headers.set("x", "y").unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("somebody has retried, edited or discarded it"), "{refused}");
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!((done(&store, "worker", "a").len(), done(&store, "worker", "b")), (0, vec!["kept".into()]));
    assert_eq!(all(&office).await, []);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_sent_is_sent_where_it_was_to_go() {
    let (store, hub) = (Memory::new(), InProcess::new("parked"));
    let parked = DeadLetter {
        destination: Some(Destination::Endpoint("elsewhere".parse().unwrap())),
        ..letter(&task("a", "parked"))
    };
    store.add(&parked).await.unwrap();
    let cut = Cut::only_to(&hub, "elsewhere");
    let office = office(&store, WayOut(hub.clone(), cut.clone())).await;
    let outcome = office.retry(std::slice::from_ref(&parked)).await.unwrap();
    assert_eq!((outcome.done, outcome.left, all(&office).await), (0, 1, vec![parked]));
    assert!(outcome.reasons[0].reason.contains("cut off"), "{}", outcome.reasons[0].reason);

    cut.mend();
    assert_eq!(office.retry_all(&Filter::default()).await.unwrap().done, 1);
    let log = Log::default();
    let elsewhere = hapax::Endpoint::builder("elsewhere").store(store.clone()).transport(hub.clone()).with(log);
    let elsewhere = elsewhere.settings(crate::work::settings()).saga::<Worker>(|worker| worker.starts::<Task>());
    elsewhere.run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["parked"]);
    assert_eq!(all(&office).await, []);
}

/// What nobody handles is of no entity, also where nothing is handled at all: it is in no order.
#[tokio::test(start_paused = true)]
async fn a_letter_that_stays_at_an_endpoint_that_only_sends_holds_up_no_other() {
    let (store, hub) = (Memory::new(), InProcess::new("only-sends"));
    let stray = |name: &str| DeadLetter { saga: None, ..letter(&task("a", name)) };
    let expired = stray("expired");
    let envelope = Envelope { expires: Some(Timestamp::from_millis(1)), ..(*expired.envelope).clone() };
    store.add(&DeadLetter { envelope: Arc::new(envelope), ..expired }).await.unwrap();
    store.add(&stray("behind")).await.unwrap();
    let sends = hapax::Endpoint::builder("work").store(store.clone()).transport(hub).sends_enqueued();
    let office = sends.start().await.unwrap().dead_letter_office("alice");
    let outcome = office.retry_all(&Filter::default()).await.unwrap();
    assert_eq!((outcome.done, outcome.left), (1, 1), "{outcome:?}");
}

/// Goal: nothing is done that is not recorded. Method: the record cannot be reached.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_recorded_is_not_done() {
    let (entities, hub, log) = (Entities::default(), InProcess::new("unrecorded"), Log::default());
    add(&entities.store, [task("a", "one"), task("b", "two")]).await;
    let office = crate::outage::endpoint(&entities, &hub, &log).start().await.unwrap().dead_letter_office("alice");
    let before = all(&office).await;
    entities.is_away(Some(""));
    office.discard(&before).await.unwrap_err();
    office.edit(&before[0], |envelope| envelope.body = "{}".into()).await.unwrap_err();
    office.retry(&before).await.unwrap_err();
    assert_eq!((all(&office).await, hub.backlog(&"work".parse().unwrap())), (before.clone(), 0));
    entities.is_away(None);
    assert_eq!(office.retry(&before).await.unwrap().done, 2);
}
