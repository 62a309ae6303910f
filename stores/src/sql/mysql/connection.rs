//! One connection, and one transaction at a time on it.

mod question;

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

pub use question::Answer;
use question::Question;
pub(super) use question::ask;
use sqlx::{
    Connection, Executor, MySqlConnection,
    mysql::{MySqlArguments, MySqlConnectOptions, MySqlRow},
};
use tokio::time::timeout;

use super::{
    super::connections::{Found, Leave, OPENING, Place, Seats},
    arguments::Text,
    error::Failure,
    server::{self, Checked, Tables},
};

/// What takes several statements.
pub(super) type Work<'l, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'l>>;

/// How a connection is used.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    pub(super) options: MySqlConnectOptions,
    /// What is set on each connection of our own, before its first use.
    pub(super) settings: Arc<str>,
    /// A statement without an answer for so long is given up.
    pub(super) limit: Duration,
    pub(super) commits: Arc<AtomicU64>,
    /// How often a connection has been lost, or made in place of another.
    pub(super) lost: Arc<AtomicU64>,
    /// Host, port and database, for messages.
    pub(super) place: Arc<str>,
    /// What a server must have; `None` while that is being found out.
    pub(super) tables: Option<Tables>,
    /// This process's clock, which is compared with the server's.
    pub(super) now: fn() -> SystemTime,
    pub(super) told_of_clock: Arc<AtomicBool>,
    /// With whom the right to connections is shared.
    pub(super) seats: Option<Arc<Seats<MySqlConnection>>>,
}

impl Dial {
    /// A connection, once there is a place for it.
    pub(super) async fn open(&self) -> Result<(Open, Checked), Failure> {
        let place = match &self.seats {
            Some(seats) => Some(seats.place(self.limit).await.ok_or_else(Failure::no_place)?),
            None => None,
        };
        self.fill(place).await
    }

    async fn fill(&self, place: Option<Place>) -> Result<(Open, Checked), Failure> {
        let connecting = server::connect(self);
        let (connection, checked) = match &place {
            // Others need the place.
            Some(_) => timeout(OPENING, connecting).await.map_err(|_| Failure::unreachable())??,
            None => connecting.await?,
        };
        Ok((Open { connection, place: place.map(Place::opened) }, checked))
    }

    /// As [`Dial::open`], or one that others have done with meanwhile.
    async fn reopen(&self) -> Result<Open, Failure> {
        let Some(seats) = &self.seats else { return Ok(self.open().await?.0) };
        match seats.place_or_one(self.limit).await.ok_or_else(Failure::no_place)? {
            Found::Place(place) => Ok(self.fill(Some(place)).await?.0),
            Found::Connection(connection, place) => Ok(Open { connection, place: Some(place) }),
        }
    }

    /// One to begin with; where they are shared, when it is needed.
    pub(super) async fn link(&self) -> Result<Link, Failure> {
        let open = if self.seats.is_some() { None } else { Some(self.open().await?.0) };
        Ok(Link::new(self.clone(), open))
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) connection: MySqlConnection,
    /// Its place among those that are shared.
    place: Option<Place>,
}

impl Leave for MySqlConnection {
    async fn leave(self) {
        let _ = self.close().await;
    }
}

/// A connection that is opened again after it has failed.
#[derive(Debug)]
pub(super) struct Link {
    dial: Dial,
    open: Option<Open>,
    /// How many connections there have been.
    session: u64,
    stage: Stage,
    /// The session keeps something for us between two transactions.
    is_held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Between [`Link::begin`] and its end.
    Within,
    /// Something was sent, and its answer has not been seen. Whoever asked may have gone.
    Sent,
}

/// Where in what is sent a failure may be one of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commit {
    None,
    /// It is a statement that commits by itself.
    Itself,
    /// A `COMMIT` comes after so many answers.
    After(usize),
}

impl Link {
    pub(super) const fn new(dial: Dial, open: Option<Open>) -> Self {
        let session = if open.is_some() { 1 } else { 0 };
        Self { dial, open, session, stage: Stage::Idle, is_held: false }
    }

    pub(super) const fn dial(&self) -> &Dial {
        &self.dial
    }

