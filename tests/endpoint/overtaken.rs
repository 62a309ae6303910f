//! What a failed message gives up while it rests: its place among the messages of its entity.

use std::time::Duration;

use hapax::{
    InProcess, Memory,
    deliver::{Recoverability, Tries},
    endpoint::Settings,
};
use tokio::{sync::oneshot, time::sleep};

use crate::work::{Log, Task, done, endpoint, letters, send, settings, task};

/// Longer than all that comes meanwhile.
const REST: Duration = Duration::from_secs(100);

/// Behind one that keeps failing its entity would stand still. It rests with the broker, so that it is the same with two processes.
#[tokio::test(start_paused = true)]
async fn while_a_failed_message_rests_later_ones_of_its_key_are_handled_and_it_comes_after_them() {
    for processes in [1, 2] {
        let (store, hub, log) = (Memory::new(), InProcess::new("overtaken"), Log::default());
        let recoverability = Recoverability { in_place: Tries::NONE, retry_delay: REST, ..Recoverability::default() };
        let (mut stops, mut running) = (Vec::new(), Vec::new());
        for _ in 0..processes {
            let settings = Settings { recoverability: recoverability.clone(), ..settings() };
            let endpoint = endpoint(&store, hub.clone(), &log).settings(settings).start().await.unwrap();
            let (stop, stopped) = oneshot::channel::<()>();
            running.push(tokio::spawn(endpoint.run_until(stopped)));
            stops.push(stop);
        }
        send(&hub, &Task { fails: 1, ..task("a", "first") }).await;
        send(&hub, &task("a", "beside")).await;
        sleep(REST / 10).await;
        assert_eq!((log.runs("worker", "first"), done(&store, "worker", "a")), (1, vec!["beside".to_owned()]));
        for late in ["late", "later"] {
            send(&hub, &task("a", late)).await;
            sleep(REST / 10).await;
            assert_eq!(done(&store, "worker", "a").last().map(String::as_str), Some(late), "{processes} processes");
        }
        assert_eq!((log.runs("worker", "first"), hub.backlog(&"work".parse().unwrap())), (1, 1), "it rests");
        hub.idle().await;
        assert_eq!(done(&store, "worker", "a"), ["beside", "late", "later", "first"], "{processes} processes");
        assert_eq!((log.runs("worker", "first"), letters(&store).await), (2, vec![]));
        stops.into_iter().for_each(|stop| stop.send(()).unwrap());
        for running in running {
            running.await.unwrap().unwrap();
        }
    }
}
