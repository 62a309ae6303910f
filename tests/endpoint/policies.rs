//! Messages for a saga that is not there, or is complete: they end as its policies say, also on a bad day, also where two processes of one endpoint
//! have them, and where the programs of the two say different things, as while a new version takes over from an old one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use hapax::{
    Completed, Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, Missing, Registry,
    Saga,
    endpoint::{EndpointBuilder, Settings},
    metrics::{Ending, Event, Metrics},
    testing::Drops,
    transports::in_process::Faults,
};
use hapax_model::{Fault, Plan, World, faults::Faulty};
use serde::{Deserialize, Serialize};

use crate::work::{letters, settings};

const LEASE: Duration = Duration::from_secs(5);
const TABS: usize = 5;
const ITEMS: usize = 4;

#[derive(Debug, Serialize, Deserialize)]
struct Open {
    tab: String,
}

impl Message for Open {
    const TYPE: &'static str = "policies.open";
}

#[derive(Debug, Serialize, Deserialize)]
struct Add {
    tab: String,
    item: String,
}

impl Message for Add {
    const TYPE: &'static str = "policies.add";
}

#[derive(Debug, Serialize, Deserialize)]
struct Close {
    tab: String,
}

impl Message for Close {
    const TYPE: &'static str = "policies.close";
}

/// What was added to it, since it was opened and until it is closed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Tab {
    items: Vec<String>,
}

impl Saga for Tab {
    const NAME: &'static str = "tab";
}

impl Handle<Open> for Tab {
    fn correlate(open: &Open) -> Correlation<'_> {
        (&open.tab).into()
    }
    async fn handle(&mut self, _: Open, _: &mut Context) -> Result<(), HandlerError> {
        Ok(())
    }
}

impl Handle<Add> for Tab {
    fn correlate(add: &Add) -> Correlation<'_> {
        (&add.tab).into()
    }
    async fn handle(&mut self, add: Add, _: &mut Context) -> Result<(), HandlerError> {
        self.items.push(add.item);
        Ok(())
    }
}

impl Handle<Close> for Tab {
    fn correlate(close: &Close) -> Correlation<'_> {
        (&close.tab).into()
    }
    async fn handle(&mut self, _: Close, cx: &mut Context) -> Result<(), HandlerError> {
        cx.complete();
        Ok(())
    }
}

/// One program: which policies it has.
type Program = fn(Registry<Tab>) -> Registry<Tab>;

fn tabs(registry: Registry<Tab>) -> Registry<Tab> {
    registry.starts::<Open>().handles::<Add>().handles::<Close>()
}

/// How each delivery of each message has ended, and where, by its id.
#[derive(Debug, Clone, Default)]
struct Ends(Arc<Mutex<BTreeMap<String, Vec<Ending>>>>);

impl Metrics for Ends {
    fn observe(&self, event: Event<'_>) {
        if let Event::Ended(_, message, ending) = event {
            self.0.lock().unwrap().entry(message.envelope.message_id.to_string()).or_default().push(ending);
        }
    }
}

impl Ends {
    /// Which messages have ended so at least once.
    fn that_were(&self, ending: Ending) -> BTreeSet<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(_, ends)| ends.contains(&ending)).map(|(id, _)| id.clone()).collect()
    }
}

/// Two processes of one endpoint on one store.
struct Case {
    store: Faulty<Memory>,
    hub: InProcess,
    drops: f64,
    seed: u64,
}

