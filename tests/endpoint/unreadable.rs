//! Messages whose entity this program cannot read, as in a rolling upgrade: an operator hears of them, and the log is not full of them.

use std::{sync::Arc, time::Duration};

use hapax::{
    InProcess, Memory,
    entity::{Entity, Expected},
    ids::{EntityKey, SagaKey, Scope},
    ports::{EntityStore, Saved},
};
use hapax_tests::LogLines;
use tokio::{sync::oneshot, time::sleep};

use crate::work::{Log, endpoint, letters, send, task};

/// Goal: of many that wait one is warned of at once, then one a minute, with how many were not. Method: states that no program can read, and a
/// message for each; in two and a half minutes of paused time each comes some thirty times.
#[tokio::test(start_paused = true)]
async fn of_messages_that_wait_until_what_is_stored_can_be_read_one_a_minute_is_warned_of() {
    const KEYS: u32 = 100;
    let (store, hub, logged) = (Memory::new(), InProcess::new("unreadable"), LogLines::here());
    let scope = Arc::new(Scope { endpoint: "work".parse().unwrap(), saga: "worker".parse().unwrap() });
    for number in 0..KEYS {
        let key = EntityKey::new(scope.clone(), SagaKey::parse(format!("key-{number}")).unwrap());
        let entity = Entity { state: "of another version".into(), commits: 1, ..Entity::default() };
        let saved = store.save(&key, &Expected::Absent, &entity, &[]).await.unwrap();
        assert!(matches!(saved, Saved::At(_)), "{saved:?}");
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let work = endpoint(&store, hub.clone(), &Log::default()).start().await.unwrap();
    let running = tokio::spawn(work.run_until(stopped));
    for number in 0..KEYS {
        send(&hub, &task(&format!("key-{number}"), &format!("task-{number}"))).await;
    }
    sleep(Duration::from_secs(150)).await;
    let warned = logged.with("waits until what is stored can be read");
    let told: Vec<bool> = warned.iter().map(|line| line.contains("untold=0")).collect();
    assert_eq!(told, [true, false, false], "{warned:?}");
    assert_eq!(hub.backlog(&"work".parse().unwrap()), KEYS as usize, "all of them wait");
    assert_eq!(letters(&store).await, []);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
