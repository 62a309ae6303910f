//! The world between two steps, as plain data.

use smallvec::SmallVec;

/// What may go wrong, and how often in one run. What is not counted here may happen any number of times: conflicts,
/// refused settlements' redeliveries, the sweeper at rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Budgets {
    /// A worker stops for good, between any two calls or within one.
    pub crashes: u8,
    /// A process stops, with all workers in it.
    pub process_crashes: u8,
    /// A call is done, or of a finish or an insert any part, and fails with an unknown outcome.
    pub unknown: u8,
    /// A call is not done and fails; of a dispatch one message, or one and all after it.
    pub refused: u8,
    /// A message is given once more, though nobody has lost it: its producer has sent it again, or the broker has.
    pub duplicates: u8,
    /// A write fails with an unknown outcome, and is done at any later moment or never.
    pub delayed: u8,
    /// A lease runs out while its holder works on.
    pub expiries: u8,
    /// A dedup entry is forgotten.
    pub evictions: u8,
    /// A save or a clean-up wins and is told that it lost, as when a client library repeats a request.
    pub own_conflicts: u8,
    /// The sweeper passes while others work.
    pub sweeps: u8,
    /// A pass takes longer than its deadline.
    pub late: u8,
    /// An entity is read as it was before its last save.
    pub stale_loads: u8,
    /// An outgoing message can never be sent, and is set aside instead.
    pub unroutable: u8,
}

/// Highest budget: three bits, so that two sets of budgets can be compared at once.
const BUDGET_MAX: u8 = 7;
/// The bit above each budget.
const ABOVE: u64 = 0x8_8888_8888_8888;

impl Budgets {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        crashes: 0,
        process_crashes: 0,
        unknown: 0,
        refused: 0,
        duplicates: 0,
        delayed: 0,
        expiries: 0,
        evictions: 0,
        own_conflicts: 0,
        sweeps: 0,
        late: 0,
        stale_loads: 0,
        unroutable: 0,
    };

    const fn all(self) -> [u8; 13] {
        let Self { crashes, process_crashes, unknown, refused, duplicates, delayed, .. } = self;
        let Self { expiries, evictions, own_conflicts, sweeps, late, stale_loads, unroutable, .. } = self;
        [
            crashes,
            process_crashes,
            unknown,
            refused,
            duplicates,
            delayed,
            expiries,
            evictions,
            own_conflicts,
            sweeps,
            late,
            stale_loads,
            unroutable,
        ]
    }

    /// All of them in one number.
    pub(super) fn packed(self) -> u64 {
        self.all().iter().rev().fold(0, |packed, budget| packed << 4 | u64::from(*budget))
    }

    pub(super) fn unpacked(packed: u64) -> Self {
        let [
            crashes,
            process_crashes,
            unknown,
            refused,
            duplicates,
            delayed,
            expiries,
            evictions,
            own_conflicts,
            sweeps,
            late,
            stale_loads,
            unroutable,
        ] = std::array::from_fn(|at| (packed >> (4 * at)) as u8 & BUDGET_MAX);
        Self {
            crashes,
            process_crashes,
            unknown,
            refused,
            duplicates,
            delayed,
            expiries,
            evictions,
            own_conflicts,
            sweeps,
            late,
            stale_loads,
            unroutable,
        }
    }

    /// Whether each is low enough to be explored.
    pub(super) fn fit(self) -> bool {
        self.all().iter().all(|budget| *budget <= BUDGET_MAX)
    }
}

/// Whether no budget of `one` is below that of `other`; both packed.
pub(super) const fn at_least(one: u64, other: u64) -> bool {
    ((one | ABOVE) - other) & ABOVE == ABOVE
}

/// An entity's row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Row {
    /// 0: there is none.
    pub(super) version: u8,
    pub(super) entity: u32,
    /// The row before the last save, for stale reads.
    pub(super) before: (u8, u32),
}

/// A running task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Task {
    pub(super) node: u32,
    /// Which of its messages are still under its lease, as bits.
    pub(super) holds: u8,
    /// How many dedup entries it must see, where that is a matter of its session.
    pub(super) seen: u8,
    /// Which of its messages had taken effect when it last looked, as bits.
    pub(super) looked: u8,
}

/// A copy in a queue: which message, and how often it has been given once it is given.
pub(super) type Ready = (u8, u8);
/// Names in a list that is short.
pub(super) type Few = SmallVec<[u32; 6]>;

