//! What a group writes, once its entities are locked and it is known who wins.

use std::collections::HashMap;

use sqlx::{Row, mysql::MySqlArguments};

use super::{
    super::{group::Changed, rows::DedupRow},
    arguments::{Bind, Text},
    connection::Answer,
    rows::{self, Columns, EntityRow},
    statements::CLEANS,
    write::Change,
};

/// What a row of a text has besides its bytes, which are two each.
const ROW_TEXT_BYTES: usize = 200;

/// What the first step has shown.
#[derive(Debug, Default)]
pub(super) struct Locked<'a> {
    /// The generation still is the newest, and stays it until the transaction ends.
    pub(super) is_newest: bool,
    floor: i64,
    entities: HashMap<(i64, &'a [u8]), LockedEntity<'a>>,
    now: i64,
}

/// An entity as it is, and stays until the transaction ends.
#[derive(Debug)]
struct LockedEntity<'a> {
    version: i64,
    completed_at: Option<i64>,
    pending_since: Option<i64>,
    watched: bool,
    pending: &'a [u8],
}

impl<'a> Locked<'a> {
    /// `answers`: of the generation and of the floor, where they were asked for, of entities, and of the time.
    pub(super) fn read(answers: &'a [Answer], generation: bool, floor: bool) -> Result<Self, sqlx::Error> {
        let mut locked = Self::default();
        let mut answers = answers;
        if generation && let [first, rest @ ..] = answers {
            locked.is_newest = !first.rows.is_empty();
            answers = rest;
        }
        if floor && let [first, rest @ ..] = answers {
            locked.floor = first.rows.first().ok_or(sqlx::Error::RowNotFound)?.number(0)?;
            answers = rest;
        }
        let [entities @ .., now] = answers else { return Err(sqlx::Error::RowNotFound) };
        for row in entities.iter().flat_map(|answer| &answer.rows) {
            let entity = LockedEntity {
                version: row.number(2)?,
                completed_at: row.try_get(3)?,
                pending_since: row.try_get(4)?,
                watched: row.try_get::<i8, _>(5)? != 0,
                pending: row.bytes(6)?.unwrap_or_default(),
            };
            locked.entities.insert((row.number(0)?, row.bytes(1)?.unwrap_or_default()), entity);
        }
        locked.now = now.rows.first().ok_or(sqlx::Error::RowNotFound)?.number(0)?;
        Ok(locked)
    }
}

/// A row of an entity as it is written.
#[derive(Debug)]
pub(super) struct Put<'a> {
    scope: i64,
    key: &'a [u8],
    version: i64,
    changed_at: i64,
    completed_at: Option<i64>,
    pending_since: Option<i64>,
    /// Or [`CLEANS`].
    watched: i8,
    pending: Option<Vec<u8>>,
    outbox: &'a [u8],
    state: &'a [u8],
}

impl<'a> Put<'a> {
    /// Of an entity that is as it is expected to be, as far as can be told without looking. Its times come [with the
    /// server's](Self::at).
    pub(super) fn expected(row: &'a EntityRow, gives_way: bool) -> Self {
        let watched = if gives_way { CLEANS } else { i8::from(row.pending.is_some()) };
        Self {
            scope: row.scope,
            key: row.key.as_str().as_bytes(),
            version: row.expected.unwrap_or_default() + 1,
            changed_at: 0,
            completed_at: row.completed.then_some(0),
            pending_since: row.pending.as_ref().map(|_| 0),
            watched,
            pending: row.pending.clone(),
            outbox: &row.outbox,
            state: if gives_way { &[] } else { &row.state },
        }
    }

    /// The server's time, for all that has none so far.
    pub(super) fn at(&mut self, now: i64) {
        self.changed_at = now;
        self.completed_at = self.completed_at.map(|_| now);
        self.pending_since = self.pending_since.map(|_| now);
        if let Some(pending) = &mut self.pending {
            pending.extend_from_slice(&now.to_be_bytes());
        }
    }

    pub(super) const fn version(&self) -> i64 {
        self.version
    }

    pub(super) const fn place(&self) -> (i64, &[u8]) {
        (self.scope, self.key)
    }

    pub(super) fn write(&self, text: &mut Text) {
        text.sql("(").number(self.scope).sql(", ").bytes(self.key).sql(", ").number(self.version);
        text.sql(", ").number(self.changed_at).sql(", ").number_or_null(self.completed_at);
        text.sql(", ").number_or_null(self.pending_since).sql(", ").number(self.watched.into()).sql(", ");
        text.bytes_or_null(self.pending.as_deref()).sql(", ").bytes(self.outbox).sql(", ").bytes(self.state).sql(")");
    }