impl Case {
    /// With copies, reordering, lost acknowledgements, calls that are refused or not answered, old loads, and passes that are dropped.
    fn on_a_bad_day(seed: u64) -> Self {
        let faults =
            [Fault::Refused, Fault::UnknownApplied, Fault::UnknownNotApplied, Fault::OwnConflict, Fault::Stale];
        let budgets = faults.into_iter().map(|fault| (fault, 40)).collect();
        let world = World::new(Plan { seed, per_mille: 50, budgets, yields: true, ..Plan::default() });
        let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: Duration::from_secs(20), lost_acks: 0.2 };
        let hub = InProcess::with_faults("policies", LEASE, faults);
        Self { store: Faulty::new(Memory::new(), world), hub, drops: 0.2, seed }
    }

    fn on_a_good_day() -> Self {
        let world = World::new(Plan { yields: true, ..Plan::default() });
        let hub = InProcess::new("policies");
        Self { store: Faulty::new(Memory::new(), world), hub, drops: 0.0, seed: 0 }
    }

    fn process(&self, program: Program, ends: &Ends) -> EndpointBuilder {
        let mut settings = Settings { in_flight_max: 3, ..settings() };
        // Dropped passes count as deliveries; no message is poison here.
        settings.recoverability.poison_above = u32::MAX;
        // So that whoever can handle a message is given it before it is given up, where somebody can.
        settings.recoverability.attempts_max = 60;
        settings.recoverability.retry_delay_max = Duration::from_secs(2);
        Endpoint::builder("work")
            .store(self.store.clone())
            .transport(self.hub.clone())
            .settings(settings)
            .metrics(ends.clone())
            .drops(Drops::new(self.seed, self.drops))
            .saga::<Tab>(program)
    }

    /// Both run until nothing is left; answers how messages have ended in each.
    async fn run(&self, one: Program, other: Program) -> [Ends; 2] {
        let ends = [Ends::default(), Ends::default()];
        let (one, other) = tokio::join!(
            self.process(one, &ends[0]).run_until(self.hub.idle()),
            self.process(other, &ends[1]).run_until(self.hub.idle())
        );
        one.and(other).unwrap();
        ends
    }

    async fn send<M: Message>(&self, id: &str, message: &M) {
        self.hub.sender().send_as(id.parse().unwrap(), "work", message).await.unwrap();
    }

    async fn open(&self) {
        for tab in names() {
            self.send(&format!("open-{tab}"), &Open { tab }).await;
        }
    }

    async fn close(&self) {
        for tab in names() {
            self.send(&format!("close-{tab}"), &Close { tab }).await;
        }
    }

    async fn add(&self) {
        for (id, tab) in adds() {
            self.send(&id, &Add { tab, item: id.clone() }).await;
        }
    }

    /// What was added to the tabs that are open.
    fn items(&self) -> Vec<String> {
        let mut items = Vec::new();
        for (_, entity) in self.store.inner().entities().iter().filter(|(_, entity)| !entity.completed) {
            let state = &entity.state[hapax::codec::FRAME_BYTES..];
            items.extend(serde_json::from_slice::<Tab>(state).unwrap().items);
        }
        items.sort();
        items
    }

    /// Ids of what was set aside, each for this reason.
    async fn letters(&self, reason: &str) -> Vec<String> {
        let mut ids = Vec::new();
        for letter in letters(self.store.inner()).await {
            assert!(letter.reason.starts_with(reason), "seed {}: {}", self.seed, letter.reason);
            ids.push(letter.envelope.message_id.to_string());
        }
        ids.sort();
        ids
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..TABS).map(|tab| format!("tab-{tab}"))
}

/// Ids of what is added, with the tab.
fn adds() -> Vec<(String, String)> {
    let mut adds: Vec<_> =
        names().flat_map(|tab| (0..ITEMS).map(move |item| (format!("add-{tab}-{item}"), tab.clone()))).collect();
    adds.sort();
    adds
}

fn ids() -> Vec<String> {
    adds().into_iter().map(|(id, _)| id).collect()
}

const MISSING: &str = "there is no such saga, and this message may not start one";
const COMPLETE: &str = "the saga is complete";

const DROPS_MISSING: Program = |registry| tabs(registry).when_missing(Missing::Drop);
const SETS_MISSING_ASIDE: Program = |registry| tabs(registry).when_missing(Missing::DeadLetter);
const RETRIES_MISSING: Program = tabs;
const DROPS_LATE: Program = |registry| tabs(registry).when_completed(Completed::Drop);
const SETS_LATE_ASIDE: Program = tabs;
/// A later version, for which there need be no saga.
const STARTS_BY_ADD: Program = |registry| registry.starts::<Open>().starts::<Add>().handles::<Close>();

#[tokio::test(start_paused = true)]
async fn what_has_no_saga_ends_as_the_policy_says_on_a_bad_day_in_two_processes() {
    for (program, aside) in [(DROPS_MISSING, false), (SETS_MISSING_ASIDE, true), (RETRIES_MISSING, true)] {
        for seed in 0..10 {
            let case = Case::on_a_bad_day(seed);
            case.add().await;
            let ends = case.run(program, program).await;
            assert!(case.store.inner().entities().is_empty(), "seed {seed}: nothing is left of it");
            let wanted = if aside { ids() } else { Vec::new() };
            assert_eq!(case.letters(MISSING).await, wanted, "seed {seed}");
            if !aside {
                let dropped = &ends[0].that_were(Ending::Dropped) | &ends[1].that_were(Ending::Dropped);
                assert_eq!(dropped.into_iter().collect::<Vec<_>>(), ids(), "seed {seed}: not in silence");
            }
        }
    }
}

