//! An HTTP front whose `Idempotency-Key` keeps its word: retried, in parallel, or after a crash, a request is booked once, and each
//! time the answer is the same.
//!
//! ```sh
//! cargo run --example http -- bank.db 127.0.0.1:8080
//! curl -i -X POST -H 'Authorization: Bearer ann-secret' -H 'Idempotency-Key: "rent-may"' \
//!     -H 'Content-Type: application/json' -d '{"cents": 5000}' http://127.0.0.1:8080/accounts/7/deposits
//! ```
//!
//! Do it again, kill the program with `kill -9` in between, or ask from two terminals at once: one booking, one answer.
//!
//! The front sends each request as a message and awaits its answer; the bank is an endpoint that handles and answers it. The key, scoped by
//! caller and route, is the message's idempotency key, and so its identity for deduplication. Store and queue are in one SQLite file. A third
//! argument runs one of both alone, `front` or `bank`, as processes of their own on that file; a fourth names the front: each front that runs
//! at the same time needs a name of its own, since its answers come to a queue of that name.

mod bank;
mod front;
mod key;
mod problem;

use hapax::{RequestClient, Sqlite, SqliteQueue};
use tokio::{net::TcpListener, sync::oneshot};

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_else(|| "bank.db".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let role = arguments.next().unwrap_or_else(|| "both".to_owned());
    let name = arguments.next().unwrap_or_else(|| "front".to_owned());
    let store = Sqlite::open(&file).await?;
    let queue = SqliteQueue::on(&store).await?;
    match role.as_str() {
        "both" => {
            let bank = bank::endpoint(store.clone(), queue.clone()).start().await?;
            let (stop, stopped) = oneshot::channel::<()>();
            let bank = tokio::spawn(bank.run_until(stopped));
            serve(&name, &address, store, queue).await?;
            drop(stop); // After the front: what it waits for is still answered.
            bank.await??;
        }
        "front" => serve(&name, &address, store, queue).await?,
        "bank" => {
            let bank = bank::endpoint(store, queue).start().await?;
            println!("the bank is open");
            bank.run_until(told_to_stop()).await?;
        }
        other => return Err(format!("`{other}` is neither `both` nor `front` nor `bank`").into()),
    }
    Ok(())
}

async fn serve(name: &str, address: &str, store: Sqlite, queue: SqliteQueue) -> Result<(), Failed> {
    // It looks among the bank's dead letters: so it learns that a key was used before for another request.
    let client = RequestClient::builder(name).transport(queue).dead_letters(store).start().await?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, front::routes(client.clone())).with_graceful_shutdown(told_to_stop()).await?;
    client.stop().await;
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
