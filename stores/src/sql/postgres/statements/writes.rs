//! What is written: entities, and dedup entries into the newest generation.

use super::{NOW_ONCE, of, side_by_side};

/// What the entity part of a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) enum EntityPart {
    None,
    Update,
    Create,
}

/// What the dedup part of a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) enum DedupPart {
    None,
    Always,
    /// Only if the entity part won.
    IfWon,
}

/// What becomes of a dedup entry that is there already: the older one counts, and stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) enum IfThere {
    /// The whole statement fails. Every other insert costs less.
    Refused,
    /// It is left out.
    Skipped,
}

impl IfThere {
    const fn clause(self) -> &'static str {
        match self {
            Self::Refused => "",
            Self::Skipped => " ON CONFLICT DO NOTHING",
        }
    }
}

/// What a group of writes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct Kinds {
    pub(in super::super) updates: bool,
    pub(in super::super) creates: bool,
    pub(in super::super) dedup: bool,
}

/// [`NOW_ONCE`] where many rows ask for it: worked out with the first of them, and then a number.
fn now_for_all() -> String {
    format!("(SELECT {NOW_ONCE})")
}

/// How many outbox entries a write gives. What few need costs every plan that has it some microseconds, so single writes have
/// texts without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) enum Waiting {
    None,
    One,
    Any,
}

/// Entries that are taken apart without a subquery, where none waited before: nearly all there are.
const FEW: usize = 3;

/// The outbox entries with the times since when they wait, and the earliest of these: new ones as of `now`, known ones as
/// they were. `given` holds 40 bytes of each entry, `old` 48.
fn pending(waiting: Waiting, now: &str, given: &str, old: &str, since: &str) -> [String; 2] {
    let at = |entry: &str| {
        format!(
            "{entry} || CASE WHEN position({entry} in {old}) > 0 THEN substr({old}, position({entry} in {old}) + 40, 8) \
             ELSE int8send({now}) END"
        )
    };
    let list = match waiting {
        Waiting::None => "NULL".to_owned(),
        Waiting::One => at(given),
        Waiting::Any => {
            let few = |count: usize| -> String {
                let entry = |n: usize| format!("substr({given}, {}, 40) || int8send({now})", n * 40 + 1);
                let all: Vec<String> = (0..count).map(entry).collect();
                format!("WHEN {old} IS NULL AND length({given}) = {} THEN {} ", count * 40, all.join(" || "))
            };
            let (one, few): (_, String) = (at(given), (2..=FEW).map(few).collect());
            let each = at("w.entry");
            format!(
                "CASE WHEN {given} IS NULL THEN NULL WHEN length({given}) = 40 THEN {one} {few}\
                 ELSE (SELECT string_agg({each}, ''::bytea ORDER BY w.i) \
                   FROM (SELECT i, substr({given}, i * 40 + 1, 40) AS entry \
                     FROM generate_series(0, length({given}) / 40 - 1) AS i) AS w) END"
            )
        }
    };
    let since = match waiting {
        Waiting::None => "NULL".to_owned(),
        Waiting::One => format!("coalesce({since}, {now})"),
        Waiting::Any => format!("CASE WHEN {given} IS NOT NULL THEN coalesce({since}, {now}) END"),
    };
    [list, since]
}

/// `SET` of an update by a row `r`. A clean-up has no state: it stays.
fn set(waiting: Waiting, now: &str, r: &dyn Fn(&str) -> String) -> String {
    let [list, since] = pending(waiting, now, &r("pending"), "e.pending", "e.pending_since");
    let [token, completed, given, outbox, state] = ["token", "completed", "pending", "outbox", "state"].map(r);
    format!(
        "version = e.version + 1, token = {token}, changed_at = {now}, \
         completed_at = CASE WHEN {completed} THEN coalesce(e.completed_at, {now}) END, \
         pending_since = {since}, watched = e.watched OR {given} IS NOT NULL, pending = {list}, \
         outbox = {outbox}, state = coalesce({state}, e.state)"
    )
}

