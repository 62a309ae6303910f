//! Evidence of offsets, of two processes at a time: partitions change hands while acks get lost, entries are evicted meanwhile, and every effect is
//! there once. The stores' clocks are not paused.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hapax::{
    Memory, PartitionedLog,
    endpoint::{EndpointBuilder, Eviction},
    transports::partitioned_log::PARTITIONS,
};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    evicting::{Lossy, PATIENCE, RETENTION, settings, until},
    work::{Log, done, endpoint, letters, task},
};

const KEYS: usize = 7;
/// A few tasks come, and a process may end, so often.
const TURN: Duration = Duration::from_millis(100);
/// Who loses acks, for so many turns each, longer than the retention: what both have settled in vain comes later than that.
const LOSING: [[bool; 2]; 6] =
    [[true, false], [true, true], [false, true], [false, false], [true, true], [false, false]];
const TURNS: u32 = 13;

/// A process that may die.
pub(crate) struct Process {
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Process {
    /// It has subscribed when this returns.
    pub(crate) async fn start(endpoint: EndpointBuilder) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let endpoint = endpoint.start().await.unwrap();
        Self { stop, running: tokio::spawn(async move { endpoint.run_until(stopped).await.unwrap() }) }
    }

    /// It ends at whatever it awaits.
    pub(crate) async fn die(self) {
        self.running.abort();
        assert!(self.running.await.is_err_and(|error| error.is_cancelled()), "it has ended before");
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.running.await.unwrap();
    }
}

/// Goal: what is given again in another process is recognised, though it was handled longer ago than the retention, and entries are evicted all the
/// while. Method: the log gives again what is settled behind a gap whenever a receiver is gone, and an ack that is lost is a gap.
#[tokio::test]
async fn by_evidence_every_effect_is_there_once_although_partitions_change_hands_and_acks_get_lost() {
    join_all((0..3).map(hands_change)).await;
}

async fn hands_change(seed: u64) {
    assert!(RETENTION < TURN * TURNS && PARTITIONS.get() > 1);
    let mut random = fastrand::Rng::with_seed(seed);
    let (logs, store, log) = (PartitionedLog::new(format!("hands-{seed}")), Memory::new(), Log::default());
    let lossy = [(); 2].map(|()| Lossy::over(logs.clone()).0);
    let start = async |of: usize| {
        let endpoint = endpoint(&store, lossy[of].clone(), &log).settings(settings());
        Process::start(endpoint.eviction(Eviction::Evidence)).await
    };
    let mut processes = [start(0).await, start(1).await];
    let all_done = || {
        let mut all: Vec<String> = (0..KEYS).flat_map(|key| done(&store, "worker", &format!("key-{key}"))).collect();
        all.sort();
        all
    };
    let (mut names, mut ended, mut evicted) = (Vec::new(), 0, false);
    for losing in LOSING {
        lossy.iter().zip(losing).for_each(|(lossy, losing)| lossy.loses(losing));
        let (begun, mut turns) = (Instant::now(), 0);
        // Where none gets lost it goes on until something was evicted, on a machine that is slow.
        while turns < TURNS || losing == [false; 2] && !evicted && begun.elapsed() < PATIENCE {
            turns += 1;
            for _ in 0..random.usize(1..5) {
                let name = format!("task-{:04}", names.len());
                let task = task(&format!("key-{}", random.usize(..KEYS)), &name);
                logs.sender().send_as(name.parse().unwrap(), "work", &task).await.unwrap();
                names.push(name);
            }
            if random.u8(..3) == 0 {
                let of = random.usize(..2);
                let before = std::mem::replace(&mut processes[of], start(of).await);
                if random.bool() {
                    before.die().await
                } else {
                    before.stop().await
                }
                ended += 1;
            }
            sleep(TURN).await;
            evicted |= store.dedup_entries() < all_done().len();
        }
    }
    assert!(evicted && ended > 10, "seed {seed}: it was another day: {evicted}, {ended}");
    for process in processes {
        process.stop().await; // What they have settled in vain is given again.
    }
    let processes = [start(0).await, start(1).await];
    timeout(PATIENCE, logs.idle()).await.unwrap_or_else(|_| panic!("seed {seed}: never idle"));
    assert_eq!(all_done(), names, "seed {seed}");
    until("forgotten", || store.dedup_entries() == 0).await;
    assert_eq!((logs.backlog(&"work".parse().unwrap()), letters(&store).await), (0, vec![]), "seed {seed}");
    for process in processes {
        process.stop().await;
    }
}
