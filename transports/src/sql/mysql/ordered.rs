//! A take where order is asked for: a few texts in one transaction, each made from the answer to the one before.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use hapax_stores::sql::mysql::wire::{Fault, Server, Wire};
use sqlx::{Row, mysql::MySqlRow};

use super::{
    super::served::{
        asks::Wanted,
        signals::{Looked, Position},
    },
    arguments::{rows, text},
    statements::{self, WINDOW, row},
};

/// Rows that are locked at once, at least: where those before them are locked by others, they are wanted.
const LOCKED_MIN: usize = 16;

/// Gives messages such that one process at a time has a key, and each message only with all before it of its key. What was
/// given, and how far was looked.
///
/// 1. Candidates are due and under no lease. Nothing is given of a key of which one is under a lease, and nothing that comes
///    after one that is open and no candidate.
/// 2. They are given in the order in which they have become due, but none before an earlier one of its key.
/// 3. Somebody may have locked one of them meanwhile, to settle or extend what was under a lease that has run out. Then
///    nothing of its key from there on is given, and others take its place.
pub(super) async fn take(
    wire: &mut Wire,
    server: &Server,
    wanted: Wanted,
    freed: &[Arc<str>],
) -> Result<(Vec<MySqlRow>, Looked), Fault> {
    let text = |statements: Vec<String>| text(server, &statements);
    let candidates = rows(wire.begin(text(statements::ordered_candidates(wanted, freed))).await?);
    let mut giving = read(wire, Giving::new(wanted, &candidates)).await?;
    let (heads, keyed) = giving.keyed();
    let mut firsts = HashMap::new();
    if !heads.is_empty() {
        let keys = rows(wire.steps(text(statements::ordered_keys(wanted.queue, &heads, &keyed))).await?);
        firsts = read(wire, self::firsts(&keys)).await?;
    }
    giving.choose(&firsts);
    while let Some(ids) = giving.next_to_lock() {
        let locked = rows(wire.steps(text(statements::ordered_lock(&ids, wanted.token))).await?);
        read(wire, giving.locked(locked)).await?;
    }
    wire.commit(text(giving.statements())).await?;
    Ok(giving.done())
}

/// What was read in the middle of a transaction. If it cannot be, nothing stays locked.
async fn read<T>(wire: &mut Wire, read: Result<T, sqlx::Error>) -> Result<T, Fault> {
    match read {
        Ok(read) => Ok(read),
        Err(error) => {
            wire.roll_back().await;
            Err(Fault::of_row(error))
        }
    }
}

#[derive(Clone)]
struct Candidate {
    id: i64,
    due: i64,
    bytes: usize,
    key: Option<Vec<u8>>,
}

/// Of each key, the first that holds up those behind it.
type Firsts = HashMap<Vec<u8>, i64>;

struct Giving {
    wanted: Wanted,
    candidates: Vec<Candidate>,
    /// Those that may be given, in the order in which they are, and how many they were.
    open: VecDeque<Candidate>,
    may_be_given: usize,
    locking: Vec<Candidate>,
    given: Vec<(Candidate, MySqlRow)>,
    looked: Looked,
}

impl Giving {
    fn new(wanted: Wanted, rows: &[MySqlRow]) -> Result<Self, sqlx::Error> {
        let mut looked = Looked { now: 0, last: None, more: false, left: false, idle: Duration::ZERO };
        let (mut candidates, mut known, mut in_window) = (Vec::new(), HashSet::new(), 0);
        for row in rows {
            let kind = row.try_get::<i64, _>(0)?;
            if kind == row::LOOKED {
                let took: i64 = row.try_get(3)?;
                looked.now = row.try_get(1)?;
                looked.idle = Duration::from_millis(u64::try_from(took).unwrap_or_default());
                continue;
            }
            let (id, due, bytes): (i64, i64, i64) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            if kind == row::CANDIDATE {
                in_window += 1;
                looked.last = Some(Position { due, id });
            }
            if known.insert(id) {
                let bytes = usize::try_from(bytes).unwrap_or_default();
                candidates.push(Candidate { id, due, bytes, key: row.try_get(4)? });
            }
        }
        looked.more = in_window >= WINDOW;
        let (open, locking, given) = (VecDeque::new(), Vec::new(), Vec::new());
        Ok(Self { wanted, candidates, open, may_be_given: 0, locking, given, looked })
    }