/// `SELECT` of a new entity by a row `r`, with the floor `f`.
fn new(waiting: Waiting, now: &str, r: &dyn Fn(&str) -> String) -> String {
    let [list, since] = pending(waiting, now, &r("pending"), "NULL::bytea", "NULL::bigint");
    let [scope, key, token, completed, given, outbox, state] =
        ["scope", "key", "token", "completed", "pending", "outbox", "state"].map(r);
    format!(
        "SELECT {scope}, {key}, f.version + 1, {token}, {now}, CASE WHEN {completed} THEN {now} END, {since}, \
           {given} IS NOT NULL, {list}, {outbox}, coalesce({state}, ''::bytea)"
    )
}

const COLUMNS: &str =
    "(scope, key, version, token, changed_at, completed_at, pending_since, watched, pending, outbox, state)";

/// One write, without arrays, into the newest generation, which lies in `slot`.
///
/// Of the entity part: `$1` token, `$2` scope, `$3` key, `$4` expected version, `$5` completed, `$6` pending, `$7` outbox,
/// `$8` state. Of the dedup part: the next six, generation, key, attempt, fingerprint, time, reply.
///
/// Rows are `token, version`, and of a dedup part `null, generation`; where that is missing, the generation is not the
/// newest any more and nothing was written.
pub(in super::super) fn one(
    entity: EntityPart,
    waiting: Waiting,
    dedup: DedupPart,
    if_there: IfThere,
    slot: i16,
) -> String {
    let types = |column: &str| {
        let (at, kind) = match column {
            "token" => (1, "bigint"),
            "scope" => (2, "bigint"),
            "key" => (3, "text"),
            "expected" => (4, "bigint"),
            "completed" => (5, "boolean"),
            "pending" => (6, "bytea"),
            "outbox" => (7, "bytea"),
            _ => (8, "bytea"),
        };
        format!("${at}::{kind}")
    };
    let first = if entity == EntityPart::None { 1 } else { 9 };
    let (mut parts, mut rows) = (Vec::new(), Vec::new());
    let gate = if dedup == DedupPart::None { "" } else { "EXISTS (SELECT FROM g)" };
    if dedup != DedupPart::None {
        parts.push(format!(
            "g AS MATERIALIZED (SELECT id FROM hapax.generation WHERE id = ${first} AND closed_at IS NULL)"
        ));
    }
    match entity {
        EntityPart::None => {}
        EntityPart::Update => {
            let and_gate = if gate.is_empty() { String::new() } else { format!(" AND {gate}") };
            let set = set(waiting, NOW_ONCE, &types);
            let update = format!(
                "UPDATE hapax.entity AS e SET {set} \
                 WHERE e.scope = $2 AND e.key = $3 AND e.version = $4{and_gate} RETURNING e.token, e.version"
            );
            if gate.is_empty() {
                return update;
            }
            parts.push(format!("u AS ({update})"));
            rows.push("SELECT token, version FROM u");
        }
        EntityPart::Create => {
            let where_gate = if gate.is_empty() { String::new() } else { format!(" WHERE {gate}") };
            let new = new(waiting, NOW_ONCE, &types);
            // The expected version is null here, and has a place all the same.
            parts.push(format!(
                "u AS (INSERT INTO hapax.entity AS e {COLUMNS} {new} FROM hapax.floor AS f{where_gate} \
                 ON CONFLICT (scope, key) DO NOTHING RETURNING e.token, e.version), x AS (SELECT $4::bigint)"
            ));
            rows.push("SELECT token, version FROM u");
        }
    }
    if dedup != DedupPart::None {
        let [key, attempt, fingerprint, time, reply] = [1, 2, 3, 4, 5].map(|n| first + n);
        let won = if dedup == DedupPart::IfWon { " WHERE EXISTS (SELECT FROM u)" } else { "" };
        parts.push(format!(
            "d AS (INSERT INTO hapax.dedup_{slot} (key, attempt, fingerprint, time, reply) \
             SELECT ${key}::bytea, ${attempt}::bytea, ${fingerprint}::bytea, ${time}::bigint, ${reply}::bytea \
             FROM g{won}{})",
            if_there.clause()
        ));
        rows.push("SELECT NULL::bigint, id FROM g");
    }
    format!("WITH {} {}", parts.join(", "), rows.join(" UNION ALL "))
}

