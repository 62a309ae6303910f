//! Goal: whoever dies while he gives thousands of letters to their endpoint again leaves them to another, who goes on: each is handled once,
//! and of each entity they are sent in their order. Method: his future is dropped at a random send, before or after the broker has it, again
//! and again, over a hub that makes copies and loses acks, beside endpoints that handle what is sent.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    InProcess, Memory,
    endpoint::office::Filter,
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, Refused},
    transports::in_process::Faults,
};
use tokio::sync::{Notify, watch};

use crate::{
    office::{add, numbered},
    replayed::{KEYS, MANY, in_order, number},
    work::{Log, WayOut, done, endpoint, letters},
};

const LEASE: Duration = Duration::from_secs(5);
/// Sends after which somebody dies, at most.
const LIVES_MAX: usize = 400;

/// A way out that dies at one of its sends, and notes what the broker has been given by anybody.
#[derive(Debug, Clone)]
struct Mortal {
    hub: InProcess,
    sent: Arc<Mutex<Vec<String>>>,
    /// Sends until then, and whether the broker has that one.
    dies: Arc<Mutex<(usize, bool)>>,
    dead: Arc<Notify>,
}

impl Mortal {
    async fn send(&self, outgoing: &Outgoing) -> Vec<Result<(), DispatchError>> {
        self.sent.lock().unwrap().push(outgoing.envelope.message_id.to_string());
        self.hub.dispatch(std::slice::from_ref(outgoing)).await
    }
}

#[async_trait]
impl Dispatcher for Mortal {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results = Vec::new();
        for outgoing in outgoing {
            let (left, is_sent) = {
                let mut dies = self.dies.lock().unwrap();
                dies.0 = dies.0.saturating_sub(1);
                *dies
            };
            if left > 0 || is_sent {
                results.extend(self.send(outgoing).await);
            }
            if left == 0 {
                self.dead.notify_one();
                pending::<()>().await;
            }
        }
        results
    }
}

/// Replays until nothing is left, one after the other; how many have died, and what was sent.
async fn replay(store: &Memory, hub: &InProcess, random: &mut fastrand::Rng) -> (usize, Vec<String>) {
    let sent = Arc::<Mutex<Vec<String>>>::default();
    for died in 0.. {
        let dies = Arc::new(Mutex::new((random.usize(1..=LIVES_MAX), random.bool())));
        let way = Mortal { hub: hub.clone(), sent: sent.clone(), dies, dead: Arc::default() };
        let desk = endpoint(store, WayOut(hub.clone(), way.clone()), &Log::default()).start().await.unwrap();
        let office = desk.dead_letter_office(format!("number {died}"));
        let filter = Filter::default();
        tokio::select! {
            outcome = office.retry_all(&filter) => {
                assert_eq!(outcome.unwrap().left, 0);
                let sent = sent.lock().unwrap().clone();
                return (died, sent);
            }
            () = way.dead.notified() => {}
        }
    }
    unreachable!("it returns")
}

#[tokio::test(start_paused = true)]
async fn another_goes_on_where_one_dies_among_thousands_of_letters_and_each_is_handled_once() {
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        let faults = Faults { seed, duplicates: 0.2, lost_acks: 0.1, delay_max: 4 * LEASE, ..Faults::default() };
        let (store, hub) = (Memory::new(), InProcess::with_faults("another", LEASE, faults));
        add(&store, numbered(MANY)).await;
        let (end, ended) = watch::channel(false);
        let log = Log::default();
        let process = || {
            let (mut ended, hub) = (ended.clone(), hub.clone());
            endpoint(&store, hub.clone(), &log).run_until(async move {
                drop(ended.wait_for(|ended| *ended).await);
                hub.idle().await;
            })
        };
        let replaying = async {
            let replayed = replay(&store, &hub, &mut random).await;
            end.send_replace(true);
            replayed
        };
        let ((died, sent), one, two) = tokio::join!(replaying, process(), process());
        one.unwrap();
        two.unwrap();

        assert!(died >= MANY / LIVES_MAX, "seed {seed}: {died} have died");
        assert_eq!(letters(&store).await.len(), 0, "seed {seed}");
        for (index, key) in KEYS.into_iter().enumerate() {
            let mut sent: Vec<_> = sent.iter().filter(|name| number(name) % KEYS.len() == index).cloned().collect();
            sent.dedup(); // What nobody has confirmed is sent again before any other.
            assert_eq!(sent, in_order(index, MANY), "seed {seed}: in their order, whoever sends");
            let mut handled = done(&store, "worker", key);
            handled.sort_by_key(|name| number(name));
            assert_eq!(handled, in_order(index, MANY), "seed {seed}: each once");
        }
    }
}
