//! A bridge between two brokers: what is published on one is published on the other, once in effect.
//!
//! ```sh
//! cargo run --example bridge -- to-nats bridge.db amqp://guest:guest@localhost nats://localhost
//! ```
//!
//! Each message is handled as by any endpoint: its copy for the other broker is saved with its dedup entry in the file, sent until it is
//! confirmed, and only then the message is settled. A copy that comes again is recognised, and after a crash what was not confirmed is sent
//! again under the same id, by which every endpoint of hapax recognises it. Start as many of them as you like with the same arguments, and kill any.
//!
//! The name is the bridge's own: another bridge, to a third broker or back, takes another. What has come over a bridge is not bridged on.

use bridge::{Broker, Failed, bridge};
use hapax::Sqlite;

const USAGE: &str = "usage: bridge NAME FILE FROM TO [PREFIX], where FROM and TO are amqp://…, nats://… or redis://…";

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, file, from, to, prefix) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name, file, from, to] => (name, file, from, to, "hapax"),
        [name, file, from, to, prefix] => (name, file, from, to, prefix),
        _ => return Err(USAGE.into()),
    };
    let store = Sqlite::open(file).await?;
    let (here, there) = (Broker::open(from, prefix).await?, Broker::open(to, prefix).await?);
    let endpoint = bridge(name, store, here, there).start().await?;
    println!("bridging");
    endpoint.run_until(told_to_stop()).await?;
    Ok(())
}

async fn told_to_stop() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        return;
    }
    drop(tokio::signal::ctrl_c().await);
}