    /// Runs a statement that writes, by itself one transaction.
    pub(super) async fn write(&mut self, sql: &Arc<str>, arguments: MySqlArguments) -> Result<Answer, Failure> {
        let question = Question::Prepared(sql.clone(), Box::new(arguments));
        let answers = self.alone(question, Stage::Idle, Commit::Itself).await?;
        self.dial.commits.fetch_add(1, Ordering::Relaxed);
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// As [`Link::write`], of a text that is one statement.
    pub(super) async fn write_text(&mut self, text: Text) -> Result<Answer, Failure> {
        let answers = self.alone(Question::Text(text.into_string().into()), Stage::Idle, Commit::Itself).await?;
        self.dial.commits.fetch_add(1, Ordering::Relaxed);
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Runs a statement that commits by itself whatever it is part of, such as one about tables.
    pub(super) async fn define(&mut self, text: String) -> Result<Vec<Answer>, Failure> {
        self.alone(Question::Text(text.into()), Stage::Idle, Commit::Itself).await
    }

    /// Which connection it is by now, for what a session keeps.
    pub(super) const fn session(&self) -> u64 {
        self.session
    }

    /// Whether the connection is kept also between two transactions, as long as it lasts.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.rest();
    }

    /// As [`Link::define`], on that connection or not at all.
    pub(super) async fn define_in(&mut self, session: u64, text: String) -> Result<Vec<Answer>, Failure> {
        if !self.is_open() || self.session != session || self.stage != Stage::Idle {
            return Err(Failure::of_read(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())));
        }
        self.define(text).await
    }

    /// Runs a statement that writes nothing. One that was sent on a connection that has ended while it was idle is sent again
    /// on another: it may be told of that only now.
    pub(super) async fn read(&mut self, sql: &Arc<str>, arguments: MySqlArguments) -> Result<Vec<MySqlRow>, Failure> {
        self.look(Question::Prepared(sql.clone(), Box::new(arguments))).await
    }

    /// As [`Link::read`], of a text that is one statement.
    pub(super) async fn read_text(&mut self, text: Text) -> Result<Vec<MySqlRow>, Failure> {
        self.look(Question::Text(text.into_string().into())).await
    }

    async fn look(&mut self, question: Question) -> Result<Vec<MySqlRow>, Failure> {
        let was_open = self.is_open();
        let answers = match self.alone(question.clone(), Stage::Idle, Commit::None).await {
            Err(failure) if was_open && failure.is_of_the_connection() => {
                self.alone(question, Stage::Idle, Commit::None).await
            }
            looked => looked,
        };
        Ok(answers?.into_iter().next().unwrap_or_default().rows)
    }

    /// Begins a transaction and runs the statements of `text` in it, in one round trip. After an error there is none.
    pub(super) async fn begin(&mut self, text: Text) -> Result<Vec<Answer>, Failure> {
        let question = Question::Text(format!("BEGIN; {}", text.into_string()).into());
        let mut answers = self.alone(question, Stage::Within, Commit::None).await?;
        drop(answers.remove(0)); // Of the `BEGIN`: each statement has one.
        Ok(answers)
    }

    /// Runs one statement within the transaction that was begun. After an error there is none any more.
    pub(super) async fn step(&mut self, sql: &Arc<str>, arguments: MySqlArguments) -> Result<Answer, Failure> {
        let question = Question::Prepared(sql.clone(), Box::new(arguments));
        Ok(self.within(question, Commit::None).await?.into_iter().next().unwrap_or_default())
    }

    /// As [`Link::step`], of the statements of a text.
    pub(super) async fn steps(&mut self, text: Text) -> Result<Vec<Answer>, Failure> {
        self.within(Question::Text(text.into_string().into()), Commit::None).await
    }

    /// Runs the statements of `text`, if there are any, and commits what was begun, in one round trip. Where one of them fails,
    /// nothing of the transaction is kept; where the commit itself fails, nobody knows.
    pub(super) async fn commit(&mut self, mut text: Text) -> Result<Vec<Answer>, Failure> {
        let before = text.end().statements();
        text.sql("COMMIT");
        let mut answers = self.within(Question::Text(text.into_string().into()), Commit::After(before)).await?;
        answers.truncate(before);
        self.dial.commits.fetch_add(1, Ordering::Relaxed);
        Ok(answers)
    }

    /// Runs the statements of `text` in a transaction of their own, in one round trip.
    pub(super) async fn transaction(&mut self, mut text: Text) -> Result<Vec<Answer>, Failure> {
        let before = text.end().statements() + 1; // With the `BEGIN`.
        text.sql("COMMIT");
        let question = Question::Text(format!("BEGIN; {}", text.into_string()).into());
        let mut answers = self.alone(question, Stage::Idle, Commit::After(before)).await?;
        answers.truncate(before);
        drop(answers.remove(0));
        self.dial.commits.fetch_add(1, Ordering::Relaxed);
        Ok(answers)
    }

