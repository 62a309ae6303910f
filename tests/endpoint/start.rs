//! What an endpoint refuses to start with, and what it says.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Context, Endpoint, Handler, HandlerError, InProcess, Memory, Needs, Registry, Routes, Sender,
    endpoint::{Calendar, EndpointBuilder, ErrorKind, Eviction, Settings},
    ids::{EndpointName, TypeName},
    ports::{self, Connected, Delays, StoreError, Transport, TransportCapabilities, TransportError},
};

use crate::entities::{Dedup, Entities};
use crate::work::{Auditor, Log, Task, Worker, endpoint, settings, task};

pub(crate) async fn refused(builder: EndpointBuilder) -> String {
    let error = builder.start().await.expect_err("it must not start");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    error.to_string()
}

pub(crate) fn whole() -> EndpointBuilder {
    endpoint(&Memory::new(), InProcess::new("start"), &Log::default())
}

fn hub() -> InProcess {
    InProcess::new("start")
}

#[tokio::test]
async fn what_is_whole_starts() {
    assert!(whole().start().await.is_ok());
}

#[tokio::test]
async fn what_is_missing_is_named_with_the_way_to_add_it() {
    let bare = || Endpoint::builder("work").with(Log::default());
    let worker = |builder: EndpointBuilder| builder.saga::<Worker>(|worker| worker.starts::<Task>());
    assert_eq!(
        refused(worker(bare().transport(hub()))).await,
        "endpoint work has no store for entities; add .store(..) or .entities(..)"
    );
    assert_eq!(
        refused(worker(bare().transport(hub()).entities(Memory::new()))).await,
        "endpoint work has no dedup store; add .dedup(..)"
    );
    assert_eq!(
        refused(worker(bare().store(Memory::new()))).await,
        "endpoint work has no transport; add .transport(..)"
    );
    assert_eq!(
        refused(bare().store(Memory::new()).transport(hub())).await,
        "endpoint work has no saga and no handler; add .saga::<T>(..) or .handler(..)"
    );
}

#[tokio::test]
async fn a_service_that_a_saga_needs_must_be_given() {
    let builder = Endpoint::builder("work").store(Memory::new()).transport(hub());
    let why = refused(builder.saga::<Worker>(|worker| worker.starts::<Task>())).await;
    assert!(why.contains("Log, which worker needs; add .with(..)"), "{why}");
}

/// A handler that says what it needs.
struct Charges;

impl Handler<Task> for Charges {
    const NAME: &'static str = "charges";

    fn needs() -> Needs {
        Needs::default().and::<Log>()
    }

    async fn handle(&self, _: Task, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Log>().map(drop)
    }
}

#[tokio::test]
async fn a_service_that_a_handler_needs_must_be_given() {
    let builder = || Endpoint::builder("work").store(Memory::new()).transport(hub()).handler(Charges);
    let why = refused(builder()).await;
    assert!(why.contains("Log, which charges needs; add .with(..)"), "{why}");
    assert!(builder().with(Log::default()).start().await.is_ok());
}

#[tokio::test]
async fn a_saga_that_no_message_reaches_or_starts_is_refused() {
    let why = refused(whole().saga::<Auditor>(|auditor| auditor)).await;
    assert_eq!(why, "endpoint work: saga `auditor`: knows no message: add .starts::<M>() or .handles::<M>()");
    let why = refused(whole().saga::<Auditor>(Registry::handles::<Task>)).await;
    assert_eq!(why, "endpoint work: saga `auditor`: no message may start it: add .starts::<M>()");
}

#[tokio::test]
async fn one_store_for_both_and_another_for_one_is_a_contradiction() {
    let why = refused(whole().dedup(Memory::new())).await;
    assert!(why.contains("give .store(..), or .entities(..) and .dedup(..)"), "{why}");
}

#[tokio::test]
async fn two_sagas_of_one_name_are_refused() {
    let why = refused(whole().saga::<Worker>(|worker| worker.starts::<Task>())).await;
    assert_eq!(why, "endpoint work has two sagas or handlers named worker; rename one");
}

#[tokio::test]
async fn a_message_type_that_a_saga_handles_twice_is_refused() {
    let why = refused(whole().saga::<Auditor>(|auditor| auditor.starts::<Task>().handles::<Task>())).await;
    assert!(why.contains("`work.task` is handled twice by `auditor`"), "{why}");
}

