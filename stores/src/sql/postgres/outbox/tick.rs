//! The text of what a relay asks for.

use super::{
    ordered,
    statements::{COLUMNS, NO_MESSAGE, NOW, WAITS, WITH_NOW, columns_of},
};

/// What a call asks for. Its arguments come in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Kinds {
    pub(super) sent: bool,
    pub(super) others: bool,
    pub(super) renew: bool,
    pub(super) claim: bool,
    /// Only what bears the token.
    pub(super) again: bool,
    /// Also when the next row may be claimed.
    pub(super) next: bool,
    /// Where order is kept: partitions are shared out anew, and nothing is claimed.
    pub(super) share: bool,
    /// Where order is kept: the relay says that it is there, and nothing is claimed.
    pub(super) join: bool,
}

/// One call of a relay.
///
/// `$1` relay, `$2` service, `$3` host, `$4` process, `$5` stale. Of what was sent: ids, their different tokens. Of what else
/// has ended: arrays of ids, tokens, statuses, delays, attempts that do not count, errors. Of leases that go on: ids, their
/// different tokens, the lease. Of a claim: token, lease, how many, how many bytes, the time before which nothing is looked for.
///
/// No row is changed twice in one statement: beside a claim, which takes what is under no lease, only leases that are not over
/// are ended or go on.
pub(super) fn text(kinds: Kinds, ordered: bool) -> String {
    let mut next = 6;
    let mut arguments = |count: usize| {
        let first = next;
        next += count;
        first
    };
    let held = if kinds.claim { format!("AND m.ready_at + 0 > {NOW}") } else { String::new() };
    let mut rows = vec![format!("SELECT 4, {NOW}, {NO_MESSAGE}")];
    let mut parts = vec![WITH_NOW.to_owned()];
    if ordered {
        ordered::alive(kinds.join, &mut parts, &mut rows);
    } else {
        parts.push(format!(
            "b AS (INSERT INTO hapax.outbox_relay (id, service, host, process, started_at, seen_at) \
               SELECT $1::bigint, $2::text, $3::text, $4::bigint, now, now FROM n \
               ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at), \
             d AS (DELETE FROM hapax.outbox_relay WHERE seen_at < {NOW} - $5::bigint AND id <> $1::bigint)"
        ));
    }
    let mut ended = Vec::new();
    if kinds.sent {
        let (ids, tokens) = (arguments(1), arguments(1));
        parts.push(format!(
            "s AS (UPDATE hapax.outbox AS m SET status = 1, ended_at = {NOW} WHERE m.id = ANY (${ids}::uuid[]) \
               AND m.token = ANY (${tokens}::bigint[]) AND {WAITS} {held} RETURNING 1)"
        ));
        ended.push("(SELECT count(*) FROM s)");
    }
    if kinds.others {
        // What is said of a row that was not sent holds up its key, so that only its owner may say it.
        let alive = if ordered { " AND EXISTS (SELECT FROM b) AND m.owner = $1::bigint" } else { "" };
        parts.push(others(&mut arguments, &format!("{held}{alive}")));
        ended.push("(SELECT count(*) FROM o)");
    }
    if !ended.is_empty() {
        rows.push(format!("SELECT 0, {}, {NO_MESSAGE}", ended.join(" + ")));
    }
    if kinds.renew {
        let (ids, tokens, lease) = (arguments(1), arguments(1), arguments(1));
        parts.push(format!(
            "e AS (UPDATE hapax.outbox AS m SET ready_at = {NOW} + ${lease}::bigint WHERE m.id = ANY (${ids}::uuid[]) \
               AND m.token = ANY (${tokens}::bigint[]) AND {WAITS} AND m.ready_at + 0 > {NOW} RETURNING m.token, m.id)"
        ));
        rows.push(format!("SELECT 1, token, {} FROM e", NO_MESSAGE.replacen("NULL::uuid", "id", 1)));
    }
    if kinds.share {
        ordered::share(&mut parts);
    }
    if kinds.claim && (!ordered || kinds.again) {
        claim(kinds, ordered, &mut arguments, &mut parts, &mut rows);
    } else if kinds.claim {
        ordered::claim(&mut arguments, &mut parts, &mut rows);
    }
    if kinds.next {
        rows.push(format!(
            "SELECT 5, (SELECT m.ready_at FROM hapax.outbox AS m WHERE m.status = 0 AND m.ready_at > {NOW} \
               ORDER BY m.ready_at LIMIT 1), {NO_MESSAGE}"
        ));
    }
    format!("WITH RECURSIVE {} {}", parts.join(", "), rows.join(" UNION ALL "))
}