    /// Undoes what was begun. Where that fails the connection is given up, which does the same.
    pub(super) async fn roll_back(&mut self) {
        if self.stage != Stage::Within || !self.undone().await {
            self.give_up();
        }
        self.rest();
    }

    /// What begins outside of a transaction.
    async fn alone(&mut self, question: Question, then: Stage, commit: Commit) -> Result<Vec<Answer>, Failure> {
        if self.stage != Stage::Idle {
            self.give_up(); // Somebody has left in the middle of something.
        }
        if !self.is_open() {
            let open = self.dial.reopen().await?;
            if self.session > 0 || self.dial.seats.is_some() {
                // Meanwhile another connection may have asked the server that was left.
                self.dial.lost.fetch_add(1, Ordering::Release);
            }
            self.open = Some(open);
            self.session += 1;
        }
        self.exchange(question, then, commit).await
    }

    async fn within(&mut self, question: Question, commit: Commit) -> Result<Vec<Answer>, Failure> {
        if self.stage != Stage::Within {
            self.give_up();
        }
        self.exchange(question, if commit == Commit::None { Stage::Within } else { Stage::Idle }, commit).await
    }

    async fn exchange(&mut self, question: Question, then: Stage, commit: Commit) -> Result<Vec<Answer>, Failure> {
        let (limit, mut answers) = (self.dial.limit, Vec::new());
        let Some(Open { connection, .. }) = self.open.as_mut() else { return Err(Failure::unreachable()) };
        let begins = then == Stage::Within || matches!(commit, Commit::After(_));
        let may_be_within = self.stage == Stage::Within || begins;
        self.stage = Stage::Sent;
        let failure = match timeout(limit, question.run(connection, &mut answers)).await {
            Ok(Ok(())) => {
                self.stage = then;
                self.rest();
                return Ok(answers);
            }
            Err(_) => Failure::too_late(commit != Commit::None),
            // What the server has refused before it came to the commit was not committed. Whatever else happened to the
            // answer, all that was sent may have been done.
            Ok(Err(error)) => match commit {
                Commit::Itself => Failure::of_write(error),
                Commit::After(before) if answers.len() >= before || error.as_database_error().is_none() => {
                    Failure::of_commit(error)
                }
                Commit::After(_) | Commit::None => Failure::of_read(error),
            },
        };
        // The connection is as good as before, except for what the transaction still holds.
        if !failure.is_of_a_statement() || may_be_within && !self.undone().await {
            self.give_up();
        }
        self.stage = Stage::Idle;
        self.rest();
        Err(failure)
    }

    async fn undone(&mut self) -> bool {
        let Some(Open { connection, .. }) = self.open.as_mut() else { return true };
        self.stage = Stage::Sent;
        let undone = timeout(self.dial.limit, connection.execute(sqlx::raw_sql("ROLLBACK"))).await;
        let undone = matches!(undone, Ok(Ok(_)));
        if undone {
            self.stage = Stage::Idle;
        }
        undone
    }

    fn is_open(&mut self) -> bool {
        if self.open.is_none()
            && let Some((connection, place)) = self.dial.seats.as_ref().and_then(|seats| seats.rise())
        {
            self.open = Some(Open { connection, place: Some(place) });
            self.session += 1;
        }
        self.open.is_some()
    }

    /// Between two transactions it may be taken for somebody who shares the right to it.
    fn rest(&mut self) {
        if self.stage == Stage::Idle
            && !self.is_held
            && let Some(seats) = &self.dial.seats
            && let Some(Open { connection, place: Some(place) }) = self.open.take()
        {
            seats.sit(connection, place);
        }
    }

    /// Not closed politely: it may be in the middle of anything.
    pub(super) fn give_up(&mut self) {
        if let Some(seats) = &self.dial.seats {
            seats.clear();
        }
        self.dial.lost.fetch_add(1, Ordering::Release);
        self.open = None;
        self.stage = Stage::Idle;
    }

    pub(super) async fn close(&mut self) {
        if self.is_open()
            && let Some(open) = self.open.take()
        {
            let _ = open.connection.close().await; // What was confirmed is stored.
        }
    }
}
