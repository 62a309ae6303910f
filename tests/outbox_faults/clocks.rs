//! Programs on hosts whose clocks are hours apart, beside a database with a third one.

use std::{path::PathBuf, process::Command, time::Duration};

use hapax::time::Timestamp;

use super::{
    audit::{PATIENCE, Seen},
    crew::{Worker, program},
    market::Market,
    shim::{StepClock, shim},
    shops::{OnPostgres, Shop},
};

const HOUR_MS: i64 = 3_600_000;

/// A host of its own, as far as its clock goes.
struct Host {
    shim: PathBuf,
    clock: StepClock,
    _scratch: hapax_tests::Scratch,
}

impl Host {
    fn off_by(hours: i64) -> Self {
        let scratch = hapax_tests::Scratch::new("outbox-clock");
        let (shim, clock) = (shim(scratch.folder()), StepClock::new(scratch.folder()));
        clock.set(hours * HOUR_MS);
        Self { shim, clock, _scratch: scratch }
    }

    fn program(&self) -> Command {
        let mut program = program();
        program.env("LD_PRELOAD", &self.shim).env("HAPAX_TEST_CLOCK", self.clock.path());
        program
    }
}

async fn programs_on_clocks_that_are_apart(mode: &str) {
    let mut market = Market::<OnPostgres>::open(mode == "ordered").await;
    let hosts = [Host::off_by(3), Host::off_by(-5), Host::off_by(0)];
    let folder = market.scratch.folder();
    let sells = |host: &Host| Worker::run_task(folder, ["sell", mode], &mut host.program());
    let mut crew: Vec<Worker> = hosts.iter().map(sells).collect();
    let mut seen = Seen::default();
    // The one that dies has leases, and those that outlive it have other clocks.
    while let Some(worker) = crew.pop() {
        let enough = seen.orders.len() + 100;
        while seen.orders.len() < enough {
            tokio::time::timeout(PATIENCE, seen.receive_some(&mut market.told)).await.expect("what is sold is told");
        }
        worker.kill();
    }
    let relay = Worker::run_task(folder, ["sell", &format!("{mode}-relay")], &mut hosts[1].program()).started().await;
    seen.receive_all(&mut market.told, &mut market.shop).await;
    seen.check(market.shop.sold().await, mode);
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status <> 1").await, 0);
    relay.stop();
}

#[tokio::test]
async fn hosts_with_clocks_hours_apart_lose_nothing_and_keep_nothing_back() {
    programs_on_clocks_that_are_apart("unordered").await;
}

#[tokio::test]
async fn hosts_with_clocks_hours_apart_keep_the_order() {
    programs_on_clocks_that_are_apart("ordered").await;
}

/// Due by the clock of the table; whoever stores and relays is hours ahead of it.
#[tokio::test]
async fn nothing_is_sent_before_its_time_by_a_host_that_is_hours_ahead() {
    let mut market = Market::<OnPostgres>::open(false).await;
    let host = Host::off_by(3);
    let due = Timestamp::now().after(Duration::from_secs(5));
    let mut program = host.program();
    program.env("HAPAX_TEST_DUE_MS", due.as_millis().to_string());
    let seller = Worker::run_task(market.scratch.folder(), ["sell", "unordered"], &mut program).started().await;
    let (mut looks, mut stored) = (0, 0);
    // The table knows first: who receives holds back what comes too early, and its clock is the table's here.
    while Timestamp::now().after(Duration::from_millis(500)) < due {
        let sent = market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status <> 0").await;
        assert_eq!(sent, 0, "sent {:?} before its time", due.since(Timestamp::now()));
        stored = market.shop.waiting().await;
        looks += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(looks > 20 && stored > 50, "void: {stored} stored, {looks} looks");
    let mut seen = Seen::default();
    tokio::time::timeout(PATIENCE, seen.receive_some(&mut market.told)).await.expect("what is due is told");
    assert!(Timestamp::now() >= due);
    seller.stop();
    let relay = Worker::selling(market.scratch.folder(), "unordered-relay").started().await;
    seen.receive_all(&mut market.told, &mut market.shop).await;
    seen.check(market.shop.sold().await, "unordered");
    relay.stop();
}

/// Whoever stores and relays takes it for expired; the table does not.
#[tokio::test]
async fn nothing_expires_early_by_a_host_that_is_hours_ahead() {
    let mut market = Market::<OnPostgres>::open(false).await;
    let (host, expires) = (Host::off_by(3), Timestamp::now().after(Duration::from_secs(3600)));
    let mut program = host.program();
    program.env("HAPAX_TEST_EXPIRES_MS", expires.as_millis().to_string());
    let seller = Worker::run_task(market.scratch.folder(), ["sell", "unordered"], &mut program).started().await;
    let mut seen = Seen::default();
    while seen.orders.len() < 100 {
        tokio::time::timeout(PATIENCE, seen.receive_some(&mut market.told)).await.expect("what is sold is told");
    }
    seller.stop();
    let relays = ["sell", "unordered-relay"];
    let relay = Worker::run_task(market.scratch.folder(), relays, &mut host.program()).started().await;
    seen.receive_all(&mut market.told, &mut market.shop).await;
    seen.check(market.shop.sold().await, "unordered");
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status <> 1").await, 0);
    relay.stop();
}

/// Whoever stores and relays takes it for good for hours yet; the table does not.
#[tokio::test]
async fn nothing_that_has_expired_is_sent_by_a_host_that_is_hours_behind() {
    let mut market = Market::<OnPostgres>::open(false).await;
    let (host, expires) = (Host::off_by(-5), Timestamp::now().as_millis() - 3_600_000);
    let mut program = host.program();
    program.env("HAPAX_TEST_EXPIRES_MS", expires.to_string());
    let seller = Worker::run_task(market.scratch.folder(), ["sell", "unordered"], &mut program).started().await;
    let ended = "SELECT count(*) FROM hapax.outbox WHERE status NOT IN (0, 1)";
    let ending = async { while market.shop.number(ended).await < 100 {} };
    tokio::time::timeout(PATIENCE, ending).await.expect("what has expired ends");
    seller.stop();
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status = 1").await, 0);
    assert!(market.told.is_empty(), "what has expired was told");
}