fn others(arguments: &mut dyn FnMut(usize) -> usize, held: &str) -> String {
    let [ids, tokens, statuses, delays, uncounted, errors] = std::array::from_fn(|at| at).map(|_: usize| arguments(1));
    let at = format!("array_position(${ids}::uuid[], m.id)");
    format!(
        "o AS (UPDATE hapax.outbox AS m SET status = (${statuses}::smallint[])[{at}], \
           ready_at = {NOW} + (${delays}::bigint[])[{at}], attempts = m.attempts - (${uncounted}::int[])[{at}], \
           last_error = coalesce((${errors}::text[])[{at}], m.last_error), \
           ended_at = CASE WHEN (${statuses}::smallint[])[{at}] <> 0 THEN {NOW} END, token = 0, owner = NULL \
         WHERE m.id = ANY (${ids}::uuid[]) AND m.token = (${tokens}::bigint[])[{at}] AND {WAITS} {held} RETURNING 1)"
    )
}

fn claim(
    kinds: Kinds,
    ordered: bool,
    arguments: &mut dyn FnMut(usize) -> usize,
    parts: &mut Vec<String>,
    rows: &mut Vec<String>,
) {
    let [token, lease, most, bytes, from] = std::array::from_fn(|at| at).map(|_: usize| arguments(1));
    let which = if kinds.again {
        // Rare, and what was claimed has a lease: it lies behind now.
        format!("m.ready_at > {NOW} AND m.token = ${token}::bigint")
    } else {
        format!("m.ready_at >= ${from}::bigint AND m.ready_at <= {NOW}")
    };
    // All of what was claimed before, or nothing: a part of a lane without its first would be sent in the wrong order.
    let limit = if kinds.again { String::new() } else { format!("LIMIT ${most}::bigint") };
    let lock = if kinds.again { "FOR UPDATE" } else { "FOR UPDATE SKIP LOCKED" };
    let alive = if ordered { "AND EXISTS (SELECT FROM b)" } else { "" };
    let bytes = if kinds.again { "9223372036854775807".to_owned() } else { format!("${bytes}::bigint") };
    parts.push(format!(
        "t AS MATERIALIZED (SELECT m.id, m.ready_at, octet_length(m.body) AS bytes FROM hapax.outbox AS m \
           WHERE m.status = 0 AND {which} {alive} ORDER BY m.ready_at {limit} {lock}), \
         p AS MATERIALIZED (SELECT id FROM (SELECT id, sum(bytes) OVER \
           (ORDER BY ready_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM t) AS t \
           WHERE coalesce(before, 0) < {bytes})"
    ));
    let counted = if kinds.again { "m.attempts" } else { "m.attempts + 1" };
    parts.push(format!(
        "g AS (UPDATE hapax.outbox AS m SET ready_at = {NOW} + ${lease}::bigint, token = ${token}::bigint, \
           owner = $1::bigint, attempts = {counted} WHERE m.id = ANY (ARRAY(SELECT id FROM p)) \
           RETURNING m.attempts, coalesce(m.expires_at <= {NOW}, false) AS expired, m.number, {})",
        columns_of("m")
    ));
    rows.push(format!("SELECT 2, attempts::bigint, expired, {COLUMNS}, number FROM g"));
    let more = if kinds.again {
        "false".to_owned()
    } else {
        format!("(SELECT count(*) FROM t) >= ${most}::bigint OR (SELECT count(*) FROM t) > (SELECT count(*) FROM p)")
    };
    rows.push(format!("SELECT 3, CASE WHEN {more} THEN 1 ELSE 0 END::bigint, {NO_MESSAGE}"));
}

/// Everything that a call may ask for.
#[cfg(test)]
pub(super) fn kinds(ordered: bool) -> Vec<Kinds> {
    let bit = |bits: u8, at: u8| bits & (1 << at) != 0;
    let kinds = |bits: u8| Kinds {
        sent: bit(bits, 0),
        others: bit(bits, 1),
        renew: bit(bits, 2),
        claim: bit(bits, 3),
        again: bit(bits, 4),
        next: bit(bits, 5),
        share: bit(bits, 6),
        join: bit(bits, 7),
    };
    let fits = |kinds: &Kinds| match *kinds {
        Kinds { claim: false, again: true, .. } | Kinds { claim: false, next: true, .. } => false,
        Kinds { share: true, claim, join, .. } => ordered && !claim && !join,
        Kinds { join: true, claim, .. } => ordered && !claim,
        _ => true,
    };
    (0..=255).map(kinds).filter(fits).collect()
}