/// Copies of what was handled before the end are copies still: they are no letters.
#[tokio::test(start_paused = true)]
async fn what_comes_after_the_end_ends_as_the_policy_says_on_a_bad_day_in_two_processes() {
    for (program, aside) in [(DROPS_LATE, false), (SETS_LATE_ASIDE, true)] {
        for seed in 0..10 {
            let case = Case::on_a_bad_day(seed);
            case.open().await;
            case.run(program, program).await;
            case.close().await;
            case.run(program, program).await;
            let before = case.store.inner().entities();
            assert!(before.len() == TABS && before.iter().all(|(_, entity)| entity.completed), "seed {seed}");
            case.add().await;
            case.open().await;
            case.close().await;
            let ends = case.run(program, program).await;
            assert_eq!(case.store.inner().entities(), before, "seed {seed}: an end is an end");
            let wanted = if aside { ids() } else { Vec::new() };
            assert_eq!(case.letters(COMPLETE).await, wanted, "seed {seed}");
            if !aside {
                let dropped = &ends[0].that_were(Ending::Dropped) | &ends[1].that_were(Ending::Dropped);
                assert_eq!(dropped.into_iter().collect::<Vec<_>>(), ids(), "seed {seed}: not in silence");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_the_start_waits_for_it_and_is_handled_once_on_a_bad_day_in_two_processes() {
    for seed in 0..10 {
        let case = Case::on_a_bad_day(seed);
        case.add().await;
        let opened = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert!(case.items().is_empty(), "seed {seed}");
            case.open().await;
        };
        tokio::join!(opened, case.run(RETRIES_MISSING, RETRIES_MISSING));
        assert_eq!(case.items(), ids(), "seed {seed}");
        assert!(case.letters("").await.is_empty(), "seed {seed}");
    }
}

/// Goal: what is judged to have no saga has none. Method: it comes with what starts the saga, and two processes have them, on loads that may be old;
/// what has had no effect was said to be dropped.
#[tokio::test(start_paused = true)]
async fn what_comes_with_the_start_is_handled_once_or_dropped_and_never_lost_in_silence() {
    let (mut handled, mut lost) = (0, 0);
    for seed in 0..20 {
        let case = Case::on_a_bad_day(seed);
        case.add().await;
        case.open().await;
        let ends = case.run(DROPS_MISSING, DROPS_MISSING).await;
        let items = case.items();
        let dropped = &ends[0].that_were(Ending::Dropped) | &ends[1].that_were(Ending::Dropped);
        for id in ids() {
            let times = items.iter().filter(|item| **item == id).count();
            assert!(times == 1 || times == 0 && dropped.contains(&id), "seed {seed}: {id} {times} times");
            handled += times;
            lost += 1 - times;
        }
        assert!(case.letters("").await.is_empty(), "seed {seed}");
    }
    assert!(handled > 0 && lost > 0, "{handled} handled and {lost} dropped");
}

#[tokio::test(start_paused = true)]
async fn of_two_programs_whose_policies_differ_each_message_has_the_end_that_one_of_them_says() {
    for (drops, sets_aside, reason) in
        [(DROPS_MISSING, SETS_MISSING_ASIDE, MISSING), (DROPS_LATE, SETS_LATE_ASIDE, COMPLETE)]
    {
        for case in (0..10).map(Case::on_a_bad_day).chain([Case::on_a_good_day()]) {
            if reason == COMPLETE {
                case.open().await;
                case.run(drops, sets_aside).await;
                case.close().await;
                case.run(drops, sets_aside).await;
            }
            case.add().await;
            let ends = case.run(drops, sets_aside).await;
            assert!(case.items().is_empty(), "seed {}", case.seed);
            let dropped = ends[0].that_were(Ending::Dropped);
            let aside: BTreeSet<_> = case.letters(reason).await.into_iter().collect();
            assert_eq!((&dropped | &aside).into_iter().collect::<Vec<_>>(), ids(), "seed {}", case.seed);
            // Where nothing is given twice, nothing has two ends.
            if case.drops == 0.0 {
                assert!(dropped.is_disjoint(&aside) && !dropped.is_empty() && !aside.is_empty(), "{dropped:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_old_program_has_no_saga_for_the_new_one_beside_it_starts_once() {
    for seed in 0..10 {
        let case = Case::on_a_bad_day(seed);
        case.add().await;
        case.run(RETRIES_MISSING, STARTS_BY_ADD).await;
        assert_eq!(case.items(), ids(), "seed {seed}");
        assert!(case.letters("").await.is_empty(), "seed {seed}");
    }
}
