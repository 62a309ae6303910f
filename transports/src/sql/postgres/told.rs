//! Telling other processes that something was sent, and being told: `NOTIFY` and `LISTEN`. A hint, which may be lost and
//! comes after the commit; whoever is not told looks for himself.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use hapax_stores::sql::postgres::wire::{Server, Wire};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;

use super::{Shared, arguments::Bind, statements};

/// Others are told at most as often as that, however much is sent: each time the server takes a lock that all of its
/// commits with a notification wait for, and wakes all who listen. Short beside what a person notices, long beside a commit.
const TELL_EVERY: Duration = Duration::from_millis(5);
/// How long to wait before listening is tried again after it was lost; meanwhile everybody looks for himself.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// Queues that are told of at once: what is told has at most 8000 bytes.
const QUEUES_MAX: usize = 300;

/// What others are to be told.
#[derive(Debug)]
pub(super) struct Told {
    queues: Mutex<BTreeSet<i64>>,
    more: Notify,
    /// Who tells, so that nobody is woken by his own words.
    teller: u64,
}

impl Told {
    pub(super) fn new() -> Self {
        Self { queues: Mutex::default(), more: Notify::new(), teller: fastrand::u64(..) }
    }

    /// Something was sent to `queues`.
    pub(super) fn tell(&self, queues: &[i64]) {
        if !queues.is_empty() {
            self.queues.lock().unwrap_or_else(PoisonError::into_inner).extend(queues);
            self.more.notify_one();
        }
    }

    fn next(&self) -> Option<String> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = self.teller.to_string();
        let told: Vec<i64> = queues.iter().take(QUEUES_MAX).copied().collect();
        for queue in &told {
            queues.remove(queue);
            text.push_str(&format!(" {queue}"));
        }
        (!told.is_empty()).then_some(text)
    }

    /// The queues in what somebody else has said.
    fn heard<'t>(&self, text: &'t str) -> impl Iterator<Item = i64> + use<'t> {
        let mut words = text.split(' ');
        let own = words.next() == Some(&self.teller.to_string());
        words.filter(move |_| !own).filter_map(|queue| queue.parse().ok())
    }
}

/// Tells others. Ends with its runtime, or when it is aborted.
pub(super) async fn tell(told: Arc<Told>, mut wire: Wire, server: Server) {
    let text = server.text(statements::TELL);
    let channel = server.channel();
    loop {
        told.more.notified().await;
        while let Some(queues) = told.next() {
            let mut arguments = PgArguments::default();
            arguments.bind(channel.as_str()).bind(queues);
            if let Err(fault) = wire.read(&text, arguments).await {
                tracing::debug!(place = %server.place(), ?fault, "others were not told; they look for themselves");
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }
}

/// Listens to others. Ends when it is aborted.
pub(super) async fn listen(shared: Weak<Shared>, session: PgConnectOptions, channel: String) {
    let mut said = false;
    loop {
        let error = match hear(&shared, &session, &channel, &mut said).await {
            Ok(()) => return,
            Err(error) => error,
        };
        let Some(shared) = shared.upgrade() else { return };
        shared.hub.signals.are_told(false);
        if !std::mem::replace(&mut said, true) {
            let place = shared.server.place();
            tracing::warn!(%place, %error, "listening to the server was lost: new messages are looked for until it is back");
        }
        drop(shared);
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn hear(
    shared: &Weak<Shared>,
    session: &PgConnectOptions,
    channel: &str,
    said: &mut bool,
) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let pool = pool.connect_lazy_with(session.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(channel).await?;
    match shared.upgrade() {
        Some(shared) => shared.hub.signals.are_told(true),
        None => return Ok(()),
    }
    *said = false;
    loop {
        let Some(heard) = listener.try_recv().await? else { return Err(sqlx::Error::PoolClosed) };
        let Some(shared) = shared.upgrade() else { return Ok(()) };
        shared.told.heard(heard.payload()).for_each(|queue| shared.hub.signals.give(queue));
    }
}
