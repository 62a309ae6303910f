//! A program that keeps business tables and an outbox: it sells without end, and relays what it has sold.

use std::{path::Path, time::Duration};

use hapax::{
    RabbitMq, Relay,
    relay::{RelayHandle, RelayOptions},
    time::Timestamp,
};

use crate::{
    log,
    serve::input_closed,
    shops::{Failed, InFile, OnMySql, OnPostgres, Sale, Shop},
    stored::server_of,
};

/// What is stored for one key is sent in order.
const KEYS: i32 = 7;
/// One in so many is rolled back, and would be a ghost if it were ever seen.
const GHOSTS: i32 = 11;
/// Names the time, in milliseconds since 1970, at which everything that is sold is due.
const DUE: &str = "HAPAX_TEST_DUE_MS";
/// The same for when it is not worth telling any more.
const EXPIRES: &str = "HAPAX_TEST_EXPIRES_MS";

/// Sells until whoever has started this process closes its standard input; servers may be away. `ordered` or `unordered`; with
/// `-relay` behind it only relays.
pub(crate) async fn sell(folder: &Path, mode: &str) {
    log::begin();
    let (url, _) = server_of(folder).unwrap();
    match &url {
        url if url.starts_with("postgres") => sell_in::<OnPostgres>(folder, mode).await,
        url if url.starts_with("mysql") => sell_in::<OnMySql>(folder, mode).await,
        _ => sell_in::<InFile>(folder, mode).await,
    }
}

async fn sell_in<S: Shop>(folder: &Path, mode: &str) {
    let (url, tables) = server_of(folder).unwrap();
    let broker = std::fs::read_to_string(folder.join("broker")).unwrap();
    let (ordered, relays_only) = (mode.starts_with("ordered"), mode.ends_with("-relay"));
    let mut closed = std::pin::pin!(input_closed());
    let mut relay = None;
    let selling = async {
        loop {
            let sold = try_to_sell::<S>(&url, &tables, &broker, ordered, &mut relay, relays_only).await;
            if let Err(error) = sold {
                eprintln!("begins again: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    tokio::select! {
        () = selling => {}
        () = &mut closed => {}
    }
    if let Some((_, relay)) = relay {
        RelayHandle::stop(relay).await.unwrap();
    }
}

type Running<S> = Option<(<S as Shop>::Outbox, RelayHandle)>;

async fn try_to_sell<S: Shop>(
    url: &str,
    tables: &str,
    broker: &str,
    ordered: bool,
    relay: &mut Running<S>,
    relays_only: bool,
) -> Result<(), Failed> {
    if relay.is_none() {
        let outbox = S::outbox(url, tables, ordered).await?;
        *relay = Some((outbox.clone(), begin(outbox, broker).await?));
        eprintln!("started");
    }
    let Some((outbox, _)) = relay else { return Ok(()) };
    if relays_only {
        std::future::pending::<()>().await;
    }
    let mut shop = S::connect(url, tables).await?;
    // All are to be told at one time, which somebody else's clock says.
    let told = |name: &str| std::env::var(name).ok().and_then(|ms| ms.parse().ok()).map(Timestamp::from_millis);
    let (due, expires) = (told(DUE), told(EXPIRES));
    loop {
        let order = fastrand::i32(0..);
        let sale = Sale { order, key: order % KEYS, ghost: order % GHOSTS == 0, due, expires, silent: false };
        shop.sell(outbox, sale).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn begin(
    outbox: impl hapax::ports::OutboxTable + 'static,
    broker: &str,
) -> Result<RelayHandle, Failed> {
    let broker = RabbitMq::open(broker).await?;
    let options = RelayOptions::default()
        .polls(Duration::from_millis(50), Duration::from_millis(300))
        .lease(Duration::from_millis(1500))
        .birth_lease(Duration::from_millis(1000))
        .status_batch(10_000, Duration::from_millis(100))
        .attempts_max(1_000_000)
        .backoff(Duration::from_millis(50), Duration::from_millis(500));
    Ok(Relay::to(broker).table_with(outbox, options).start()?)
}
