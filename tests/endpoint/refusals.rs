//! Whatever an endpoint refuses to start with, it says what is wrong and what to do about it.

use std::time::Duration;

use async_trait::async_trait;
use hapax::{
    Around, Context, Endpoint, HandlerError, InProcess, Memory, Message, Next, Ran, Registry, ReusedId, Routes,
    deliver::Recoverability,
    endpoint::{Audit, Calendar, EndpointBuilder, Eviction, Settings},
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, Transport, TransportCapabilities, TransportError},
    seal::Seals,
};
use serde::{Deserialize, Serialize};

use crate::{
    cipher::AesGcm,
    depot::{ABOVE, Depot},
    entities::Dedup,
    sealed::Unnamed,
    start::{Says, refused, remembering, whole},
    work::{Auditor, Log, Task, Unheard, Worker, endpoint, settings},
};

const HOUR: Duration = Duration::from_secs(3600);

/// One endpoint that must not start.
struct Wrong {
    builder: EndpointBuilder,
    /// What is wrong, by its name.
    names: &'static str,
    remedy: &'static str,
}

fn wrong(builder: EndpointBuilder, names: &'static str, remedy: &'static str) -> Wrong {
    Wrong { builder, names, remedy }
}

fn hub() -> InProcess {
    InProcess::new("refusals")
}

fn bare() -> EndpointBuilder {
    Endpoint::builder("work").with(Log::default())
}

fn works(builder: EndpointBuilder) -> EndpointBuilder {
    builder.saga::<Worker>(|worker| worker.starts::<Task>())
}

fn set(change: impl FnOnce(&mut Settings)) -> EndpointBuilder {
    let mut settings = settings();
    change(&mut settings);
    whole().settings(settings)
}

fn says(what: fn(TransportCapabilities) -> TransportCapabilities) -> EndpointBuilder {
    endpoint(&Memory::new(), Says { what, reachable: true }, &Log::default())
}

fn recurs(builder: EndpointBuilder, name: &str) -> EndpointBuilder {
    builder.recurring(name, Calendar::cron("0 3 * * *").unwrap(), |_, _| Ok(()))
}

/// A hub that keeps no dead letters.
#[derive(Debug)]
struct Letterless;

#[async_trait]
impl Transport for Letterless {
    fn capabilities(&self) -> TransportCapabilities {
        hub().capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        Ok(Connected { dead_letters: None, ..hub().connect(endpoint, types).await? })
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Untypable;

impl Message for Untypable {
    const TYPE: &'static str = "no type";
}

/// The same type as a task has, and another message.
#[derive(Debug, Serialize, Deserialize)]
struct NoTask;

impl Message for NoTask {
    const TYPE: &'static str = Task::TYPE;
}

/// A middleware for messages of one type.
struct Gate;

macro_rules! stands {
    ($($message:ty),*) => {
        $(impl Around<$message> for Gate {
            async fn around<'r>(&self, cx: &mut Context, next: Next<'r, $message>) -> Result<Ran<'r>, HandlerError> {
                next.run(cx).await
            }
        })*
    };
}

stands!(Unheard, NoTask);

/// A middleware that asks for what nobody has given.
struct Asks;

impl Around for Asks {
    fn needs() -> hapax::Needs {
        hapax::Needs::default().and::<Settings>()
    }

    async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
        next.run(cx).await
    }
}

fn of_what_is_missing() -> Vec<Wrong> {
    let apart = || works(bare().entities(Memory::new()).dedup(Dedup::GOOD));
    vec![
        wrong(works(bare().transport(hub())), "no store for entities", "add .store(..) or .entities(..)"),
        wrong(works(bare().transport(hub()).entities(Memory::new())), "no dedup store", "add .dedup(..)"),
        wrong(whole().dedup(Memory::new()), "another for one", "give .store(..), or .entities(..) and .dedup(..)"),
        wrong(works(bare().store(Memory::new())), "no transport", "add .transport(..)"),
        wrong(bare().store(Memory::new()).transport(hub()), "no saga and no handler", "add .saga::<T>(..) or .handler"),
        wrong(apart().transport(Letterless), "no place for dead letters", "add .dead_letters(..)"),
        wrong(
            works(Endpoint::builder("work").store(Memory::new()).transport(hub())),
            "Log, which worker needs",
            "add .with(..)",
        ),
    ]
}