#[tokio::test]
async fn a_malformed_name_is_refused() {
    let builder = Endpoint::builder("not a name").store(Memory::new()).transport(hub()).with(Log::default());
    let why = refused(builder.saga::<Worker>(|worker| worker.starts::<Task>())).await;
    assert!(why.starts_with("endpoint name `not a name`"), "{why}");
}

#[tokio::test]
async fn retention_must_exceed_the_longest_redelivery_and_the_deadline_together() {
    let longest = hub().capabilities().redelivery_max + settings().deadline;
    let why = refused(whole().settings(Settings { retention: longest, ..settings() })).await;
    assert!(why.contains("raise the retention"), "{why}");
    let enough = Settings { retention: longest + Duration::from_millis(1), ..settings() };
    assert!(whole().settings(enough).start().await.is_ok());
}

#[tokio::test]
async fn the_sweepers_age_must_be_far_below_the_retention() {
    let late = Settings { sweep_age: settings().retention, ..settings() };
    let why = refused(whole().settings(late)).await;
    assert!(why.contains("too near to the retention"), "{why}");
}

#[tokio::test]
async fn an_endpoint_that_may_hold_no_message_is_refused() {
    let why = refused(whole().settings(Settings { in_flight_max: 0, ..settings() })).await;
    assert!(why.contains("in_flight_max is 0"), "{why}");
}

type What = fn(TransportCapabilities) -> TransportCapabilities;

/// A hub that says something else of itself, or that cannot be reached.
#[derive(Debug)]
pub(crate) struct Says {
    pub(crate) what: fn(TransportCapabilities) -> TransportCapabilities,
    pub(crate) reachable: bool,
}

#[async_trait]
impl Transport for Says {
    fn capabilities(&self) -> TransportCapabilities {
        (self.what)(hub().capabilities())
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        if self.reachable {
            return hub().connect(endpoint, types).await;
        }
        Err(TransportError::new(ports::ErrorKind::Unavailable, "connecting", "nobody is there"))
    }
}

async fn refused_because_it_says(what: fn(TransportCapabilities) -> TransportCapabilities) -> String {
    refused(endpoint(&Memory::new(), Says { what, reachable: true }, &Log::default())).await
}

#[tokio::test]
async fn a_store_that_forgets_is_refused_for_messages_that_survive() {
    let why = refused_because_it_says(|honest| TransportCapabilities { durable: true, ..honest }).await;
    assert!(why.contains("messages in in-process outlive the process"), "{why}");
}

/// Dedup entries in a store that says so of itself.
pub(crate) fn remembering(dedup: Dedup) -> EndpointBuilder {
    Endpoint::builder("work")
        .entities(Entities { durable: true, ..Entities::default() })
        .dedup(dedup)
        .transport(Says { what: |honest| TransportCapabilities { durable: true, ..honest }, reachable: true })
        .with(Log::default())
        .saga::<Worker>(|worker| worker.starts::<Task>())
}

#[tokio::test]
async fn dedup_entries_that_are_forgotten_are_refused_for_messages_that_survive() {
    let why = refused(remembering(Dedup { durable: false, ..Dedup::GOOD })).await;
    assert!(why.contains("what kept-apart remembers of them does not"), "{why}");
}

#[tokio::test]
async fn dedup_entries_that_are_kept_for_less_than_the_retention_are_refused() {
    let keeps = Some(Duration::from_secs(3600));
    let why = refused(remembering(Dedup { keeps, ..Dedup::GOOD })).await;
    assert!(why.contains("retention is 604800s, but kept-apart keeps dedup entries for 3600s only"), "{why}");
}

#[tokio::test]
async fn a_dedup_store_that_takes_entries_with_their_entities_only_is_refused_beside_another_store() {
    let why = refused(remembering(Dedup { alone: false, ..Dedup::GOOD })).await;
    assert!(why.contains("kept-apart takes dedup entries with its own entities only"), "{why}");
    assert!(why.contains("and the entities are in memory;"), "{why}");
}

#[tokio::test]
async fn a_dedup_store_that_may_answer_with_what_was_is_refused() {
    let why = refused(remembering(Dedup { consistent: false, ..Dedup::GOOD })).await;
    assert!(why.contains("kept-apart may answer with what was known a while ago"), "{why}");
}