/// Everything there is between two steps. Lists that have no order are sorted, and tasks have no identity, so that worlds
/// that differ in names alone are one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) rows: SmallVec<[Row; 2]>,
    /// Dedup entries, by name; in the order of their insertion if reads may lag, else sorted.
    pub(super) marks: Few,
    /// Outgoing messages that have left, by name.
    pub(super) sent: Few,
    /// Outgoing messages that ever stood in a committed outbox, by name.
    pub(super) stored: Few,
    /// Outgoing messages that can never be sent and were set aside, by name.
    pub(super) parked: SmallVec<[u32; 4]>,
    pub(super) ready: SmallVec<[Ready; 6]>,
    pub(super) tasks: SmallVec<[Task; 3]>,
    /// Writes under way, by name.
    pub(super) limbo: SmallVec<[u32; 4]>,
    /// Messages that were set aside.
    pub(super) letters: SmallVec<[u8; 8]>,
    /// Messages whose effects were ever committed, as bits.
    pub(super) effects: u64,
    /// Attempts drawn for each message; kept only where nothing is reduced.
    pub(super) drawn: SmallVec<[u8; 16]>,
    /// Calls of services outside, by name; those without a key as often as they were made.
    pub(super) outside: SmallVec<[u32; 2]>,
    /// Keys whose entries were folded, as bits.
    pub(super) folded: u64,
    pub(super) left: Budgets,
}

fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let [first, rest @ ..] = bytes {
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    number
}

// Its casts cut off nothing: what is read was written from the same types.
impl State {
    /// All but the budgets, appended to `out`.
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        for list in [&self.marks, &self.sent, &self.stored] {
            number(out, list.len() as u64);
            list.iter().for_each(|name| number(out, u64::from(*name)));
        }
        number(out, self.rows.len() as u64);
        for row in &self.rows {
            out.extend([row.version, row.before.0]);
            number(out, u64::from(row.entity));
            number(out, u64::from(row.before.1));
        }
        number(out, self.ready.len() as u64);
        self.ready.iter().for_each(|(copy, given)| out.extend([copy, given]));
        number(out, self.tasks.len() as u64);
        for task in &self.tasks {
            number(out, u64::from(task.node));
            out.extend([task.holds, task.seen, task.looked]);
        }
        number(out, self.limbo.len() as u64);
        self.limbo.iter().for_each(|op| number(out, u64::from(*op)));
        number(out, self.letters.len() as u64);
        out.extend_from_slice(&self.letters);
        number(out, self.effects);
        number(out, self.parked.len() as u64);
        self.parked.iter().for_each(|name| number(out, u64::from(*name)));
        number(out, self.drawn.len() as u64);
        out.extend_from_slice(&self.drawn);
        number(out, self.outside.len() as u64);
        self.outside.iter().for_each(|name| number(out, u64::from(*name)));
        number(out, self.folded);
    }

    pub(super) fn unpack(mut bytes: &[u8], left: u64) -> Self {
        fn list(bytes: &mut &[u8]) -> Few {
            (0..read(bytes)).map(|_| read(bytes) as u32).collect()
        }
        fn byte(bytes: &mut &[u8]) -> u8 {
            let first = bytes[0];
            *bytes = &bytes[1..];
            first
        }
        let b = &mut bytes;
        let (marks, sent, stored) = (list(b), list(b), list(b));
        let task = |b: &mut &[u8]| Task { node: read(b) as u32, holds: byte(b), seen: byte(b), looked: byte(b) };
        let row = |b: &mut &[u8]| {
            let (version, before) = (byte(b), byte(b));
            Row { version, entity: read(b) as u32, before: (before, read(b) as u32) }
        };
        Self {
            marks,
            sent,
            stored,
            rows: (0..read(b)).map(|_| row(b)).collect(),
            ready: (0..read(b)).map(|_| (byte(b), byte(b))).collect(),
            tasks: (0..read(b)).map(|_| task(b)).collect(),
            limbo: (0..read(b)).map(|_| read(b) as u32).collect(),
            letters: (0..read(b)).map(|_| byte(b)).collect(),
            effects: read(b),
            parked: (0..read(b)).map(|_| read(b) as u32).collect(),
            drawn: (0..read(b)).map(|_| byte(b)).collect(),
            outside: (0..read(b)).map(|_| read(b) as u32).collect(),
            folded: read(b),
            left: Budgets::unpacked(left),
        }
    }

    /// Nobody works, nothing waits, nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && self.ready.is_empty() && self.limbo.is_empty()
    }

    pub(super) fn row(&self, row: u8) -> Row {
        self.rows.get(usize::from(row)).copied().unwrap_or_default()
    }

    pub(super) fn set_row(&mut self, row: u8, to: Row) {
        if self.rows.len() <= usize::from(row) {
            self.rows.resize(usize::from(row) + 1, Row::default());
        }
        self.rows[usize::from(row)] = to;
    }

    /// Whether the message has ever taken effect.
    pub(super) const fn has_effect(&self, message: u8) -> bool {
        self.effects >> message & 1 == 1
    }
}

/// Adds `name` where it belongs, if it is not there.
pub(super) fn insert_sorted<T: Ord + Copy, const N: usize>(list: &mut SmallVec<[T; N]>, name: T)
where
    [T; N]: smallvec::Array<Item = T>,
{
    if let Err(at) = list.binary_search(&name) {
        list.insert(at, name);
    }
}

/// Adds `name` where it belongs, once more if it is there.
pub(super) fn push_sorted<T: Ord + Copy, const N: usize>(list: &mut SmallVec<[T; N]>, name: T)
where
    [T; N]: smallvec::Array<Item = T>,
{
    let at = list.partition_point(|other| *other <= name);
    list.insert(at, name);
}