fn of_names() -> Vec<Wrong> {
    let named = |name: &str| works(Endpoint::builder(name).store(Memory::new()).transport(hub()).with(Log::default()));
    let audits = |messages: fn(Registry<Auditor>) -> Registry<Auditor>| whole().saga::<Auditor>(messages);
    vec![
        wrong(named("not a name"), "endpoint name `not a name`", "may hold ASCII letters, digits and"),
        wrong(named(""), "endpoint name is empty", "give it ASCII letters, digits and"),
        wrong(recurs(whole(), ""), "recurring: `` is no name", "give another"),
        wrong(recurs(recurs(whole(), "report"), "report"), "two things recur as `report`", "rename one"),
        wrong(
            audits(|auditor| auditor.when_id_reused(ReusedId::Drop).starts::<Task>()),
            "`auditor`: when_id_reused stands before any message",
            "put it behind the .starts::<M>() or .handles::<M>() it is about",
        ),
        wrong(whole().with(Routes::new().sends::<Task>("a b")), "the route of work.task", "may hold ASCII letters"),
        wrong(works(whole()), "two sagas or handlers named worker", "rename one"),
        wrong(audits(|auditor| auditor), "`auditor`: knows no message", "add .starts::<M>() or .handles::<M>()"),
        wrong(audits(Registry::handles::<Task>), "`auditor`: no message may start it", "add .starts::<M>()"),
        wrong(
            audits(|auditor| auditor.starts::<Task>().handles::<Task>()),
            "`work.task` is handled twice by `auditor`",
            "leave one of the two out",
        ),
        wrong(
            whole().routes(Routes::new().sends::<Task>("there").sends::<Task>("elsewhere")),
            "work.task is declared to go to there and to elsewhere",
            "leave one of them away",
        ),
        wrong(whole().routes(Routes::new().sends::<Task>("a b")), "the route of work.task", "may hold ASCII letters"),
        wrong(whole().routes(Routes::new().publishes::<Untypable>()), "`no type`", "may hold ASCII letters"),
        wrong(whole().seals(Seals::opened_by(Unnamed::<true>)), "`one;two` is no name for a seal", "printable ASCII"),
        wrong(
            whole().seals(Seals::opened_by(AesGcm::knowing(&["a"])).and_opens(AesGcm::knowing(&["b"]))),
            "two seals are named `aes-256-gcm`",
            "rename one, or leave it out",
        ),
    ]
}

fn of_middleware() -> Vec<Wrong> {
    let within = |gate: fn(Registry<Auditor>) -> Registry<Auditor>| {
        whole().saga::<Auditor>(|auditor| gate(auditor.starts::<Task>()))
    };
    vec![
        wrong(whole().around(Asks), "Settings, which ", "Asks needs; add .with(..)"),
        wrong(within(|auditor| auditor.around(Asks)), "Settings, which ", "Asks needs; add .with(..)"),
        wrong(whole().around::<Unheard>(Gate), "`work.unheard` has no handler here", "add one, or leave it out"),
        wrong(
            within(|auditor| auditor.around::<Unheard>(Gate)),
            "`work.unheard` has no handler here",
            "add one, or leave it out",
        ),
        wrong(whole().around::<NoTask>(Gate), "`work.task` is handled as another Rust type", "use one for both"),
    ]
}

