//! The audit: loud beside each store that lies. That it is silent else: `worst_days.rs`.

use std::{sync::Arc, time::Duration};

use hapax::{
    Endpoint, InProcess,
    deliver::Recoverability,
    endpoint::{Audit, AuditReport, EndpointBuilder, EndpointHandle, Settings},
    ids::AttemptId,
    metrics::Invariant,
    ports::{DeadLetters, DedupStore, EntityStore},
    testing::Drops,
};
use tokio::{sync::oneshot, time::sleep};

use crate::{
    auditees::{Liar, Lie},
    work::{Cut, Log, Task, WayOut, Worker, send, settings, task},
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Looks at everything, again and again.
pub(crate) const THOROUGH: Audit = Audit { interval: SECOND, looks_max: 40, watched_max: 400 };

/// The same for both processes of one day, whatever the store.
pub(crate) fn process<S>(
    store: S,
    cut: &Cut,
    log: &Log,
    settings: Settings,
    drops: &Drops,
    audit: Audit,
) -> EndpointBuilder
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
{
    // Dropped passes count as deliveries; no message is poison here.
    let recoverability = Recoverability { poison_above: u32::MAX, ..settings.recoverability.clone() };
    Endpoint::builder("work")
        .store(store)
        .transport(WayOut(cut.hub.clone(), cut.clone()))
        .with(log.clone())
        .settings(Settings { recoverability, ..settings })
        .drops(drops.clone())
        .audit(audit)
        .saga::<Worker>(|worker| worker.starts::<Task>())
}

/// An endpoint on a store that lies from a moment on, with a way out that is cut or not.
struct Rig {
    liar: Liar,
    cut: Cut,
    log: Log,
    handle: Option<EndpointHandle>,
}

impl Rig {
    fn new(name: &str) -> Self {
        let cut = Cut::new(&InProcess::new(name));
        cut.mend();
        Self { liar: Liar::new(), cut, log: Log::default(), handle: None }
    }

    /// With nobody to send to.
    fn cut_off(name: &str) -> Self {
        let cut = Cut::new(&InProcess::new(name));
        Self { cut, ..Self::new(name) }
    }

    fn endpoint(&self, settings: Settings) -> EndpointBuilder {
        process(self.liar.clone(), &self.cut, &self.log, settings, &Drops::new(0, 0.0), THOROUGH)
    }

    /// Handles tasks of one key, one after the other, `rest` apart, and then stops. All but the quiet ones have something to send.
    async fn run(&mut self, settings: Settings, key: &str, tasks: &[&str], rest: Duration) {
        let endpoint = self.endpoint(settings).start().await.unwrap();
        self.handle = Some(endpoint.handle());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(endpoint.run_until(stopped));
        for name in tasks {
            send(&self.cut.hub, &Task { tells: !name.starts_with("quiet"), ..task(key, name) }).await;
            sleep(rest).await;
        }
        let _ = stop.send(());
        running.await.unwrap().unwrap();
    }

    async fn look(&self) -> AuditReport {
        self.handle.as_ref().unwrap().audit_once().await.unwrap()
    }

    /// From now on it lies, and that is found: this, and nothing else.
    async fn is_found(&self, lie: Lie, invariant: Invariant, what: &str) {
        assert_eq!(self.look().await.violations(), 0, "{:#?}", self.look().await);
        self.liar.lie(lie);
        has_found(&self.look().await, invariant, what);
        // Told once, however often it is seen.
        assert_eq!(self.look().await.violations(), 1, "{:#?}", self.look().await);
    }
}

#[track_caller]
fn has_found(report: &AuditReport, invariant: Invariant, what: &str) {
    let Some(last) = &report.last else { panic!("nothing was found: {report:#?}") };
    assert_eq!((last.invariant, report.violations()), (invariant, 1), "{report:#?}");
    assert_eq!(report.of(invariant).violations, 1, "{report:#?}");
    assert!(last.what.contains(what), "{last}");
    println!("{last}");
}

#[tokio::test(start_paused = true)]
async fn a_dedup_entry_that_is_forgotten_early_is_found() {
    let mut rig = Rig::new("forgets");
    rig.run(settings(), "a", &["one"], 5 * SECOND).await;
    rig.is_found(Lie::Forgets, Invariant::Remembered, "has no dedup entry, nor an outbox entry").await;
    let last = rig.look().await.last.unwrap();
    assert_eq!(last.message_id, Some("one".parse().unwrap()));
    assert!(last.message.is_some() && last.entity.to_string() == "work/worker/a", "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dedup_entry_that_is_another_attempts_from_now_on_is_found() {
    let mut rig = Rig::new("other-attempt");
    rig.run(settings(), "a", &["one"], 5 * SECOND).await;
    rig.is_found(Lie::OtherAttempt, Invariant::OneAttempt, "its dedup entry was of attempt").await;
}

#[tokio::test(start_paused = true)]
async fn an_outbox_entry_that_is_dropped_unsent_is_found() {
    let mut rig = Rig::cut_off("drops-entries");
    rig.run(settings(), "a", &["one"], 30 * SECOND).await;
    rig.is_found(Lie::DropsEntries, Invariant::Kept, "neither an outbox entry nor a dedup entry").await;
}

#[tokio::test(start_paused = true)]
async fn an_outbox_entry_of_another_attempt_than_is_remembered_is_found() {
    let mut rig = Rig::cut_off("handled-twice");
    rig.run(settings(), "a", &["one"], 30 * SECOND).await;
    let entry = rig.liar.only_entity().1.outbox[0].to_dedup_entry();
    let other = AttemptId::from_bytes([7; AttemptId::BYTES]);
    let remembered = hapax::entity::DedupEntry { attempt: other, ..entry };
    assert_eq!(rig.look().await.violations(), 0);
    rig.liar.memory.insert(&[remembered]).await.unwrap();
    rig.is_found_now(Invariant::HandledOnce, "its outbox entry is of attempt").await;
}

impl Rig {
    async fn is_found_now(&self, invariant: Invariant, what: &str) {
        has_found(&self.look().await, invariant, what);
        assert_eq!(self.look().await.violations(), 1, "told once: {:#?}", self.look().await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_entity_that_is_as_it_was_before_is_found() {
    let mut rig = Rig::new("restored");
    rig.run(settings(), "a", &["quiet-one", "quiet-two"], 5 * SECOND).await;
    rig.is_found(Lie::OldState, Invariant::VersionsGrow, "is back").await;
}

#[tokio::test(start_paused = true)]
async fn an_entity_that_was_never_seen_as_it_is_now_but_has_handled_less_is_found() {
    let mut rig = Rig::new("restored-unseen");
    // Nothing looks between the two.
    rig.run(settings(), "a", &["one", "two"], SECOND / 100).await;
    rig.is_found(Lie::OldState, Invariant::VersionsGrow, "it has handled 1 messages").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_stands_for_two_states_is_found() {
    let mut rig = Rig::new("two-states");
    rig.run(settings(), "a", &["one"], 5 * SECOND).await;
    rig.is_found(Lie::TwoStates, Invariant::VersionsGrow, "has had two states").await;
}

#[tokio::test(start_paused = true)]
async fn an_entity_that_is_gone_is_found() {
    let mut rig = Rig::new("gone");
    rig.run(settings(), "a", &["one"], 5 * SECOND).await;
    rig.is_found(Lie::Gone, Invariant::VersionsGrow, "it is gone").await;
}

#[tokio::test(start_paused = true)]
async fn what_no_sweeper_cleans_up_is_found_once_others_can_write() {
    let mut rig = Rig::new("never-cleans");
    rig.liar.lie(Lie::NeverCleans);
    rig.run(settings(), "a", &["one"], 300 * SECOND).await;
    // That it was seen all the time, and is no violation as long as nothing shows that the store takes writes.
    let report = rig.look().await;
    assert_eq!((report.violations(), report.left_over), (0, 1), "{report:#?}");

    let mut rig = Rig::new("never-cleans-again");
    rig.liar.lie(Lie::NeverCleans);
    let endpoint = rig.endpoint(settings()).start().await.unwrap();
    rig.handle = Some(endpoint.handle());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    send(&rig.cut.hub, &Task { tells: true, ..task("a", "one") }).await;
    sleep(30 * SECOND).await;
    send(&rig.cut.hub, &task("b", "two")).await;
    sleep(30 * SECOND).await;
    assert_eq!(rig.look().await.violations(), 0, "too soon to say");
    sleep(60 * SECOND).await;
    has_found(&rig.look().await, Invariant::NoOrphan, "sweeps have left it where it is");
    let _ = stop.send(());
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_every_save_carries_along_is_found() {
    let mut rig = Rig::new("carries-along");
    rig.liar.lie(Lie::CarriesAlong);
    let seldom = Settings { sweep_interval: Duration::from_secs(24 * 3600), ..settings() };
    rig.run(seldom.clone(), "a", &["one", "two"], 5 * SECOND).await;
    assert_eq!(rig.look().await.violations(), 0, "the first save may have been under way");
    let mut rig = Rig::new("carries-along-again");
    rig.liar.lie(Lie::CarriesAlong);
    rig.run(seldom, "a", &["one", "two", "three"], 5 * SECOND).await;
    has_found(&rig.look().await, Invariant::NoOrphan, "was saved along again and again");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_listed_as_pending_is_found() {
    let mut rig = Rig::cut_off("lists-nothing");
    rig.liar.lie(Lie::ListsNothing);
    rig.run(settings(), "a", &["one"], 200 * SECOND).await;
    has_found(&rig.look().await, Invariant::NoOrphan, "sweeps have passed it by without a word");
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_sent_is_told_of_and_is_no_violation() {
    let mut rig = Rig::cut_off("waits");
    rig.run(settings(), "a", &["one"], 3600 * SECOND).await;
    let report = rig.look().await;
    assert_eq!((report.violations(), report.waiting.entries, report.left_over), (0, 1, 0), "{report:#?}");
    assert!(report.waiting.oldest.is_some() && report.of(Invariant::Kept).looked_at > 100, "{report:#?}");
    // Sent at last, it is no longer watched for that, but for being remembered.
    rig.cut.mend();
    let handle = rig.handle.take().unwrap();
    rig.run(settings(), "b", &["two"], 60 * SECOND).await;
    let report = handle.audit_once().await.unwrap();
    assert_eq!((report.violations(), report.waiting.entries), (0, 0), "{report:#?}");
    rig.liar.lie(Lie::Forgets);
    has_found(&handle.audit_once().await.unwrap(), Invariant::Remembered, "has no dedup entry");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_was_given_no_audit_asks_for_nothing_and_looks_when_it_is_asked() {
    let (liar, log) = (Liar::new(), Log::default());
    let cut = Cut::new(&InProcess::new("unaudited"));
    let endpoint = Endpoint::builder("work")
        .store(liar.clone())
        .transport(WayOut(cut.hub.clone(), cut.clone()))
        .with(log.clone())
        .settings(settings())
        .saga::<Worker>(|worker| worker.starts::<Task>());
    let endpoint = endpoint.start().await.unwrap();
    let handle = endpoint.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    send(&cut.hub, &Task { tells: true, ..task("a", "one") }).await;
    sleep(60 * SECOND).await;
    assert_eq!((handle.audit(), liar.versions()), (AuditReport::default(), 0));
    let report = handle.audit_once().await.unwrap();
    assert_eq!((report.looks, report.waiting.entries, report.violations()), (1, 1, 0), "{report:#?}");
    let _ = stop.send(());
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_audit_makes_no_more_looks_than_it_may() {
    let (mut rig, log) = (Rig::new("bounded"), Log::default());
    let audit = Audit { interval: 10 * SECOND, looks_max: 3, watched_max: 5 };
    let endpoint = process(rig.liar.clone(), &rig.cut, &log, settings(), &Drops::new(0, 0.0), audit);
    let endpoint = endpoint.start().await.unwrap();
    rig.handle = Some(endpoint.handle());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    for number in 0..200 {
        send(&rig.cut.hub, &task(&format!("key-{number}"), &format!("task-{number}"))).await;
        sleep(SECOND).await;
    }
    let report = rig.handle.as_ref().unwrap().audit();
    assert_eq!((rig.liar.memory.entities().len(), report.watched, report.violations()), (200, 5, 0), "{report:#?}");
    assert!((40..=63).contains(&report.looks), "{report:#?}");
    let _ = stop.send(());
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_audit_of_nothing_is_refused_at_the_start() {
    let rig = Rig::new("of-nothing");
    for (audit, name) in
        [(Audit { looks_max: 0, ..THOROUGH }, "looks_max"), (Audit { watched_max: 0, ..THOROUGH }, "watched_max")]
    {
        let refused = rig.endpoint(settings()).audit(audit).start().await.unwrap_err();
        assert!(refused.to_string().contains(name), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn violations_are_told_to_the_observer_with_what_was_looked_at() {
    let mut rig = Rig::new("observed");
    let seen = Arc::new(crate::auditees::Observer::default());
    let endpoint = rig.endpoint(settings()).metrics(seen.clone()).start().await.unwrap();
    rig.handle = Some(endpoint.handle());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    send(&rig.cut.hub, &task("a", "one")).await;
    sleep(5 * SECOND).await;
    rig.liar.lie(Lie::Forgets);
    sleep(5 * SECOND).await;
    let report = rig.look().await;
    has_found(&report, Invariant::Remembered, "has no dedup entry");
    assert_eq!(seen.told(), (report.looked_at(), report.violations()));
    let _ = stop.send(());
    running.await.unwrap().unwrap();
}