    pub(super) fn arguments(&self) -> MySqlArguments {
        let mut arguments = MySqlArguments::default();
        self.bind(&mut arguments);
        arguments
    }

    pub(super) fn bind(&self, arguments: &mut MySqlArguments) {
        arguments.bind(self.scope).bind(self.key).bind(self.version).bind(self.changed_at).bind(self.completed_at);
        arguments.bind(self.pending_since).bind(self.watched).bind(self.pending.as_deref());
        arguments.bind(self.outbox).bind(self.state);
    }

    pub(super) fn text_bytes(&self) -> usize {
        let waiting = self.pending.as_ref().map_or(0, Vec::len);
        ROW_TEXT_BYTES + 2 * (self.key.len() + waiting + self.outbox.len() + self.state.len())
    }
}

/// What is written, each kind in the order of its keys, and what each member is told once it is.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) saves: Vec<Put<'a>>,
    pub(super) clean_ups: Vec<Put<'a>>,
    pub(super) creates: Vec<Put<'a>>,
    pub(super) dedup: Vec<&'a DedupRow>,
    pub(super) changed: Vec<Changed>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(group: &'a [Change], locked: &Locked<'_>) -> Self {
        let changed = Vec::with_capacity(group.len());
        let mut plan =
            Self { saves: Vec::new(), clean_ups: Vec::new(), creates: Vec::new(), dedup: Vec::new(), changed };
        for change in group {
            let put = put(change, locked);
            // The dedup entry of a save is written with it or not at all.
            if put.is_some() || change.entity.is_none() || !change.only_if_won {
                plan.dedup.extend(&change.done);
            }
            plan.changed.push(put.as_ref().map_or_else(|| change.unless_won(), |put| Changed::At(put.version)));
            if let (Some(put), Some(row)) = (put, &change.entity) {
                match row.expected {
                    None => plan.creates.push(put),
                    Some(_) if change.gives_way => plan.clean_ups.push(put),
                    Some(_) => plan.saves.push(put),
                }
            }
        }
        for rows in [&mut plan.saves, &mut plan.clean_ups, &mut plan.creates] {
            rows.sort_unstable_by_key(|row| (row.scope, row.key));
        }
        plan.dedup.sort_by_key(|row| row.key);
        plan
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_entities() && self.dedup.is_empty()
    }

    pub(super) fn has_entities(&self) -> bool {
        !self.saves.is_empty() || !self.clean_ups.is_empty() || !self.creates.is_empty()
    }

    /// How long a text of it may be.
    pub(super) fn text_bytes(&self) -> usize {
        let puts = self.saves.iter().chain(&self.clean_ups).chain(&self.creates);
        let dedup = self.dedup.iter().map(|row| ROW_TEXT_BYTES + 2 * row.size());
        puts.map(Put::text_bytes).sum::<usize>() + dedup.sum::<usize>() + 10 * ROW_TEXT_BYTES
    }
}

/// The row that a member writes; `None` where it has none, or loses.
fn put<'a>(change: &'a Change, locked: &Locked<'_>) -> Option<Put<'a>> {
    let row = change.entity.as_ref()?;
    let key = row.key.as_str().as_bytes();
    let now = locked.now;
    let entity = locked.entities.get(&(row.scope, key));
    let version = match (row.expected, entity) {
        (Some(expected), Some(entity)) if entity.version == expected => expected + 1,
        (None, None) => locked.floor + 1,
        _ => return None,
    };
    let pending = row.pending.as_ref();
    Some(Put {
        scope: row.scope,
        key,
        version,
        changed_at: now,
        completed_at: row.completed.then(|| entity.and_then(|entity| entity.completed_at).unwrap_or(now)),
        pending_since: pending.map(|_| entity.and_then(|entity| entity.pending_since).unwrap_or(now)),
        watched: i8::from(pending.is_some() || entity.is_some_and(|entity| entity.watched)),
        pending: pending.map(|given| rows::waiting(given, entity.map_or(&[], |entity| entity.pending), now)),
        outbox: &row.outbox,
        state: if change.gives_way { &[] } else { &row.state }, // Of a clean-up it stays as it is.
    })
}

pub(super) fn bind_dedup(arguments: &mut MySqlArguments, row: &DedupRow) {
    arguments.bind(&row.key.as_bytes()[..]).bind(&row.attempt.as_bytes()[..]).bind(&row.fingerprint.as_bytes()[..]);
    arguments.bind(row.time).bind(row.reply.as_deref());
}