/// A group of writes, as arrays: of the updates `$1` tokens, `$2` scopes, `$3` keys, `$4` expected versions, `$5` completed,
/// `$6` pending, `$7` outboxes, `$8` states; then the same of the new ones, without expected versions; then the generation,
/// and of the dedup entries keys, attempts, fingerprints, times, replies, and the token of the write that has to win, or
/// null. What there is none of has no place.
///
/// One row: the generation, where there is a dedup part and it still is the newest; tokens of the updates that won, in their
/// order, each one version above what was expected; tokens and versions of the new ones.
pub(in super::super) fn group(kinds: Kinds, if_there: IfThere, slot: i16) -> String {
    const UPDATES: [&str; 8] = ["token", "scope", "key", "expected", "completed", "pending", "outbox", "state"];
    const CREATES: [&str; 7] = ["token", "scope", "key", "completed", "pending", "outbox", "state"];
    const ENTRIES: [&str; 6] = ["key", "attempt", "fingerprint", "time", "reply", "token"];
    let column = |name: &str| format!("r.{name}");
    let now = now_for_all();
    let mut next = 1;
    let mut arrays = |types: &[&str], columns: &[&str]| {
        let list: Vec<String> = types.iter().zip(next..).map(|(kind, at)| format!("${at}::{kind}[]")).collect();
        next += types.len();
        side_by_side(&list, columns)
    };
    let (mut updates, mut creates) = (String::new(), String::new());
    if kinds.updates {
        updates = arrays(&["bigint", "bigint", "text", "bigint", "boolean", "bytea", "bytea", "bytea"], &UPDATES);
    }
    if kinds.creates {
        creates = arrays(&["bigint", "bigint", "text", "boolean", "bytea", "bytea", "bytea"], &CREATES);
    }
    let (mut parts, mut winners) = (Vec::new(), Vec::new());
    let mut row = ["NULL::bigint", "NULL::bigint[]", "NULL::bigint[]", "NULL::bigint[]"];
    let (mut gate, mut from_gate) = ("", "");
    let mut entries = String::new();
    if kinds.dedup {
        let generation = next;
        let types = ["bytea", "bytea", "bytea", "bigint", "bytea", "bigint"];
        let list: Vec<String> = types.iter().zip(next + 1..).map(|(kind, at)| format!("${at}::{kind}[]")).collect();
        entries = side_by_side(&list, &ENTRIES);
        parts.push(format!(
            "g AS MATERIALIZED (SELECT id FROM hapax.generation WHERE id = ${generation} AND closed_at IS NULL)"
        ));
        (gate, from_gate) = (" AND EXISTS (SELECT FROM g)", " WHERE EXISTS (SELECT FROM g)");
        row[0] = "(SELECT id FROM g)";
    }
    if kinds.updates {
        let set = set(Waiting::Any, &now, &column);
        parts.push(format!(
            "u AS (UPDATE hapax.entity AS e SET {set} FROM {updates} \
             WHERE {} AND e.version = r.expected{gate} RETURNING e.token)",
            of("r")
        ));
        winners.push("SELECT token FROM u");
        row[1] = "(SELECT array_agg(token) FROM u)";
    }
    if kinds.creates {
        let new = new(Waiting::Any, &now, &column);
        parts.push(format!(
            "c AS (INSERT INTO hapax.entity AS e {COLUMNS} {new} FROM hapax.floor AS f CROSS JOIN {creates}{from_gate} \
             ON CONFLICT (scope, key) DO NOTHING RETURNING e.token, e.version)"
        ));
        winners.push("SELECT token FROM c");
        (row[2], row[3]) = ("(SELECT array_agg(token) FROM c)", "(SELECT array_agg(version) FROM c)");
    }
    if kinds.dedup {
        let won = match winners.is_empty() {
            true => String::new(),
            false => format!(" OR r.token IN ({})", winners.join(" UNION ALL ")),
        };
        let if_there = if_there.clause();
        parts.push(format!(
            "d AS (INSERT INTO hapax.dedup_{slot} (key, attempt, fingerprint, time, reply) \
             SELECT r.key, r.attempt, r.fingerprint, r.time, r.reply FROM g CROSS JOIN {entries} \
             WHERE r.token IS NULL{won}{if_there})"
        ));
    }
    format!("WITH {} SELECT {}", parts.join(", "), row.join(", "))
}
