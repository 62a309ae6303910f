//! Programs on hosts whose clocks are hours apart, beside a database with a third one; and on one host whose clock is set, with a
//! database in a file there.

use std::{path::PathBuf, process::Command, time::Duration};

use hapax::time::Timestamp;

use super::{
    audit::{PATIENCE, Seen},
    crew::{Worker, program},
    market::Market,
    shim::{StepClock, shim},
    shops::{InFile, OnMySql, OnPostgres},
    sites::Site,
    upgrade::goes_on,
};

const HOUR_MS: i64 = 3_600_000;

macro_rules! clocks {
    ($($name:ident: $with:ident, $shop:ty $(, $mode:literal)?;)*) => {$(
        #[tokio::test]
        async fn $name() {
            $with::<$shop>($($mode)?).await;
        }
    )*};
}

clocks! {
    hosts_with_clocks_hours_apart_lose_nothing_and_keep_nothing_back_on_postgres: on_clocks_that_are_apart, OnPostgres, "unordered";
    hosts_with_clocks_hours_apart_lose_nothing_and_keep_nothing_back_on_mysql: on_clocks_that_are_apart, OnMySql, "unordered";
    hosts_with_clocks_hours_apart_keep_the_order_on_postgres: on_clocks_that_are_apart, OnPostgres, "ordered";
    hosts_with_clocks_hours_apart_keep_the_order_on_mysql: on_clocks_that_are_apart, OnMySql, "ordered";
    nothing_is_sent_before_its_time_on_postgres_by_a_host_that_is_hours_ahead: due, OnPostgres;
    nothing_is_sent_before_its_time_on_mysql_by_a_host_that_is_hours_ahead: due, OnMySql;
    nothing_expires_early_on_postgres_by_a_host_that_is_hours_ahead: expires_later, OnPostgres;
    nothing_expires_early_on_mysql_by_a_host_that_is_hours_ahead: expires_later, OnMySql;
    nothing_that_has_expired_is_sent_on_postgres_by_a_host_that_is_hours_behind: has_expired, OnPostgres;
    nothing_that_has_expired_is_sent_on_mysql_by_a_host_that_is_hours_behind: has_expired, OnMySql;

    a_host_whose_clock_is_set_loses_nothing_and_keeps_nothing_back_in_sqlite: on_a_clock_that_is_set, InFile, "unordered";
    a_host_whose_clock_is_set_keeps_the_order_in_sqlite: on_a_clock_that_is_set, InFile, "ordered";
}

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

async fn on_clocks_that_are_apart<S: Site>(mode: &str) {
    let mut market = Market::<S>::open(mode == "ordered").await;
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

/// All of them have one clock, and it judges. When it is set one of them is killed: what it had is not kept back until the clock has come
/// there again, and neither is what waits for the others.
async fn on_a_clock_that_is_set<S: Site>(mode: &str) {
    let mut market = Market::<S>::open(mode == "ordered").await;
    let host = Host::off_by(0);
    let folder = market.scratch.folder().to_owned();
    let sells = || Worker::run_task(&folder, ["sell", mode], &mut host.program());
    let mut crew: Vec<Worker> = (0..3).map(|_| sells()).collect();
    let mut seen = Seen::default();
    for hours in [-2, 3, -5, -6] {
        goes_on(&mut market, &mut seen).await;
        host.clock.set(hours * HOUR_MS);
        crew.remove(0).kill();
        crew.push(sells());
    }
    goes_on(&mut market, &mut seen).await;
    // Nobody is left who has known the clock as it was.
    crew.into_iter().for_each(Worker::kill);
    host.clock.set(-8 * HOUR_MS);
    let relay = Worker::run_task(&folder, ["sell", &format!("{mode}-relay")], &mut host.program()).started().await;
    seen.receive_all(&mut market.told, &mut market.shop).await;
    seen.check(market.shop.sold().await, mode);
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status <> 1").await, 0);
    let stored = "SELECT max(stored_at) - min(stored_at) FROM hapax.outbox";
    assert!(market.shop.number(stored).await >= 8 * HOUR_MS, "void: the clock was not set");
    relay.stop();
}

/// Due by the clock of the table; whoever stores and relays is hours ahead of it.
async fn due<S: Site>() {
    let mut market = Market::<S>::open(false).await;
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
async fn expires_later<S: Site>() {
    let mut market = Market::<S>::open(false).await;
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
async fn has_expired<S: Site>() {
    let mut market = Market::<S>::open(false).await;
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
