//! A relay that is stopped (SIGSTOP) until its lease is over and others have what was its, and then goes on as if nothing had
//! happened.

use std::{sync::Arc, time::Duration};

use hapax::ports::{Claiming, Ended, Instance, OutboxTable, Outcome, Tick};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    audit::Seen,
    crew::{Worker, until},
    market::Market,
    shops::{OnMySql, OnPostgres},
    sites::Site,
};

/// Rows that are some relay's and not sent, as the table knows it.
const HELD: &str = "SELECT count(*) FROM hapax.outbox WHERE status = 0 AND token <> 0 AND owner IN \
                    (SELECT id FROM hapax.outbox_relay WHERE process = PROCESS)";
/// When a process was last heard of.
const HEARD: &str = "SELECT coalesce(max(seen_at), 0) FROM hapax.outbox_relay WHERE process = PROCESS";
/// Heard of so often, a relay has told all that it had to tell: it waits 100 ms for more of it, and looks every 50 to 300.
const BEATS: usize = 6;

fn of(sql: &str, process: Pid) -> String {
    sql.replace("PROCESS", &process.as_raw_nonzero().to_string())
}

async fn lives_again<S: Site>(market: &mut Market<S>, relay: &Worker) {
    let heard = of(HEARD, relay.id());
    let mut last = market.shop.number(&heard).await;
    kill_process(relay.id(), Signal::CONT).unwrap();
    for _ in 0..BEATS {
        let market = &mut *market;
        let mut now = last;
        until("a relay that goes on is heard of", async || {
            now = market.shop.number(&heard).await;
            now > last
        })
        .await;
        last = now;
    }
}

/// Stops `relay` while it has something that it has not told of.
async fn stop_at_work<S: Site>(market: &mut Market<S>, relay: &Worker) -> i64 {
    for _ in 0..200 {
        market.sell(20).await;
        kill_process(relay.id(), Signal::STOP).unwrap();
        // What it had under way to the server is done, or is not.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let held = market.shop.number(&of(HELD, relay.id())).await;
        if held > 0 {
            return held;
        }
        kill_process(relay.id(), Signal::CONT).unwrap();
    }
    panic!("in vain: a relay is stopped at work: {}", relay.log());
}

macro_rules! stalls {
    ($($name:ident: $shop:ty, $mode:literal, $relays:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            stalls::<$shop>($mode, $relays).await;
        }
    )*};
}

stalls! {
    two_relays_on_postgres_go_on_while_one_of_them_stands_still: OnPostgres, "unordered", 2;
    three_relays_on_postgres_go_on_while_one_of_them_stands_still: OnPostgres, "unordered", 3;
    two_ordered_relays_on_postgres_go_on_while_one_of_them_stands_still: OnPostgres, "ordered", 2;
    three_ordered_relays_on_postgres_go_on_while_one_of_them_stands_still: OnPostgres, "ordered", 3;
    three_relays_on_mysql_go_on_while_one_of_them_stands_still: OnMySql, "unordered", 3;
    three_ordered_relays_on_mysql_go_on_while_one_of_them_stands_still: OnMySql, "ordered", 3;
}

/// A lease here has 1.5 s. Each relay stands still once.
async fn stalls<S: Site>(mode: &str, relays: usize) {
    const STORED: &str = "SELECT coalesce(max(ended_at), 0) FROM hapax.outbox";
    let mut market = Market::<S>::open(mode == "ordered").await;
    let relay_mode = format!("{mode}-relay");
    let mut crew = Vec::new();
    for _ in 0..relays {
        crew.push(Worker::selling(market.scratch.folder(), &relay_mode).started().await);
    }
    for relay in &crew {
        let held = stop_at_work(&mut market, relay).await;
        market.sell(50).await;
        until("others have sent all", async || market.shop.waiting().await == 0).await;
        let before = market.shop.number(STORED).await;
        lives_again(&mut market, relay).await;
        assert_eq!(market.shop.number(STORED).await, before, "what it tells late changes nothing; it had {held}");
        market.sell(50).await; // It is one of them again.
    }
    let mut seen = Seen::default();
    seen.receive_all(&mut market.told, &mut market.shop).await;
    seen.check(market.shop.sold().await, mode);
    assert!(seen.copies > seen.orders.len(), "void: nothing that the stopped had was sent by others");
    crew.into_iter().for_each(Worker::stop);
}

#[tokio::test]
async fn what_a_relay_on_postgres_tells_of_rows_that_another_has_changes_nothing() {
    tells_late::<OnPostgres>().await;
}

#[tokio::test]
async fn what_a_relay_on_mysql_tells_of_rows_that_another_has_changes_nothing() {
    tells_late::<OnMySql>().await;
}

/// The other relay is this test, which asks the table by hand and sends nothing.
async fn tells_late<S: Site>() {
    const TOKEN: i64 = 4711;
    let mut market = Market::<S>::open(false).await;
    let relay = Worker::selling(market.scratch.folder(), "unordered-relay").started().await;
    let held = stop_at_work(&mut market, &relay).await;
    let instance =
        Arc::new(Instance { id: TOKEN, service: "test".into(), host: String::new(), process: std::process::id() });
    let tick = |ended, token: Option<i64>| Tick {
        instance: instance.clone(),
        joins: false,
        stale: Duration::from_secs(600),
        ended,
        renewed: Vec::new(),
        lease: Duration::from_secs(600),
        claiming: token.map(|token| Claiming { token, rows: 10_000, bytes: 1 << 30, again: false }),
    };
    let mut claimed = Vec::new();
    let outbox = market.outbox.clone();
    until("what it had is free", async || {
        claimed.extend(outbox.tick(&tick(Vec::new(), Some(TOKEN))).await.unwrap().claimed);
        claimed.len() as i64 >= held
    })
    .await;
    let mine = format!("SELECT count(*) FROM hapax.outbox WHERE status = 0 AND token = {TOKEN} AND owner = {TOKEN}");
    assert_eq!(market.shop.number(&mine).await, claimed.len() as i64);
    lives_again(&mut market, &relay).await;
    assert_eq!(market.shop.number(&mine).await, claimed.len() as i64, "it had {held}");
    let back = |row: hapax::ports::Claimed| Ended { claim: row.claim, outcome: Outcome::GivenBack };
    let ended: Vec<Ended> = claimed.into_iter().map(back).collect();
    let count = ended.len();
    assert_eq!(outbox.tick(&tick(ended, None)).await.unwrap().ended, count);
    let mut seen = Seen::default();
    seen.receive_all(&mut market.told, &mut market.shop).await;
    seen.check(market.shop.sold().await, "unordered");
    relay.stop();
}