    /// One message of each key, and all that have one.
    fn keyed(&self) -> (Vec<i64>, Vec<i64>) {
        let mut heads: HashMap<&[u8], i64> = HashMap::new();
        let mut keyed = Vec::new();
        for candidate in &self.candidates {
            if let Some(key) = &candidate.key {
                heads.insert(key, candidate.id);
                keyed.push(candidate.id);
            }
        }
        let mut heads: Vec<i64> = heads.into_values().collect();
        heads.sort_unstable();
        keyed.sort_unstable();
        (heads, keyed)
    }

    /// A key that is not in `firsts` was removed meanwhile.
    fn choose(&mut self, firsts: &Firsts) {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.retain(|candidate| match &candidate.key {
            None => true,
            Some(key) => firsts.get(key).is_some_and(|first| candidate.id < *first),
        });
        self.may_be_given = candidates.len();
        candidates.sort_unstable_by_key(|candidate| candidate.id);
        // One that has become due sooner than an earlier one of its key takes its turn with that one.
        let mut latest: HashMap<Vec<u8>, i64> = HashMap::new();
        let turn = |candidate: Candidate| match &candidate.key {
            None => (candidate.due, candidate),
            Some(key) => {
                let latest = latest.entry(key.clone()).or_insert(candidate.due);
                *latest = candidate.due.max(*latest);
                (*latest, candidate)
            }
        };
        let mut turns: Vec<(i64, Candidate)> = candidates.into_iter().map(turn).collect();
        turns.sort_unstable_by_key(|(turn, candidate)| (*turn, candidate.id));
        let mut ahead = 0;
        let fits = |(_, candidate): &(i64, Candidate)| {
            let fits = ahead < self.wanted.bytes_max;
            ahead += candidate.bytes;
            fits
        };
        self.open = turns.into_iter().take_while(fits).map(|(_, candidate)| candidate).collect();
    }

    fn next_to_lock(&mut self) -> Option<Vec<i64>> {
        let wanted = self.wanted.max - self.given.len();
        if wanted == 0 || self.open.is_empty() {
            return None;
        }
        self.locking = self.open.drain(..wanted.max(LOCKED_MIN).min(self.open.len())).collect();
        let mut ids: Vec<i64> = self.locking.iter().map(|candidate| candidate.id).collect();
        ids.sort_unstable();
        Some(ids)
    }

    fn locked(&mut self, rows: Vec<MySqlRow>) -> Result<(), sqlx::Error> {
        let mut locked = HashMap::new();
        for row in rows {
            locked.insert(row.try_get::<i64, _>(2)?, row);
        }
        let mut missing: HashSet<Vec<u8>> = HashSet::new();
        let is_missing = |missing: &HashSet<Vec<u8>>, candidate: &Candidate| {
            candidate.key.as_ref().is_some_and(|key| missing.contains(key))
        };
        for candidate in std::mem::take(&mut self.locking) {
            match locked.remove(&candidate.id).filter(|_| !is_missing(&missing, &candidate)) {
                Some(row) if self.given.len() < self.wanted.max => self.given.push((candidate, row)),
                Some(_) => {}
                None => missing.extend(candidate.key),
            }
        }
        self.open.retain(|candidate| !is_missing(&missing, candidate));
        Ok(())
    }

    fn statements(&self) -> Vec<String> {
        let ids: Vec<i64> = self.given.iter().map(|(candidate, _)| candidate.id).collect();
        let keyed = self.given.iter().filter_map(|(candidate, _)| Some((candidate.id, candidate.key.as_deref()?)));
        statements::ordered_give(self.wanted, &ids, &keyed.collect::<Vec<(i64, &[u8])>>())
    }

    fn done(self) -> (Vec<MySqlRow>, Looked) {
        let left = self.may_be_given > self.given.len();
        let idle = if self.given.is_empty() { self.looked.idle } else { Duration::ZERO };
        let looked = Looked { more: left || self.looked.more, left, idle, ..self.looked };
        (self.given.into_iter().map(|(_, row)| row).collect(), looked)
    }
}

fn firsts(rows: &[MySqlRow]) -> Result<Firsts, sqlx::Error> {
    let first = |row: &MySqlRow| {
        let (is_given, first): (i64, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
        let first = if is_given == 0 { first.unwrap_or(i64::MAX) } else { i64::MIN };
        Ok((row.try_get(1)?, first))
    };
    rows.iter().map(first).collect()
}
