//! Passes wait while the stores cannot be reached, give up, and go on.

use super::{
    state::{PROBE_FIRST, PROBE_LONGEST, Watched},
    *,
};
use crate::{
    ids::{SagaKey, Scope},
    sync::explored::{Timers, all, block_on, exhaust, explore, resting, spawn},
};

#[derive(Debug)]
struct Grants;

#[async_trait]
impl Backoff for Grants {
    async fn pause(&self, _: Cause, _: u32) -> Granted {
        Granted::Try
    }
}

#[derive(Debug)]
struct Unheard;

impl Metrics for Unheard {
    fn observe(&self, _: Event<'_>) {}
}

fn key(number: usize) -> EntityKey {
    let scope = Scope { endpoint: "shop".parse().expect("a name"), saga: "order".parse().expect("a name") };
    EntityKey::new(Arc::new(scope), SagaKey::parse(format!("{number}")).expect("a key"))
}

fn closed() -> Arc<Circuit> {
    Arc::new(Circuit::new(Arc::new(Grants), Arc::new(Unheard)))
}

fn open() -> Arc<Circuit> {
    let circuit = closed();
    for number in 0..ENTITIES_MIN {
        circuit.observe(Event::Retried(&key(number), Cause::Unavailable));
    }
    assert!(circuit.is_open());
    circuit
}

fn reading(state: &State) -> &Watched {
    &state.steps[Step::Read as usize]
}

async fn waits(circuit: Arc<Circuit>) -> Granted {
    circuit.pause(Cause::Unavailable, 1).await
}

/// Timers of tries and of the spread end; who waits never gives up by itself.
fn nobody_gives_up() -> Timers {
    Timers::up_to(PROBE_LONGEST)
}

/// Somebody tries, and that takes long: who waits can go on only by being told.
fn a_store_answers(waiters: usize) {
    let circuit = open();
    let turn = block_on(circuit.turn.acquire()).expect("it is never closed");
    let waiting: Vec<_> = (0..waiters).map(|_| spawn(waits(circuit.clone()))).collect();
    circuit.observe(Event::Handled(&key(0)));
    for waiting in waiting {
        assert_eq!(block_on(waiting).expect("it ends"), Granted::Try);
    }
    assert!(!circuit.is_open());
    drop(turn);
}

#[test]
fn all_who_wait_go_on_once_a_store_has_answered() {
    let _timers = nobody_gives_up();
    exhaust(|| a_store_answers(1));
    explore(|| a_store_answers(3));
}

#[test]
fn while_no_store_answers_one_after_the_other_has_its_turn_to_try() {
    let _timers = nobody_gives_up();
    explore(|| {
        let circuit = open();
        let tasks = (0..3).map(|_| {
            let circuit = circuit.clone();
            async move {
                let granted = waits(circuit).await;
                assert!(resting() <= 1, "two rest before a try");
                granted
            }
        });
        let watching = spawn(async {
            for _ in 0..4 {
                shuttle::future::yield_now().await;
                assert!(resting() <= 1, "two rest before a try");
            }
        });
        assert_eq!(all(tasks), [Granted::Try; 3]);
        block_on(watching).expect("it ends");
        assert!(circuit.is_open());
        assert_eq!(circuit.state().probes, 3);
    });
}

/// By its own limit, or since its future was dropped, at any moment: as it waits for its turn, as it is given it, and in it.
#[test]
fn who_gives_up_passes_its_turn_on() {
    let _timers = nobody_gives_up();
    explore(|| {
        let circuit = open();
        let patient = spawn(waits(circuit.clone()));
        let tasks = (0..2).map(|_| timeout(PROBE_FIRST, waits(circuit.clone())));
        drop(all(tasks));
        assert_eq!(block_on(patient).expect("it ends"), Granted::Try);
        assert_eq!(circuit.turn.available_permits(), 1);
        assert_eq!(circuit.state().waiting, 0);
    });
}

/// Nothing that came before the answer opens it afterwards, nor does it stay open.
#[test]
fn it_is_not_open_when_a_store_has_just_answered() {
    fn is_wrong(circuit: &Circuit) -> bool {
        // In this order, in case this thread rests meanwhile.
        circuit.is_open() && has_answered(circuit)
    }
    /// Within `QUIET`, or since the last failure.
    fn has_answered(circuit: &Circuit) -> bool {
        let (state, flags) = (circuit.state(), circuit.flags.load(Ordering::Relaxed));
        flags & Step::Read.bit() != 0 || reading(&state).answered.is_some_and(|answered| answered.elapsed() < QUIET)
    }
    explore(|| {
        let circuit = closed();
        let failing: Vec<_> = (0..ENTITIES_MIN)
            .map(|number| {
                let circuit = circuit.clone();
                spawn(async move { circuit.observe(Event::Retried(&key(number), Cause::Unavailable)) })
            })
            .collect();
        let answering = {
            let circuit = circuit.clone();
            spawn(async move { circuit.observe(Event::Handled(&key(0))) })
        };
        let turning = {
            let circuit = circuit.clone();
            spawn(async move { circuit.turned() })
        };
        block_on(answering).expect("it ends");
        assert!(!is_wrong(&circuit));
        failing.into_iter().for_each(|failing| block_on(failing).expect("it ends"));
        assert!(!is_wrong(&circuit));
        block_on(turning).expect("it ends");
        assert!(has_answered(&circuit));
        let state = circuit.state();
        assert!(reading(&state).failing.len() <= ENTITIES_MIN);
        // Or an answer would clear nothing.
        assert_eq!(circuit.flags.load(Ordering::Relaxed) & TROUBLED != 0, state.is_troubled());
    });
}

/// Reads fail, and then writes do; both are answered at the same time, in either order.
#[test]
fn all_who_wait_go_on_once_the_last_step_is_taken() {
    let _timers = nobody_gives_up();
    explore(|| {
        let circuit = open();
        let not_saved = |number| circuit.failed(Step::Save, &key(number));
        (0..ENTITIES_MIN).for_each(not_saved);
        assert_eq!(circuit.troubles(), [Step::Read.trouble(), Step::Save.trouble()]);
        let turn = block_on(circuit.turn.acquire()).expect("it is never closed");
        let waiting = spawn(waits(circuit.clone()));
        let answering = [Step::Read, Step::Save].map(|step| {
            let circuit = circuit.clone();
            spawn(async move { circuit.answered(step) })
        });
        answering.into_iter().for_each(|answering| block_on(answering).expect("it ends"));
        assert_eq!(block_on(waiting).expect("it ends"), Granted::Try);
        assert!(!circuit.is_open());
        drop(turn);
    });
}

/// Whoever waits as it lapses is either counted, and it stays open, or goes on at once.
#[test]
fn it_lapses_only_while_nobody_waits() {
    let _timers = nobody_gives_up();
    explore(|| {
        let circuit = open();
        let turn = block_on(circuit.turn.acquire()).expect("it is never closed");
        let waiting = spawn(waits(circuit.clone()));
        let looking = {
            let circuit = circuit.clone();
            spawn(async move {
                // As if time had passed.
                circuit.state().steps[Step::Read as usize].open = Instant::now().checked_sub(LAPSES_MIN * 2);
                circuit.is_open()
            })
        };
        let stays = block_on(looking).expect("it ends");
        assert_eq!(circuit.state().waiting, usize::from(stays));
        drop(turn);
        assert_eq!(block_on(waiting).expect("it ends"), Granted::Try);
        assert!(!circuit.is_open() && circuit.troubles().is_empty());
        assert_eq!(circuit.flags.load(Ordering::Relaxed) & TROUBLED, 0);
    });
}

/// Of an endpoint that handles some in an inbox, by turns as these are away and those.
#[test]
fn what_an_inbox_tells_is_not_of_the_stores() {
    explore(|| {
        let inbox = |number: usize| {
            let scope = Scope { endpoint: "shop".parse().expect("a name"), saga: "mail".parse().expect("a name") };
            EntityKey::new(Arc::new(scope), SagaKey::parse(format!("{number}")).expect("a key"))
        };
        let circuit =
            || Circuit::new(Arc::new(Grants), Arc::new(Unheard)).inboxes(vec!["mail".parse().expect("a name")]);
        let away = |circuit: &Circuit, key: &dyn Fn(usize) -> EntityKey| {
            (0..ENTITIES_MIN).for_each(|number| circuit.observe(Event::Retried(&key(number), Cause::Unavailable)));
        };
        // It neither keeps it from opening nor closes it.
        let handles = circuit();
        handles.observe(Event::Handled(&inbox(0)));
        away(&handles, &key);
        handles.observe(Event::Handled(&inbox(0)));
        handles.observe(Event::Duplicate(&inbox(0)));
        assert_eq!(handles.troubles(), [Step::Read.trouble()]);
        // Nor do the stores tell of it.
        let is_away = circuit();
        away(&is_away, &inbox);
        away(&is_away, &key);
        assert_eq!(is_away.troubles(), [Step::Read.trouble(), Step::Inbox.trouble()]);
        assert!(!is_away.takes_sweeps());
        is_away.observe(Event::Handled(&key(0)));
        assert_eq!(is_away.troubles(), [Step::Inbox.trouble()]);
        assert!(is_away.takes_sweeps());
        // Both are back at the same time.
        let both = Arc::new(circuit());
        away(&both, &inbox);
        away(&both, &key);
        let answering = [key(0), inbox(0)].map(|key| {
            let both = both.clone();
            spawn(async move { both.observe(Event::Handled(&key)) })
        });
        answering.into_iter().for_each(|answering| block_on(answering).expect("it ends"));
        assert!(!both.is_open());
    });
}