#[tokio::test]
async fn who_cannot_remember_is_refused_where_evidence_or_longer_keys_are_asked_for() {
    let why = refused(remembering(Dedup::GOOD).eviction(Eviction::Evidence)).await;
    assert!(why.contains("kept-apart does not remember the numbers") && why.contains("use Eviction::After"), "{why}");
    let month = Some(Duration::from_secs(30 * 24 * 3600));
    let long = Settings { idempotency_retention: month, ..settings() };
    let why = refused(remembering(Dedup::GOOD).settings(long.clone())).await;
    assert!(why.contains("so it cannot keep those of idempotency keys for 2592000s"), "{why}");
    assert!(whole().settings(long).eviction(Eviction::Evidence).start().await.is_ok());
    let short = Settings { idempotency_retention: Some(Duration::from_secs(60)), ..settings() };
    let why = refused(whole().settings(short)).await;
    assert!(why.contains("remembered for 60s, shorter than the retention"), "{why}");
}

/// A queue that shows when its copies are gone may give one again after any time; one that does not may not.
#[tokio::test]
async fn evidence_stands_for_the_time_that_a_transport_may_take_if_it_shows_it() {
    let slow = |marks| {
        let what: What = if marks {
            |honest| TransportCapabilities { redelivery_max: Duration::MAX, marks: true, ..honest }
        } else {
            |honest| TransportCapabilities { redelivery_max: Duration::MAX, ..honest }
        };
        endpoint(&Memory::new(), Says { what, reachable: true }, &Log::default())
    };
    assert!(slow(true).eviction(Eviction::Evidence).start().await.is_ok());
    for (builder, why) in [(slow(false).eviction(Eviction::Evidence), "no marks"), (slow(true), "by time")] {
        let said = refused(builder).await;
        assert!(said.contains("may give a message again for"), "{why}: {said}");
    }
    let minute = Settings { retention: Duration::from_secs(60), ..Settings::default() };
    let hasty = slow(true).settings(minute).eviction(Eviction::Evidence);
    let said = refused(hasty).await;
    assert!(said.contains("a pass may take 60s; raise the retention"), "{said}");
}

/// Who shares a transport, or chooses it while the program runs, has an `Arc` of it.
#[tokio::test]
async fn an_arc_of_a_transport_is_a_transport_and_one_of_a_dispatcher_a_dispatcher() {
    let (hub, log) = (InProcess::new("shared"), Log::default());
    let chosen: Arc<dyn Transport> = Arc::new(hub.clone());
    let end = chosen.connect(&"elsewhere".parse().unwrap(), &[]).await.unwrap().dispatcher;
    let sender = Sender::new(Arc::new(end));
    sender.send("work", &task("a", "shared")).await.unwrap();
    endpoint(&Memory::new(), chosen, &log).start().await.unwrap().run_until(hub.idle()).await.unwrap();
    assert_eq!(log.runs("worker", "shared"), 1);
}

#[tokio::test]
async fn the_time_of_eviction_holds_in_whichever_order_it_and_the_settings_are_given() {
    let hasty = Eviction::After(Duration::from_secs(60));
    // The last that is given counts, whole: nothing of it stays behind.
    assert!(whole().eviction(hasty).eviction(Eviction::Evidence).start().await.is_ok());
    for builder in
        [whole().eviction(hasty).settings(Settings::default()), whole().settings(Settings::default()).eviction(hasty)]
    {
        let said = refused(builder).await;
        assert!(said.contains("retention is 60s"), "{said}");
    }
}

#[tokio::test]
async fn routes_that_contradict_each_other_or_are_malformed_are_refused() {
    let twice = Routes::new().sends::<Task>("there").sends::<Task>("elsewhere");
    let why = refused(whole().routes(twice)).await;
    assert!(why.contains("is declared to go to there and to elsewhere; leave one of them away"), "{why}");
    let why = refused(whole().routes(Routes::new().sends::<Task>("not a name"))).await;
    assert!(why.contains("the route of") && why.contains("not a name"), "{why}");
    assert!(whole().routes(Routes::new().sends::<Task>("there").sends::<Task>("there")).start().await.is_ok());
}

#[tokio::test]
async fn what_recurs_is_refused_on_a_transport_that_does_not_hold_it_back_without_a_schedule() {
    let (never, short): (What, What) = (
        |honest| TransportCapabilities { delays: Delays::Never, ..honest },
        |honest| TransportCapabilities { delays: Delays::UpTo(Duration::from_secs(900)), ..honest },
    );
    for what in [never, short] {
        let alone = || endpoint(&Memory::new(), Says { what, reachable: true }, &Log::default());
        assert!(alone().start().await.is_ok(), "what it sends is not known yet");
        let nightly = || Calendar::cron("0 3 * * *").unwrap();
        let recurring = || alone().recurring("report", nightly(), |_, _| Ok(()));
        let why = refused(recurring()).await;
        assert!(why.contains("add .schedule(..), or give a transport with delays"), "{why}");
        assert!(recurring().schedule(Memory::new()).start().await.is_ok());
    }
}

