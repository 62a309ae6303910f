//! Goal: a message that kills its process is set aside in the end, and no other with it, whatever the order. Method: its handler has the
//! test drop the whole endpoint, with all that it holds; a new one begins, as a supervisor would have it, until nothing is left.

use std::{sync::Arc, time::Duration};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, Saga, deliver::Recoverability,
    transports::in_process::Faults,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{
    reluctant::{Reluctant, Settling},
    work::{done, letters, settings},
};

/// The innocent, each with a key of its own.
const INNOCENT: usize = 50;
/// Longer than a handler here takes, and short beside all that is waited for.
const LEASE: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    key: String,
    kills: bool,
}

impl Message for Job {
    const TYPE: &'static str = "crashes.job";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Desk {
    done: Vec<String>,
}

impl Saga for Desk {
    const NAME: &'static str = "desk";
}

/// Tells the test that the process is to die.
struct Trigger(Arc<Notify>);

impl Handle<Job> for Desk {
    fn correlate(job: &Job) -> Correlation<'_> {
        (&job.key).into()
    }

    async fn handle(&mut self, job: Job, cx: &mut Context) -> Result<(), HandlerError> {
        if job.kills {
            cx.get::<Trigger>()?.0.notify_one();
            std::future::pending::<()>().await;
        }
        // So that it is at work when another one kills the process.
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.done.push(job.key);
        Ok(())
    }
}

/// Runs endpoints one after the other until nothing is left; answers how many there were.
async fn run(broker: &Reluctant, hub: &InProcess, store: &Memory) -> u32 {
    let killed = Arc::new(Notify::new());
    for processes in 1.. {
        let process = Endpoint::builder("work")
            .store(store.clone())
            .transport(broker.clone())
            .with(Trigger(killed.clone()))
            .settings(settings())
            .saga::<Desk>(|desk| desk.starts::<Job>());
        tokio::select! {
            ended = process.run_until(hub.idle()) => {
                ended.unwrap();
                return processes;
            }
            () = killed.notified() => {}
        }
        assert!(processes < 100, "it never ends");
    }
    unreachable!("it returns")
}

async fn send(hub: &InProcess, name: &str, kills: bool) {
    let job = Job { key: format!("key-{name}"), kills };
    hub.sender().send_as(name.parse().unwrap(), "work", &job).await.unwrap();
}

fn slowly(hub: &InProcess) -> Reluctant {
    Reluctant::new(hub, Settling::After(Duration::from_millis(1)))
}

async fn check(broker: &Reluctant, hub: &InProcess, store: &Memory, bad: usize) {
    let processes = run(broker, hub, store).await;
    let letters = letters(store).await;
    let ids: Vec<String> = letters.iter().map(|letter| letter.envelope.message_id.to_string()).collect();
    assert_eq!(ids, ["bad"], "set aside, with the bad one at {bad}");
    assert!(letters[0].reason.starts_with("poison"), "{}", letters[0].reason);
    assert_eq!(processes, Recoverability::default().poison_above + 1, "it was given as often as it may be");
    for n in 0..INNOCENT {
        assert_eq!(done(store, "desk", &format!("key-{n}")), [format!("key-{n}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_makes_its_own_message_poison_and_no_other() {
    for bad in [0, INNOCENT / 2, INNOCENT] {
        let hub = InProcess::with_faults("crashes", LEASE, Faults::default());
        let store = Memory::new();
        for n in 0..=INNOCENT {
            if n == bad {
                send(&hub, "bad", true).await;
            }
            if n < INNOCENT {
                send(&hub, &n.to_string(), false).await;
            }
        }
        check(&slowly(&hub), &hub, &store, bad).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_makes_no_other_message_poison_in_any_order() {
    for seed in 0..10 {
        let faults = Faults { seed, reorder: 0.5, delay_max: 2 * LEASE, ..Faults::default() };
        let hub = InProcess::with_faults("crashes", LEASE, faults);
        let store = Memory::new();
        send(&hub, "bad", true).await;
        for n in 0..INNOCENT {
            send(&hub, &n.to_string(), false).await;
        }
        check(&slowly(&hub), &hub, &store, 0).await;
    }
}

/// The worst order: whoever is given beside it goes back while it is at hand.
#[tokio::test(start_paused = true)]
async fn a_crash_loop_charges_nobody_who_is_on_the_way_back() {
    let hub = InProcess::with_faults("crashes", LEASE, Faults::default());
    let store = Memory::new();
    send(&hub, "bad", true).await;
    for n in 0..INNOCENT {
        send(&hub, &n.to_string(), false).await;
    }
    check(&slowly(&hub).giving_first("bad"), &hub, &store, 0).await;
}

/// Two processes at a time, each of which dies of the message when it is given to it; counts and what is handled alone are of each.
#[tokio::test(start_paused = true)]
async fn a_crash_loop_of_two_processes_makes_no_other_message_poison() {
    for seed in 0..10 {
        let faults = Faults { seed, reorder: 0.5, delay_max: 2 * LEASE, ..Faults::default() };
        let hub = InProcess::with_faults("crashes", LEASE, faults);
        let store = Memory::new();
        send(&hub, "bad", true).await;
        for n in 0..INNOCENT {
            send(&hub, &n.to_string(), false).await;
        }
        let (broker, other) = (slowly(&hub), slowly(&hub));
        let processes = tokio::join!(run(&broker, &hub, &store), run(&other, &hub, &store));
        let letters = letters(&store).await;
        let ids: Vec<String> = letters.iter().map(|letter| letter.envelope.message_id.to_string()).collect();
        assert_eq!(ids, ["bad"], "seed {seed}");
        assert!(letters[0].reason.starts_with("poison"), "seed {seed}: {}", letters[0].reason);
        let died = processes.0 + processes.1 - 2;
        assert_eq!(died, Recoverability::default().poison_above, "seed {seed}: it was given as often as it may be");
        for n in 0..INNOCENT {
            assert_eq!(done(&store, "desk", &format!("key-{n}")), [format!("key-{n}")], "seed {seed}");
        }
    }
}
