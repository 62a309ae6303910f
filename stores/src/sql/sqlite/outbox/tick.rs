//! The text of what a relay asks for.

use hapax_core::ports::{Claim, Claiming, Ended, Instance, Outcome, Tick};

use super::{
    super::super::outbox::{hex, millis, not_sent, status},
    statements::{COLUMNS, Script, row},
};

/// Lanes that one look goes through at most.
const LANES: usize = 500;

/// How a call looks for rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) ordered: bool,
    /// By the host's clock, in milliseconds.
    pub(super) now: i64,
    /// The time before which nothing is looked for; where order is kept, the lane.
    pub(super) from: i64,
}

/// Whether the relay is there, and where order is kept, whether it is the one that sends.
fn is_alive(me: i64) -> String {
    format!("EXISTS (SELECT 1 FROM hapax_outbox_relay WHERE id = {me})")
}

/// All of `tick`.
pub(super) fn script(tick: &Tick, way: Way) -> Script {
    let mut script = Script::default();
    let (me, now, lease) = (tick.instance.id, way.now, millis(tick.lease));
    set_back(&mut script, now, lease);
    alive(&mut script, tick, way);
    end(&mut script, tick, way);
    renew(&mut script, &tick.renewed, now, lease);
    if let Some(claiming) = tick.claiming.filter(|_| !(way.ordered && tick.joins)) {
        claim(&mut script, me, lease, claiming, way);
        if tick.ended.is_empty() {
            script.push(&format!(
                "SELECT {}, ready_at FROM hapax_outbox INDEXED BY hapax_outbox_ready WHERE status = 0 AND ready_at > {now} \
                 ORDER BY ready_at LIMIT 1",
                row::NEXT
            ));
        }
    }
    script
}

/// Relays that were heard of so much later than now were so by another clock: that of the host was set back since. More than any of
/// them waits for its turn to write, after it has asked what time it is.
const SET_BACK: i64 = 60_000;

/// After the host's clock was set back, no claim ends later than one that begins now, nothing else that is due waits, and who is gone is
/// forgotten as if he had been heard of now. Else nothing is looked at: the bound is behind all that waits.
fn set_back(script: &mut Script, now: i64, lease: i64) {
    let later = now.saturating_add(SET_BACK);
    let until = format!("max(coalesce(due_at, 0), iif(owner IS NULL, {now}, {now} + {lease}))");
    script.push(&format!(
        "UPDATE hapax_outbox INDEXED BY hapax_outbox_ready SET ready_at = {until} WHERE status = 0 \
         AND ready_at > (SELECT iif(count(*) > 0, {now}, {}) FROM hapax_outbox_relay WHERE seen_at > {later}) AND ready_at > {until}",
        i64::MAX
    ));
    script.push(&format!("UPDATE hapax_outbox_relay SET seen_at = {now} WHERE seen_at > {later}"));
}

/// That the relay is there; and those are forgotten who have not said so for long. Where order is kept, one of those who are
/// there sends: whoever comes first when the one before is gone.
fn alive(script: &mut Script, tick: &Tick, way: Way) {
    let Tick { instance, joins, stale, lease, .. } = tick;
    let Instance { id, service, host, process } = &**instance;
    let Way { ordered, now, .. } = way;
    if !ordered || *joins {
        script.push(&format!(
            "INSERT INTO hapax_outbox_relay (id, service, host, process, started_at, seen_at) \
             VALUES ({id}, CAST({} AS TEXT), CAST({} AS TEXT), {process}, {now}, {now}) \
             ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at",
            hex(service),
            hex(host)
        ));
    } else {
        script.push(&format!("UPDATE hapax_outbox_relay SET seen_at = {now} WHERE id = {id}"));
    }
    // Where order is kept, who has not said for a lease that he is there has lost what was his.
    let stale = millis(if ordered { *lease } else { *stale });
    script.push(&format!("DELETE FROM hapax_outbox_relay WHERE seen_at < {now} - {stale} AND id <> {id}"));
    if ordered {
        script.push(&format!("SELECT {}, {}", row::ALIVE, is_alive(*id)));
        script.push(&format!(
            "UPDATE hapax_outbox_meta SET value = {id} WHERE name = 'owner' AND {} \
             AND value NOT IN (SELECT id FROM hapax_outbox_relay)",
            is_alive(*id)
        ));
    }
}

