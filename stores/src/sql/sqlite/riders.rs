//! The writer's side of [`ride`](super::ride): who gets into the next commit, and what its text is.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use hapax_core::ports::StoreError;
use sqlx::{
    Arguments, AssertSqlSafe, Row,
    sqlite::{SqliteArguments, SqliteRow},
};
use tokio::sync::oneshot;

use super::{
    super::group::Changed,
    arguments::Bind,
    error::{Failure, Place},
    ride::{Kind, Rows, Schema, Ticket},
    rows::now,
    start,
    statements::{self, Kinds},
    write::{self, Change, Writer},
};

/// Statements of one kind that stand in one commit, where each ride has its own: a power of two.
const COPIES_MAX: usize = 4;
/// Kinds of one family.
pub(super) const KINDS_MAX: usize = 8;

/// Rows of one kind on their way into a commit.
#[derive(Debug)]
pub(super) struct Ride {
    pub(super) operation: &'static str,
    pub(super) family: &'static [Kind],
    pub(super) kind: usize,
    pub(super) rows: Rows,
    pub(super) answer: oneshot::Sender<Result<Vec<SqliteRow>, StoreError>>,
}

/// Tables that are to be in the file.
#[derive(Debug)]
pub(super) struct AddSchema {
    pub(super) schema: &'static Schema,
    pub(super) may_migrate: bool,
    pub(super) answer: oneshot::Sender<Result<(), StoreError>>,
}

impl Writer {
    /// Writes `group` and `rides` in one commit, if there are both.
    pub(super) async fn write_all(
        &mut self,
        group: &[Change],
        rides: &[Ride],
    ) -> Result<(Vec<Changed>, Vec<Vec<SqliteRow>>), Failure> {
        if rides.is_empty() {
            return Ok((self.write(group).await?, Vec::new()));
        }
        let first = self.token;
        self.token = first.wrapping_add_unsigned(group.len() as u64);
        let write::Arrays { kinds, updates, mut arguments } = write::arrays(group, first);
        let seats = seats(rides, kinds.is_none());
        let before = arguments.len();
        seats.bind(rides, &mut arguments);
        let (text, statements) = self.ridden_text(kinds, seats, rides, before);
        let mut ran = self.link.write(AssertSqlSafe(text), statements, arguments).await?;

        // The rows of the riders' statements come after those of ours.
        let ours = kinds.map_or(0, |kinds| ran.ends.get(kinds.statements() - 2).copied().unwrap_or_default());
        // It is committed: whatever cannot be told now is an unknown outcome, and must not be written again.
        let untold = |e| Failure::new(e, Place::Commit);
        let returned = share_out(rides, ran.rows.split_off(ours)).map_err(untold)?;
        let all_updated = write::all_updated(kinds, updates, &ran);
        Ok((write::results(group, first, all_updated, &ran.rows).map_err(untold)?, returned))
    }

    /// The text of a group with riders, and how many statements it has.
    fn ridden_text(&mut self, kinds: Option<Kinds>, seats: Seats, rides: &[Ride], before: usize) -> (Arc<str>, usize) {
        let make = || {
            let (riders, count) = seats.text(rides, before);
            match kinds {
                // A statement alone is its own transaction.
                None if count == 1 => (riders.into(), 1),
                None => (format!("BEGIN IMMEDIATE; {riders}; COMMIT").into(), count + 2),
                Some(kinds) => {
                    let ours = statements::group(kinds);
                    let open = ours.strip_suffix("COMMIT").unwrap_or(&ours);
                    (format!("{open}{riders}; COMMIT").into(), count + kinds.statements())
                }
            }
        };
        self.ridden.entry((kinds, seats)).or_insert_with(make).clone()
    }

    /// Brings others' tables into the file.
    pub(super) async fn add_schema(&mut self, asked: AddSchema) {
        let failed = |e: sqlx::Error| Failure::from(e).store_error(asked.schema.opening, &self.file);
        let added = match self.link.connection().await.map_err(failed) {
            Ok(connection) => start::add_schema(connection, asked.schema, asked.may_migrate, &self.file).await,
            Err(e) => Err(e),
        };
        let _ = asked.answer.send(added);
    }
}

/// How often each kind of a family stands in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Seats {
    /// Where the family's list is, which is as good as its name.
    family: usize,
    copies: [u8; KINDS_MAX],
}

/// Takes the rides of the next group out of `waiting`: in order, of one family, at most `max` of them and so many bytes.
pub(super) fn take(waiting: &mut VecDeque<Ride>, max: usize, bytes_max: usize) -> Vec<Ride> {
    let mut rides: Vec<Ride> = Vec::with_capacity(waiting.len().min(max));
    let mut own = [0; KINDS_MAX];
    let mut held = VecDeque::new();
    let mut bytes = 0;
    while rides.len() < max
        && let Some(ride) = waiting.pop_front()
    {
        if ride.answer.is_closed() {
            continue; // Nobody waits for it any more, and nothing of it has been written.
        }
        if bytes > 0 && bytes + ride.rows.size() > bytes_max {
            waiting.push_front(ride);
            break;
        }
        let stranger = rides.first().is_some_and(|first| first.family.as_ptr() != ride.family.as_ptr());
        let own = &mut own[ride.kind];
        if stranger || (!ride.family[ride.kind].shared && *own == COPIES_MAX) {
            held.push_back(ride);
            continue;
        }
        *own += 1;
        bytes += ride.rows.size();
        rides.push(ride);
    }
    while let Some(ride) = held.pop_back() {
        waiting.push_front(ride);
    }
    rides
}

