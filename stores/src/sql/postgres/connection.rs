//! One connection, and one statement at a time on it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use sqlx::{
    AssertSqlSafe, Connection, Executor, PgConnection,
    postgres::{PgArguments, PgConnectOptions, PgRow},
};
use tokio::time::timeout;

use super::{
    super::{
        connections::{Found, Leave, OPENING, Place, Seats},
        races::Races,
    },
    error::Failure,
    notices::Notices,
    server::{self, Tables},
    statements,
};

/// What takes several statements.
pub(super) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'c>>;

/// How a connection is used.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    pub(super) options: PgConnectOptions,
    /// What is set at the beginning of each transaction where a connection pooler may give each one another session.
    pub(super) pooled: Option<Arc<str>>,
    /// By what our own sessions are known, where settings of a session are ours to make.
    pub(super) mark: Option<Arc<str>>,
    /// A statement without an answer for so long is given up.
    pub(super) limit: Duration,
    pub(super) commits: Arc<AtomicU64>,
    /// Host, port and database, for messages.
    pub(super) place: Arc<str>,
    /// What a server must have; `None` while that is being found out.
    pub(super) tables: Option<Tables>,
    /// Whether commits wait for a standby, as far as was seen: see [`super::settled`].
    pub(super) standbys: Arc<AtomicBool>,
    /// Connections that were lost: the next one may be to another server, as after a fail-over.
    pub(super) lost: Arc<AtomicU64>,
    /// This process's clock, which is compared with the server's.
    pub(super) now: fn() -> SystemTime,
    pub(super) told_of_clock: Arc<AtomicBool>,
    /// With whom the right to connections is shared.
    pub(super) seats: Option<Arc<Seats<PgConnection>>>,
}

impl Dial {
    /// A connection, once there is a place for it.
    pub(super) async fn open(&self) -> Result<Open, Failure> {
        let place = match &self.seats {
            Some(seats) => Some(seats.place(self.limit).await.ok_or_else(Failure::no_place)?),
            None => None,
        };
        self.fill(place).await
    }

    async fn fill(&self, place: Option<Place>) -> Result<Open, Failure> {
        let connecting = server::connect(self);
        let connection = match &place {
            // Others need the place.
            Some(_) => timeout(OPENING, connecting).await.map_err(|_| Failure::unreachable())??,
            None => connecting.await?,
        };
        Ok(Open { connection, place: place.map(Place::opened) })
    }

    /// As [`Dial::open`], or one that others have done with meanwhile.
    async fn reopen(&self) -> Result<Open, Failure> {
        let Some(seats) = &self.seats else { return self.open().await };
        match seats.place_or_one(self.limit).await.ok_or_else(Failure::no_place)? {
            Found::Place(place) => self.fill(Some(place)).await,
            Found::Connection(connection, place) => Ok(Open { connection, place: Some(place) }),
        }
    }

    /// One to begin with; where they are shared, when it is needed.
    pub(super) async fn link(&self) -> Result<Link, Failure> {
        let open = if self.seats.is_some() { None } else { Some(self.open().await?) };
        Ok(Link::new(self.clone(), open))
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) connection: PgConnection,
    /// Its place among those that are shared.
    place: Option<Place>,
}

impl Leave for PgConnection {
    async fn leave(self) {
        let _ = self.close().await;
    }
}

/// A connection that is opened again after it has failed.
#[derive(Debug)]
pub(super) struct Link {
    dial: Dial,
    open: Option<Open>,
    /// Whether the next one takes the place of another.
    had_one: bool,
    /// Made when a write first has to wait for a standby.
    notices: Option<Notices>,
}

impl Link {
    pub(super) const fn new(dial: Dial, open: Option<Open>) -> Self {
        let had_one = open.is_some();
        Self { dial, open, had_one, notices: None }
    }

    pub(super) const fn dial(&self) -> &Dial {
        &self.dial
    }

