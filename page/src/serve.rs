//! A server for the page alone, with bounds.

use std::{io, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// Connections at a time: a browser opens six, and each holds a buffer.
const CONNECTIONS_MAX: usize = 64;
/// How long the head of a request may take, and a connection may be idle: the page asks every five seconds.
const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// Largest buffer of a connection, in bytes: a head with its longest address and token.
const BUFFER_BYTES_MAX: usize = 16 << 10;
/// How long a connection lasts: one whose answer nobody reads holds its place until then. The page opens another.
const CONNECTION_FOR: Duration = Duration::from_secs(300);
/// How long answers that are under way are waited for at the end.
const END_WITHIN: Duration = Duration::from_secs(5);
/// After a connection that could not be accepted, say for want of file descriptors.
const REST: Duration = Duration::from_millis(100);

/// Serves `router` over HTTP/1 until `stop` is over; answers that are under way then have five seconds.
///
/// # Errors
/// None at present: what goes wrong with a connection ends that connection.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (ends, is_ending) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        // Whoever comes beyond the bound waits in the system's own queue.
        let place = tokio::select! {
            () = &mut stop => break,
            place = places.clone().acquire_owned() => place.map_err(io::Error::other)?,
        };
        let stream = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(REST).await;
                    continue;
                }
            },
        };
        let (service, mut is_ending) = (TowerToHyperService::new(router.clone()), is_ending.clone());
        connections.spawn(async move {
            let _place = place;
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(BUFFER_BYTES_MAX);
            let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                // A browser that goes in the middle is no news to anybody.
                _ = connection.as_mut() => return,
                _ = is_ending.changed() => {}
                () = tokio::time::sleep(CONNECTION_FOR) => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(END_WITHIN, connection).await; // What has not ended is cut off.
        });
        while connections.try_join_next().is_some() {}
    }
    drop((listener, ends));
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(END_WITHIN, all).await; // What has not ended is cut off.
    Ok(())
}
