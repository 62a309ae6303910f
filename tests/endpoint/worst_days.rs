//! The audit beside two processes of an endpoint on their worst day: it is silent, and has looked.

use std::time::Duration;

use hapax::{
    InProcess, Memory, Sqlite,
    deliver::{Recoverability, Tries},
    endpoint::{Audit, AuditReport, EndpointHandle, Settings},
    metrics::Invariant,
    testing::Drops,
    transports::in_process::Faults,
};
use hapax_model::faults::Faulty;
use hapax_tests::Scratch;
use tokio::{sync::oneshot, time::sleep};

use crate::{
    audit::{SECOND, THOROUGH, process},
    faults::bad_world,
    work::{Cut, Listener, Log, Task, done, send, settings, task},
};

const TASKS: usize = 3000;
const KEYS: usize = 60;

async fn send_all(hub: &InProcess, tasks: std::ops::Range<usize>) {
    for number in tasks {
        let key = format!("key-{}", number % KEYS);
        send(hub, &Task { tells: number % 2 == 0, ..task(&key, &format!("task-{number}")) }).await;
    }
}

/// Nothing was found, in spite of many looks.
#[track_caller]
fn is_silent(reports: &[AuditReport], least: u64) {
    for report in reports {
        assert_eq!((report.violations(), &report.last), (0, &None), "{report:#?}");
    }
    for invariant in Invariant::ALL {
        let looked_at = looked_at(reports, invariant);
        assert!(looked_at >= least, "{invariant} was looked at {looked_at} times: {reports:#?}");
        println!("{invariant}: {looked_at}");
    }
}

fn looked_at(reports: &[AuditReport], invariant: Invariant) -> u64 {
    reports.iter().map(|report| report.of(invariant).looked_at).sum()
}

/// Of the invariant that was looked at most seldom.
fn looked_at_least(reports: &[AuditReport]) -> u64 {
    Invariant::ALL.into_iter().map(|invariant| looked_at(reports, invariant)).min().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_on_its_worst_day_in_memory_has_no_violation() {
    let seeds = if std::env::var_os("HAPAX_THOROUGH").is_some() { 10 } else { 1 };
    for seed in 0..seeds {
        let world = bad_world(seed, 400);
        let store = Faulty::new(Memory::new(), world);
        let faults = Faults { seed, duplicates: 0.2, reorder: 0.2, delay_max: 20 * SECOND, lost_acks: 0.1 };
        let hub = InProcess::with_faults("worst-day", 5 * SECOND, faults);
        let (cut, log, drops) = (Cut::new(&hub), Log::default(), Drops::new(seed, 0.2));
        let (mut stops, mut running, mut handles) = (Vec::new(), Vec::new(), Vec::<EndpointHandle>::new());
        for _ in 0..2 {
            let endpoint = process(store.clone(), &cut, &log, settings(), &drops, THOROUGH)
                .handler(Listener)
                .start()
                .await
                .unwrap();
            let (stop, stopped) = oneshot::channel::<()>();
            stops.push(stop);
            handles.push(endpoint.handle());
            running.push(tokio::spawn(endpoint.run_until(stopped)));
        }
        // The way out is cut for a while, so that work is left to the sweepers.
        send_all(&hub, 0..TASKS / 2).await;
        sleep(120 * SECOND).await;
        cut.mend();
        send_all(&hub, TASKS / 2..TASKS).await;
        hub.idle().await;
        sleep(120 * SECOND).await;
        let mut reports = Vec::new();
        for handle in &handles {
            // The plan may refuse what the audit asks for, too.
            let report = loop {
                if let Ok(report) = handle.audit_once().await {
                    break report;
                }
            };
            reports.push(report);
        }
        for stop in stops {
            let _ = stop.send(());
        }
        for running in running {
            running.await.unwrap().unwrap();
        }
        let all: usize = (0..KEYS).map(|key| done(store.inner(), "worker", &format!("key-{key}")).len()).sum();
        assert_eq!(all, TASKS, "seed {seed}");
        assert!(drops.dropped() > 100, "seed {seed}: {} passes were dropped", drops.dropped());
        assert!(
            reports.iter().any(|report| report.failed > 0),
            "the plan refuses what an audit asks for, too: {reports:#?}"
        );
        is_silent(&reports, 100);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_on_its_worst_day_in_sqlite_has_no_violation() {
    const MS: Duration = Duration::from_millis(1);
    const DROPPED: u64 = 50;
    const LOOKED_AT: u64 = 100;
    let scratch = Scratch::new("audit");
    let store = Sqlite::open(scratch.file("audited.db")).await.unwrap();
    let faults = Faults { seed: 7, duplicates: 0.2, reorder: 0.2, delay_max: 100 * MS, lost_acks: 0.1 };
    let hub = InProcess::with_faults("worst-day", 300 * MS, faults);
    let (cut, log, drops) = (Cut::new(&hub), Log::default(), Drops::new(7, 0.1));
    let hasty = Settings {
        sweep_age: 20 * MS,
        sweep_interval: 20 * MS,
        recoverability: Recoverability { unsent: Tries::new(2, MS, 5 * MS), ..Recoverability::default() },
        ..Settings::default()
    };
    let audit = Audit { interval: 20 * MS, looks_max: 30, watched_max: 300 };
    let (mut stops, mut running, mut handles) = (Vec::new(), Vec::new(), Vec::<EndpointHandle>::new());
    for _ in 0..2 {
        let endpoint =
            process(store.clone(), &cut, &log, hasty.clone(), &drops, audit).handler(Listener).start().await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        stops.push(stop);
        handles.push(endpoint.handle());
        running.push(tokio::spawn(endpoint.run_until(stopped)));
    }
    send_all(&hub, 0..TASKS / 10).await;
    while handles[0].audit_once().await.unwrap().waiting.entries == 0 {}
    cut.mend();
    // How many passes and looks there are depends on how much comes together, and so on the machine: more is sent until there were
    // enough of both.
    let (mut sent, mut reports) = (TASKS / 10, Vec::new());
    while sent < TASKS || (sent < 10 * TASKS && (drops.dropped() <= DROPPED || looked_at_least(&reports) < LOOKED_AT)) {
        send_all(&hub, sent..sent + TASKS / 10).await;
        sent += TASKS / 10;
        hub.idle().await;
        reports.clear();
        for handle in &handles {
            // What a dropped pass has left behind may be under way to its end by the sweepers.
            while handle.audit_once().await.unwrap().waiting.entries > 0 {}
            reports.push(handle.audit_once().await.unwrap());
        }
    }
    for stop in stops {
        let _ = stop.send(());
    }
    for running in running {
        running.await.unwrap().unwrap();
    }
    assert!(drops.dropped() > DROPPED, "{} passes were dropped, of {sent} messages", drops.dropped());
    is_silent(&reports, LOOKED_AT);
}