#[tokio::test]
async fn a_schedule_that_forgets_is_refused_on_a_transport_that_does_not() {
    let builder = Endpoint::builder("work")
        .entities(Entities { durable: true, ..Entities::default() })
        .dedup(Dedup::GOOD)
        .schedule(Memory::new())
        .transport(Says { what: |honest| TransportCapabilities { durable: true, ..honest }, reachable: true })
        .with(Log::default())
        .saga::<Worker>(|worker| worker.starts::<Task>());
    let why = refused(builder).await;
    assert!(why.contains("wait in the schedule in memory do not; give a durable schedule"), "{why}");
}

#[tokio::test]
async fn a_transport_that_does_not_count_deliveries_is_refused() {
    let why = refused_because_it_says(|honest| TransportCapabilities { counts_deliveries: false, ..honest }).await;
    assert!(why.contains("would never be given up; give a transport that counts"), "{why}");
}

#[tokio::test]
async fn rests_that_outlive_dedup_entries_are_refused_where_several_sagas_take_a_message() {
    let mut settings = settings();
    settings.recoverability.retry_delay = Duration::from_secs(2 * 24 * 3600);
    settings.recoverability.retry_delay_max = settings.recoverability.retry_delay;
    let alone = whole().settings(settings.clone());
    assert!(alone.start().await.is_ok());
    let why = refused(whole().settings(settings).saga::<Auditor>(|auditor| auditor.starts::<Task>())).await;
    assert!(why.contains("several sagas take work.task") && why.contains("raise it, or shorten the rests"), "{why}");
}

/// Goal: nothing is connected, subscribed or created for an endpoint that does not start. Method: nobody is there to be
/// connected to, and that is not what is said.
#[tokio::test]
async fn what_needs_no_connection_is_checked_before_there_is_one() {
    let alone = || endpoint(&Memory::new(), Says { what: |honest| honest, reachable: false }, &Log::default());
    let error = alone().start().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Transport);
    refused(alone().saga::<Worker>(|worker| worker.starts::<Task>())).await;
    refused(alone().saga::<Auditor>(|auditor| auditor)).await;
    refused(alone().saga::<Auditor>(|auditor| auditor.starts::<Task>().handles::<Task>())).await;
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let why = runtime.block_on(refused(whole()));
    assert!(why.contains("build it with .enable_all() or .enable_time()"), "{why}");
}

#[tokio::test]
async fn a_transport_that_cannot_be_reached_is_said_with_its_own_reason() {
    let builder = Endpoint::builder("work")
        .entities(Entities { durable: true, ..Entities::default() })
        .dedup(Dedup::GOOD)
        .transport(Says { what: |honest| TransportCapabilities { durable: true, ..honest }, reachable: false })
        .with(Log::default())
        .saga::<Worker>(|worker| worker.starts::<Task>());
    let error = builder.start().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Transport);
    assert_eq!(error.to_string(), "endpoint work cannot connect to in-process");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "connecting: nobody is there");
    // So a `main` that returns it prints it.
    assert_eq!(format!("{error:?}"), "endpoint work cannot connect to in-process: connecting: nobody is there");
}

#[test]
fn an_error_of_a_port_prints_its_message_and_causes() {
    let error = StoreError::new(ports::ErrorKind::Denied, "opening", "give the right").caused_by("not yours");
    assert_eq!(format!("{error:?}"), "opening: give the right: not yours (Denied)");
}

#[tokio::test]
async fn a_message_may_not_be_given_up_later_than_it_is_poison() {
    let mut settings = settings();
    settings.recoverability.attempts_max = settings.recoverability.poison_above;
    assert!(whole().settings(settings.clone()).start().await.is_ok());
    settings.recoverability.attempts_max += 1;
    let why = refused(whole().settings(settings)).await;
    assert!(why.contains("given up after 11 attempts, but after 10 every message is taken for poison"), "{why}");
    assert!(why.contains("raise recoverability.poison_above"), "{why}");
}