fn ids<'c>(claims: impl Iterator<Item = &'c Claim> + Clone) -> String {
    let ids: Vec<String> = claims.clone().filter_map(|claim| Some(hex(claim.id.as_uuid()?.as_bytes()))).collect();
    let mut tokens: Vec<i64> = claims.map(|claim| claim.token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let tokens: Vec<String> = tokens.iter().map(i64::to_string).collect();
    format!("id IN ({}) AND token IN ({}) AND status = 0", ids.join(","), tokens.join(","))
}

fn end(script: &mut Script, tick: &Tick, way: Way) {
    let now = way.now;
    let (sent, others): (Vec<&Ended>, Vec<&Ended>) =
        tick.ended.iter().partition(|ended| ended.outcome == Outcome::Sent);
    let told = format!("SELECT {}, changes()", row::ENDED);
    if !sent.is_empty() {
        let which = ids(sent.iter().map(|ended| &ended.claim));
        script.push(&format!("UPDATE hapax_outbox SET status = 1, ended_at = {now}, lane = NULL WHERE {which}"));
        script.push(&told);
    }
    // What is said of a row that was not sent holds up its key, so that only its owner may say it.
    let alive = if way.ordered {
        format!(" AND {} AND owner = {}", is_alive(tick.instance.id), tick.instance.id)
    } else {
        String::new()
    };
    for of in not_sent(&others) {
        let error = of.error.map_or_else(|| "last_error".to_owned(), |error| format!("CAST({} AS TEXT)", hex(error)));
        let ended = if of.status == status::WAITS { "NULL".to_owned() } else { now.to_string() };
        let lane = if of.status == status::EXPIRED { "NULL" } else { "lane" };
        script.push(&format!(
            "UPDATE hapax_outbox SET status = {}, ready_at = {now} + {}, attempts = attempts - {}, last_error = {error}, \
               ended_at = {ended}, token = 0, owner = NULL, lane = {lane} \
             WHERE id = {} AND token = {} AND status = 0{alive}",
            of.status,
            of.delay,
            of.uncounted,
            hex(of.id.as_bytes()),
            of.token
        ));
        script.push(&told);
    }
}

fn renew(script: &mut Script, renewed: &[Claim], now: i64, lease: i64) {
    if !renewed.is_empty() {
        script.push(&format!(
            "UPDATE hapax_outbox SET ready_at = {now} + {lease} WHERE {} AND ready_at > {now} RETURNING {}, token, id",
            ids(renewed.iter()),
            row::RENEWED
        ));
    }
}

fn claim(script: &mut Script, me: i64, lease: i64, claiming: Claiming, way: Way) {
    let Claiming { token, again, .. } = claiming;
    let now = way.now;
    let which = match (again, way.ordered) {
        // All of what was claimed before, or nothing.
        (true, _) => format!(
            "status = 0 AND ready_at > {now} AND token = {token}{}",
            if way.ordered { format!(" AND {}", is_alive(me)) } else { String::new() }
        ),
        (false, true) => format!("number IN ({})", chosen_in_order(me, claiming, way)),
        (false, false) => format!("number IN ({})", chosen(claiming, way)),
    };
    let attempts = if again { "" } else { ", attempts = attempts + 1" };
    script.push(&format!(
        "UPDATE hapax_outbox SET ready_at = {now} + {lease}, token = {token}, owner = {me}{attempts} WHERE {which}"
    ));
    script.push(&format!(
        "SELECT {}, attempts, coalesce(expires_at <= {now}, 0), {COLUMNS} FROM hapax_outbox INDEXED BY hapax_outbox_ready \
         WHERE status = 0 AND ready_at = {now} + {lease} AND token = {token} ORDER BY number",
        row::CLAIMED
    ));
    if way.ordered && !again {
        script.push(&format!(
            "WITH RECURSIVE {} SELECT {}, lane FROM k WHERE n = {LANES} AND lane IS NOT NULL",
            lanes_from(way.from),
            row::LANE
        ));
    }
}

/// The first that may be claimed.
fn chosen(claiming: Claiming, way: Way) -> String {
    let Claiming { rows, bytes, .. } = claiming;
    let Way { now, from, .. } = way;
    format!(
        "SELECT number FROM (SELECT number, sum(bytes) OVER (ORDER BY ready_at, number \
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead FROM (SELECT number, ready_at, length(body) AS bytes \
           FROM hapax_outbox INDEXED BY hapax_outbox_ready WHERE status = 0 AND ready_at >= {from} AND ready_at <= {now} \
           ORDER BY ready_at, number LIMIT {rows})) WHERE coalesce(ahead, 0) < {bytes}"
    )
}

/// Lanes of which something is open, from one on, numbered.
fn lanes_from(after: i64) -> String {
    let next =
        "SELECT min(m.lane) FROM hapax_outbox AS m INDEXED BY hapax_outbox_lane WHERE m.lane IS NOT NULL AND m.lane";
    format!(
        "k (lane, n) AS (SELECT ({next} > {after}), 1 UNION ALL SELECT ({next} > k.lane), k.n + 1 FROM k \
         WHERE k.lane IS NOT NULL AND k.n < {LANES})"
    )
}

/// The next rows of lanes whose first row may be sent; each only with all of its lane before it. What a relay has claimed that
/// is gone is nobody's any more.
fn chosen_in_order(me: i64, claiming: Claiming, way: Way) -> String {
    let Claiming { rows, bytes, .. } = claiming;
    let Way { now, from, .. } = way;
    // Of each lane no more is looked at than can be claimed.
    format!(
        "WITH RECURSIVE {}, \
         u AS MATERIALIZED (SELECT k.lane, coalesce((SELECT m.number FROM hapax_outbox AS m INDEXED BY hapax_outbox_lane \
             WHERE m.lane IS NOT NULL AND m.lane = k.lane ORDER BY m.number LIMIT 1 OFFSET {rows}), {max}) AS upto FROM k \
           WHERE k.lane IS NOT NULL AND EXISTS (SELECT 1 FROM hapax_outbox_meta WHERE name = 'owner' AND value = {me})), \
         r AS (SELECT m.number, m.lane, length(m.body) AS bytes, \
             row_number() OVER (PARTITION BY m.lane ORDER BY m.number) AS place, \
             sum(NOT (m.status = 0 AND (m.ready_at <= {now} OR coalesce(m.owner <> {me}, 0)))) \
               OVER (PARTITION BY m.lane ORDER BY m.number) AS stuck \
           FROM u CROSS JOIN hapax_outbox AS m INDEXED BY hapax_outbox_lane \
           WHERE m.lane IS NOT NULL AND m.lane = u.lane AND m.number < u.upto), \
         t AS (SELECT number, bytes, place, lane FROM r WHERE stuck = 0 ORDER BY place, lane LIMIT {rows}) \
         SELECT number FROM (SELECT number, sum(bytes) OVER (ORDER BY place, lane \
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead FROM t) WHERE coalesce(ahead, 0) < {bytes}",
        lanes_from(from),
        max = i64::MAX
    )
}