/// How `rides` are seated: as they are if one kind goes by itself, else the usual kinds have their seats in any case.
fn seats(rides: &[Ride], by_themselves: bool) -> Seats {
    let family = rides.first().map_or(&[][..], |ride| ride.family);
    let mut copies = [0_u8; KINDS_MAX];
    for ride in rides {
        let copies = &mut copies[ride.kind];
        *copies = if family[ride.kind].shared { 1 } else { *copies + 1 };
    }
    let one_kind = copies.iter().filter(|copies| **copies > 0).count() == 1;
    for (copies, kind) in copies.iter_mut().zip(family) {
        if *copies == 0 && kind.usual && !(by_themselves && one_kind) {
            *copies = 1;
        }
        *copies = copies.checked_next_power_of_two().filter(|_| *copies > 0).unwrap_or_default();
    }
    Seats { family: family.as_ptr() as usize, copies }
}

impl Seats {
    /// Every statement's kind, in order.
    fn each(self, family: &'static [Kind]) -> impl Iterator<Item = (usize, &'static Kind)> {
        family.iter().enumerate().flat_map(move |(at, kind)| (0..self.copies[at]).map(move |_| (at, kind)))
    }

    /// The text of the statements of `rides`, and how many they are, when `before` arguments are those of others.
    fn text(self, rides: &[Ride], before: usize) -> (String, usize) {
        let family = rides.first().map_or(&[][..], |ride| ride.family);
        let now = format!("${}", before + 1);
        let (mut texts, mut statements, mut next) = (Vec::new(), 0, before + 2);
        for (_, kind) in self.each(family) {
            let (rows, bytes) = (format!("${next}"), format!("${}", next + 1));
            texts.push(kind.sql.replace("{now}", &now).replace("{rows}", &rows).replace("{bytes}", &bytes));
            statements += kind.statements;
            next += 2;
        }
        (texts.join("; "), statements)
    }

    /// Binds what the statements of [`Seats::text`] are about.
    fn bind(self, rides: &[Ride], arguments: &mut SqliteArguments) {
        let family = rides.first().map_or(&[][..], |ride| ride.family);
        arguments.bind(now());
        let (mut seat, mut last) = (0, usize::MAX);
        for (at, kind) in self.each(family) {
            seat = if at == last { seat + 1 } else { 0 };
            last = at;
            let of_kind = rides.iter().filter(|ride| ride.kind == at);
            let (mut json, mut blob) = (String::new(), Vec::new());
            if kind.shared {
                let size = |ride: &Ride| (ride.rows.json.len() + 16 * ride.rows.len(), ride.rows.bytes.len());
                let (text, bytes) = of_kind.clone().map(size).fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
                json.reserve(text + 2);
                blob.reserve(bytes);
                of_kind.for_each(|ride| ride.rows.write(kind.bytes, &mut json, &mut blob));
            } else {
                of_kind.skip(seat).take(1).for_each(|ride| ride.rows.write(kind.bytes, &mut json, &mut blob));
            }
            if json.is_empty() {
                arguments.bind_nulls(2);
            } else {
                json.push(']');
                arguments.bind(json).bind(blob);
            }
        }
    }
}

/// Gives each ride what was returned for its rows, by their tickets. A row that nobody has a ticket for is nobody's wish.
fn share_out(rides: &[Ride], returned: Vec<SqliteRow>) -> Result<Vec<Vec<SqliteRow>>, sqlx::Error> {
    let mut results: Vec<Vec<SqliteRow>> = Vec::new();
    results.resize_with(rides.len(), Vec::new);
    if let [_] = rides {
        results[0] = returned;
        return Ok(results);
    }
    if returned.is_empty() {
        return Ok(results);
    }
    let mut owners = HashMap::new();
    for (at, ride) in rides.iter().enumerate() {
        for ticket in ride.rows.ends.iter().filter_map(|(_, _, ticket)| *ticket) {
            owners.entry(ticket).or_insert(at); // Who asks for the same twice is answered once.
        }
    }
    for row in returned {
        let ticket: Ticket = (row.try_get(0)?, row.try_get(1)?);
        if let Some(owner) = owners.get(&ticket) {
            results[*owner].push(row);
        }
    }
    Ok(results)
}

pub(super) fn answer_all(rides: impl IntoIterator<Item = Ride>, results: Vec<Vec<SqliteRow>>) {
    for (ride, rows) in rides.into_iter().zip(results) {
        let _ = ride.answer.send(Ok(rows));
    }
}

pub(super) fn fail_all(rides: impl IntoIterator<Item = Ride>, error: impl Fn(&'static str) -> StoreError) {
    for ride in rides {
        let _ = ride.answer.send(Err(error(ride.operation)));
    }
}