fn of_settings() -> Vec<Wrong> {
    let longest = hub().capabilities().redelivery_max;
    vec![
        wrong(set(|it| it.retention = longest), "retention is", "raise the retention"),
        wrong(
            set(|it| it.retention *= 2).eviction(Eviction::After(settings().retention)),
            "in its settings and",
            "leave one of the two out",
        ),
        wrong(set(|it| it.sweep_age = it.retention), "the sweeper's age", "lower it"),
        wrong(set(|it| it.pass_max = 0), "pass_max is 0", "raise it"),
        wrong(set(|it| it.sweep_interval = Duration::ZERO), "sweep_interval is 0", "raise it"),
        wrong(set(|it| it.enqueued_interval = Duration::ZERO), "enqueued_interval is 0", "raise it"),
        wrong(set(|it| it.evict_interval = Duration::ZERO), "evict_interval is 0", "raise it"),
        wrong(set(|it| it.in_flight_max = 0), "in_flight_max is 0", "raise it"),
        wrong(set(|it| it.bytes_in_flight_max = 0), "bytes_in_flight_max is 0", "raise it"),
        wrong(set(|it| it.entries_max = 0), "entries_max is 0", "raise it"),
        wrong(set(|it| it.deadline = Duration::ZERO), "deadline is 0", "raise it"),
        wrong(
            set(|it| {
                it.recoverability = Recoverability { attempts_max: 0, poison_above: 0, ..it.recoverability.clone() }
            }),
            "recoverability.poison_above is 0",
            "raise it",
        ),
        wrong(
            set(|it| it.recoverability.poison_above = 0),
            "after 0 every message is taken for poison",
            "raise recoverability.poison_above, or lower attempts_max",
        ),
        wrong(set(|it| it.idempotency_retention = Some(HOUR)), "an idempotency key", "raise idempotency_retention"),
        wrong(
            set(|it| {
                it.recoverability.retry_delay = 48 * HOUR;
                it.recoverability.retry_delay_max = 48 * HOUR;
            })
            .saga::<Auditor>(|auditor| auditor.starts::<Task>()),
            "several sagas take work.task",
            "raise it, or shorten the rests of recoverability",
        ),
        wrong(whole().audit(Audit { looks_max: 0, ..Audit::default() }), "looks_max of the audit is 0", "raise it"),
        wrong(
            whole().audit(Audit { looks_max: 2, ..Audit::default() }),
            "looks_max of the audit is below 3",
            "raise it",
        ),
        wrong(whole().audit(Audit { watched_max: 0, ..Audit::default() }), "watched_max of the audit", "raise it"),
        wrong(
            whole().audit(Audit { interval: Duration::ZERO, ..Audit::default() }),
            "interval of the audit",
            "raise it",
        ),
        wrong(
            set(|it| it.published_retention = it.retention).bodies(Depot::default(), ABOVE),
            "published bodies are kept for",
            "raise published_retention",
        ),
    ]
}

fn of_what_ports_say() -> Vec<Wrong> {
    let durable: fn(TransportCapabilities) -> TransportCapabilities =
        |honest| TransportCapabilities { durable: true, ..honest };
    let long = Settings { idempotency_retention: Some(30 * 24 * HOUR), ..settings() };
    vec![
        wrong(says(durable), "what memory remembers of them does not", "give a durable store"),
        wrong(
            remembering(Dedup { durable: false, ..Dedup::GOOD }),
            "what kept-apart remembers of them does not",
            "give a durable store",
        ),
        wrong(
            remembering(Dedup { keeps: Some(HOUR), ..Dedup::GOOD }),
            "kept-apart keeps dedup entries for 3600s only",
            "let it keep them for longer, or lower the retention",
        ),
        wrong(
            remembering(Dedup { alone: false, ..Dedup::GOOD }),
            "kept-apart takes dedup entries with its own entities only",
            "open it so that it takes them alone, give another dedup store, or keep the entities in it too",
        ),
        wrong(
            remembering(Dedup { consistent: false, ..Dedup::GOOD }),
            "kept-apart may answer with what was known a while ago",
            "open it so that its reads are strongly consistent, or give another dedup store",
        ),
        wrong(
            remembering(Dedup::GOOD).eviction(Eviction::Evidence),
            "kept-apart does not remember the numbers",
            "use Eviction::After, or a dedup store with a long memory",
        ),
        wrong(
            remembering(Dedup::GOOD).settings(long),
            "kept-apart keeps all dedup entries for one time",
            "raise the retention to that, or give a dedup store with a long memory",
        ),
        wrong(
            says(|honest| TransportCapabilities { counts_deliveries: false, ..honest }),
            "in-process does not count deliveries",
            "give a transport that counts",
        ),
        wrong(
            recurs(says(|honest| TransportCapabilities { delays: Delays::Never, ..honest }), "report"),
            "in-process does not hold messages back",
            "add .schedule(..), or give a transport with delays",
        ),
        wrong(
            remembering(Dedup::GOOD).schedule(Memory::new()),
            "those that wait in the schedule in memory do not",
            "give a durable schedule",
        ),
        wrong(
            remembering(Dedup::GOOD).bodies(Memory::new(), ABOVE),
            "their bodies in memory do not",
            "give a durable store of bodies",
        ),
    ]
}

#[tokio::test]
async fn each_refusal_names_what_is_wrong_and_its_remedy() {
    assert!(whole().start().await.is_ok());
    let all = [of_what_is_missing(), of_names(), of_middleware(), of_settings(), of_what_ports_say()];
    for Wrong { builder, names, remedy } in all.into_iter().flatten() {
        let why = refused(builder).await;
        assert!(why.contains(names), "{names}, not: {why}");
        assert!(why.contains(remedy), "{remedy}, not: {why}");
    }
}