    /// Runs a statement that writes, by itself one transaction.
    pub(super) async fn write(&mut self, sql: &Arc<str>, arguments: PgArguments) -> Result<Vec<PgRow>, Failure> {
        let rows = self.run(sql, arguments, true).await?;
        self.dial.commits.fetch_add(1, Ordering::Relaxed);
        Ok(rows)
    }

    /// As [`Link::write`], again where it lost a race with others: then nothing of it was kept.
    pub(super) async fn write_again(&mut self, sql: &Arc<str>, arguments: PgArguments) -> Result<Vec<PgRow>, Failure> {
        let mut races = Races::default();
        loop {
            match self.write(sql, arguments.clone()).await {
                Err(failure) if failure.is_of_a_race() && races.allow(false) => {}
                written => return written,
            }
        }
    }

    /// As [`Link::write_again`], of what is told as done although others have done it before, or are about to: where commits
    /// wait for a standby, theirs was waited for as well once this is told. See [`super::settled`].
    pub(super) async fn write_settled(
        &mut self,
        sql: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, Failure> {
        let rows = self.write_again(sql, arguments).await?;
        if self.dial.standbys.load(Ordering::Relaxed) {
            let settled = self.write(&statements::SETTLE.into(), PgArguments::default()).await;
            settled.map_err(Failure::into_unknown)?; // It was written, and may not be kept.
        }
        Ok(rows)
    }

    /// Runs a statement that writes nothing. One that was sent on a connection that has ended while it was idle is sent again
    /// on another: it may be told of that only now. The driver keeps the arguments that it is given, hence the copy: some bytes
    /// for each key, in one piece, beside a round trip.
    pub(super) async fn read(&mut self, sql: &Arc<str>, arguments: PgArguments) -> Result<Vec<PgRow>, Failure> {
        let was_open = self.is_open();
        match self.run(sql, arguments.clone(), false).await {
            Err(failure) if was_open && failure.is_of_the_connection() => self.run(sql, arguments, false).await,
            ran => ran,
        }
    }

    async fn run(&mut self, sql: &Arc<str>, arguments: PgArguments, writes: bool) -> Result<Vec<PgRow>, Failure> {
        let (limit, pooled) = (self.dial.limit, self.dial.pooled.clone());
        let (mut open, notices) = self.take(writes).await?;
        let connection = &mut open.connection;
        let ran = match pooled {
            None => in_time(limit, notices, writes, alone(connection, sql, arguments, writes)).await,
            Some(begin) => in_time(limit, notices, writes, within(connection, &begin, sql, arguments, writes)).await,
        };
        match &ran {
            Err(failure) if !(failure.is_of_a_statement() && self.dial.pooled.is_none()) => self.give_up(open),
            _ => self.rest(open),
        }
        ran
    }

    /// Runs what takes several statements. After an error the connection is given up, whatever state it is in.
    pub(super) async fn with<T>(
        &mut self,
        writes: bool,
        work: impl for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T>,
    ) -> Result<T, Failure> {
        let limit = self.dial.limit;
        let (mut open, notices) = self.take(writes).await?;
        let done = in_time(limit, notices, writes, work(&mut open.connection)).await;
        if done.is_err() {
            self.give_up(open);
            return done;
        }
        self.rest(open);
        if writes {
            self.dial.commits.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    /// As [`Link::with`], of what writes, begun again where it lost a race with others: nothing of what lost was kept, and what
    /// it had committed before it does not do twice.
    pub(super) async fn with_again<T>(
        &mut self,
        work: impl for<'c> Fn(&'c mut PgConnection) -> Work<'c, T> + Sync,
    ) -> Result<T, Failure> {
        let mut races = Races::default();
        loop {
            match self.with(true, &work).await {
                Err(failure) if failure.is_of_a_race() && races.allow(false) => {}
                done => return done,
            }
        }
    }

    /// Looks again whether the server keeps what it confirms: it may have been told otherwise while it runs.
    pub(super) async fn look_again(&mut self) -> Result<(), Failure> {
        let dial = self.dial.clone();
        self.with(false, move |connection| Box::pin(async move { server::look(connection, &dial).await.map(drop) }))
            .await
    }

    fn is_open(&mut self) -> bool {
        if self.open.is_none()
            && let Some((connection, place)) = self.dial.seats.as_ref().and_then(|seats| seats.rise())
        {
            self.open = Some(Open { connection, place: Some(place) });
        }
        self.open.is_some()
    }

    /// It is not used for now, and in the middle of nothing: it may be taken for somebody who shares the right to it.
    fn rest(&mut self, open: Open) {
        match (&self.dial.seats, open) {
            (Some(seats), Open { connection, place: Some(place) }) => seats.sit(connection, place),
            (_, open) => self.open = Some(open),
        }
    }

    /// Not closed politely: it may be in the middle of anything. Those that wait to be used may be to the same server, and as dead.
    fn give_up(&self, open: Open) {
        drop(open);
        if let Some(seats) = &self.dial.seats {
            seats.clear();
        }
        self.dial.lost.fetch_add(1, Ordering::Release);
    }

    /// An open one; and for what writes, who is to listen to it where commits wait for a standby. It is the caller's: where the call is
    /// dropped half-way the connection is as well, whatever it was in the middle of.
    async fn take(&mut self, writes: bool) -> Result<(Open, Option<&Notices>), Failure> {
        let open = if self.is_open() { self.open.take() } else { None };
        let open = match open {
            Some(open) => open,
            None => {
                let open = self.dial.reopen().await?;
                if self.had_one || self.dial.seats.is_some() {
                    // Meanwhile another connection may have asked the server that was left.
                    self.dial.lost.fetch_add(1, Ordering::Release);
                }
                self.had_one = true;
                open
            }
        };
        let waits = writes && self.dial.standbys.load(Ordering::Relaxed);
        let notices = waits.then(|| &*self.notices.get_or_insert_with(Notices::new));
        Ok((open, notices))
    }

    pub(super) async fn close(&mut self) {
        if self.is_open()
            && let Some(open) = self.open.take()
        {
            let _ = open.connection.close().await; // What was confirmed is stored.
        }
    }
}

/// What became of `work`. A commit that was told as done with a warning beside it was not waited for.
async fn in_time<T>(
    limit: Duration,
    notices: Option<&Notices>,
    writes: bool,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let work = timeout(limit, work);
    let (ended, warned) = match notices {
        Some(notices) => notices.listen(work).await,
        None => (work.await, false),
    };
    match ended {
        Ok(Ok(_)) if warned => Err(Failure::wait_cut()),
        Ok(ended) => ended,
        Err(_) => Err(Failure::too_late(writes)),
    }
}

async fn alone(
    connection: &mut PgConnection,
    sql: &Arc<str>,
    arguments: PgArguments,
    writes: bool,
) -> Result<Vec<PgRow>, Failure> {
    let failure = if writes { Failure::of_write } else { Failure::of_read };
    sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).fetch_all(connection).await.map_err(failure)
}

/// Behind a connection pooler a statement is prepared and run in one transaction: between two, another client may be given
/// the session in which it was prepared.
async fn within(
    connection: &mut PgConnection,
    begin: &Arc<str>,
    sql: &Arc<str>,
    arguments: PgArguments,
    writes: bool,
) -> Result<Vec<PgRow>, Failure> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(begin.clone()))).await.map_err(Failure::of_read)?;
    let query = sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).persistent(false);
    let rows = query.fetch_all(&mut *connection).await.map_err(Failure::of_read)?;
    let failure = if writes { Failure::of_write } else { Failure::of_read };
    connection.execute(sqlx::raw_sql("COMMIT")).await.map_err(failure)?;
    Ok(rows)
}
