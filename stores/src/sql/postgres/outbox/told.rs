//! Telling relays in other processes that something was stored, and being told: `NOTIFY` and `LISTEN`. A hint, which may be
//! lost and comes after the commit; whoever is not told looks for himself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax_core::relay::{PushLine, Tell};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgListener, PgPoolOptions};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    super::{
        arguments::Bind,
        wire::{Server, Wire},
    },
    statements,
};

/// Others are told at most as often as that, however much is stored: each time the server takes a lock that all of its commits
/// with a notification wait for.
const TELL_EVERY: Duration = Duration::from_millis(5);
/// How long to wait before listening is tried again after it was lost.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);
/// What a relay tells itself, to see whether the server's words arrive.
const TEST: &str = "test";
/// How long they may take. Behind a pooler that passes on everything else they never come.
const TEST_LIMIT: Duration = Duration::from_secs(5);

/// Tells relays, once for all that was stored meanwhile.
#[derive(Debug)]
pub(super) struct Teller {
    /// Who tells, so that no relay is woken by the words of its own process, which has woken it already.
    name: String,
    is_due: AtomicBool,
    more: Notify,
    /// Whether what others tell is heard here.
    heard: AtomicBool,
}

impl Teller {
    /// Whether the words of other processes arrive here.
    pub(super) fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}

impl Default for Teller {
    fn default() -> Self {
        Self {
            name: fastrand::u64(..).to_string(),
            is_due: AtomicBool::default(),
            more: Notify::new(),
            heard: AtomicBool::default(),
        }
    }
}

impl Tell for Teller {
    fn tell(&self) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            self.more.notify_one();
        }
    }
}

/// Ends when it is aborted.
pub(super) async fn tell(teller: Arc<Teller>, mut wire: Wire, server: Server) {
    let text = server.text(statements::TELL);
    loop {
        teller.more.notified().await;
        teller.is_due.store(false, Ordering::Release);
        if let Err(fault) = wire.read(&text, words(&server, &teller.name)).await {
            tracing::debug!(place = %server.place(), ?fault, "relays were not told; they look for themselves");
        }
        sleep(TELL_EVERY).await;
    }
}

fn words(server: &Server, what: &str) -> PgArguments {
    let mut arguments = PgArguments::default();
    arguments.bind(channel(server)).bind(what.to_owned());
    arguments
}

/// No other tables of the database have the same.
fn channel(server: &Server) -> String {
    server.channel() + "outbox"
}

/// Listens for the relay behind `line`. Ends when it is aborted, or when the server's words do not arrive.
pub(super) async fn listen(line: Arc<PushLine>, teller: Arc<Teller>, session: PgConnectOptions, server: Server) {
    let mut said = false;
    loop {
        let heard = hear(&line, &teller, &session, &server, &mut said).await;
        teller.heard.store(false, Ordering::Relaxed);
        let Err(error) = heard else { return };
        if !std::mem::replace(&mut said, true) {
            let place = server.place();
            tracing::warn!(%place, %error, "listening to the server was lost: the outbox is looked at until it is back");
        }
        sleep(LISTEN_AGAIN).await;
    }
}

async fn hear(
    line: &PushLine,
    teller: &Teller,
    session: &PgConnectOptions,
    server: &Server,
    said: &mut bool,
) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let pool = pool.connect_lazy_with(session.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(&channel(server)).await?;
    // What was stored before is not told.
    line.wake();
    let spoken = server.wire().read(&server.text(statements::TELL), words(server, TEST)).await;
    if let Err(fault) = spoken {
        return Err(sqlx::Error::Protocol(format!("{fault:?}")));
    }
    let Ok(heard) = timeout(TEST_LIMIT, listener.try_recv()).await else {
        return Err(sqlx::Error::Protocol("the server's words do not arrive".to_owned()));
    };
    if heard?.is_none_or(|heard| heard.payload() != TEST) {
        line.wake(); // Somebody else was first.
    }
    *said = false;
    teller.heard.store(true, Ordering::Relaxed);
    loop {
        let Some(heard) = listener.try_recv().await? else { return Err(sqlx::Error::PoolClosed) };
        if ![TEST, &teller.name].contains(&heard.payload()) {
            line.wake();
        }
    }
}
