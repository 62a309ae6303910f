//! The text of what a relay asks for.

use hapax_core::ports::{Claim, Claiming, Ended, Instance, Outcome, Tick};

use super::{
    super::{
        super::outbox::{hex, millis, not_sent, status},
        wire::{Server, Text},
    },
    ordered,
    statements::{BY_ID, NOW, READY, columns_of, numbered, row},
};

/// A relay's names, as far as a column takes them.
const NAME_BYTES_MAX: usize = 255;

/// Statements, one after the other.
pub(super) struct Script<'s> {
    server: &'s Server,
    text: Text,
}

impl<'s> Script<'s> {
    pub(super) fn new(server: &'s Server) -> Self {
        Self { server, text: Text::with_capacity(1024) }
    }

    pub(super) fn push(&mut self, statement: &str) {
        self.text.end().sql(&self.server.text(statement));
    }

    pub(super) fn text(self) -> Text {
        self.text
    }
}

/// What a call asks for, and in which way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Way {
    /// Where order is kept.
    pub(super) ordered: bool,
    /// Where order is kept: partitions are shared out anew, and nothing is claimed.
    pub(super) shares: bool,
    /// The time before which nothing is looked for; where order is kept, the lane.
    pub(super) from: i64,
    /// Where order is kept: how many rows of each lane are looked at.
    pub(super) depth: i64,
}

impl Way {
    /// Whether `tick` claims.
    pub(super) fn claiming(self, tick: &Tick) -> Option<Claiming> {
        tick.claiming.filter(|_| !(self.shares || self.ordered && tick.joins))
    }
}

/// All of `tick`; the last answer is the server's time.
pub(super) fn script<'s>(server: &'s Server, tick: &Tick, way: Way) -> Script<'s> {
    let mut script = Script::new(server);
    script.push(&format!("SET @now = {NOW}, @alive = 1"));
    alive(&mut script, tick, way.ordered);
    end(&mut script, tick.instance.id, &tick.ended, way.ordered);
    renew(&mut script, &tick.renewed, millis(tick.lease));
    if way.shares {
        ordered::shares(&mut script, tick.instance.id);
    }
    if let Some(claiming) = way.claiming(tick) {
        let (me, lease) = (tick.instance.id, millis(tick.lease));
        match claiming.again {
            true => again(&mut script, claiming),
            false if way.ordered => ordered::choose(&mut script, me, claiming, way),
            false => choose(&mut script, claiming, way.from),
        }
        claim(&mut script, me, lease, claiming);
        if tick.ended.is_empty() {
            script.push(&format!(
                "SELECT {}, m.ready_at FROM {READY} WHERE m.status = 0 AND m.ready_at > @now ORDER BY m.ready_at LIMIT 1",
                row::NEXT
            ));
        }
    }
    script.push(&format!("SELECT {}, @now", row::NOW));
    script
}

/// That the relay is there; and those are forgotten who have not said so for long. They are found without a lock, so that
/// relays that say so at once do not wait for each other.
fn alive(script: &mut Script<'_>, tick: &Tick, ordered: bool) {
    let Tick { instance, joins, stale, lease, .. } = tick;
    let Instance { id, service, host, process } = &**instance;
    let relay = "hapax.outbox_relay";
    if !ordered || *joins {
        script.push(&format!(
            "INSERT INTO {relay} (id, service, host, process, started_at, seen_at) VALUES ({id}, {}, {}, {process}, @now, @now) \
             ON DUPLICATE KEY UPDATE seen_at = @now",
            hex(cut(service)),
            hex(cut(host))
        ));
    } else {
        // Locked until the commit: while that lasts, what is this relay's stays its.
        script.push(&format!("SELECT COUNT(*) INTO @alive FROM {relay} AS r WHERE r.id = {id} FOR UPDATE"));
        script.push(&format!("UPDATE {relay} SET seen_at = @now WHERE id = {id}"));
    }
    if ordered {
        script.push(&format!("SELECT {}, @alive", row::ALIVE));
    }
    // Where order is kept, who has not said for a lease that he is there has lost what was his.
    let stale = millis(if ordered { *lease } else { *stale });
    script.push(&format!(
        "SELECT CONCAT('[', GROUP_CONCAT(r.id), ']') INTO @stale FROM {relay} AS r \
         WHERE r.seen_at < @now - {stale} AND r.id <> {id}"
    ));
    script.push(&format!(
        "DELETE r FROM JSON_TABLE(@stale, '$[*]' COLUMNS (id BIGINT PATH '$')) AS j STRAIGHT_JOIN {relay} AS r ON r.id = j.id \
         WHERE r.seen_at < @now - {stale}"
    ));
}

/// Of each, `[id, token]` and what else there is.
fn listed<'c>(rows: impl Iterator<Item = (&'c Claim, String)>) -> String {
    let mut list = String::from("[");
    for (claim, more) in rows {
        let Some(id) = claim.id.as_uuid() else { continue };
        if list.len() > 1 {
            list.push(',');
        }
        list.push_str(&format!("[\"{}\",{}{more}]", id.simple(), claim.token));
    }
    list.push(']');
    list
}

/// The rows of a list of ids and tokens, and of what else `columns` says, as far as they still are these claims.
fn claims(list: &str, columns: &str) -> String {
    format!(
        "JSON_TABLE(_utf8mb4 {}, '$[*]' COLUMNS (id CHAR(32) PATH '$[0]', token BIGINT PATH '$[1]'{columns})) AS j \
         STRAIGHT_JOIN {BY_ID} ON m.id = UNHEX(j.id)",
        hex(list)
    )
}

fn end(script: &mut Script<'_>, me: i64, ended: &[Ended], ordered: bool) {
    let (mut sent, others): (Vec<&Ended>, Vec<&Ended>) = ended.iter().partition(|ended| ended.outcome == Outcome::Sent);
    sent.sort_unstable_by_key(|ended| ended.claim.id.as_uuid());
    if !sent.is_empty() {
        let list = claims(&listed(sent.iter().map(|ended| (&ended.claim, String::new()))), "");
        script.push(&format!(
            "UPDATE {list} SET m.status = 1, m.ended_at = @now, m.ready_at = @now, m.lane = NULL \
             WHERE m.token = j.token AND m.status = 0"
        ));
        script.push(&format!("SELECT {}, ROW_COUNT()", row::ENDED));
    }
    if !others.is_empty() {
        // What is said of a row that was not sent holds up its key, so that only its owner may say it.
        let alive = if ordered { format!(" AND @alive = 1 AND m.owner = {me}") } else { String::new() };
        let list = serde_json::Value::from_iter(not_sent(&others).into_iter().map(|of| {
            serde_json::json!([of.id.simple().to_string(), of.token, of.status, of.delay, of.uncounted, of.error])
        }));
        let list = claims(
            &list.to_string(),
            ", status TINYINT PATH '$[2]', delay BIGINT PATH '$[3]', uncounted INT PATH '$[4]', \
             error LONGTEXT CHARACTER SET utf8mb4 PATH '$[5]'",
        );
        script.push(&format!(
            "UPDATE {list} SET m.status = j.status, m.ready_at = @now + j.delay, m.attempts = m.attempts - j.uncounted, \
               m.last_error = COALESCE(j.error, m.last_error), m.ended_at = IF(j.status = {waits}, NULL, @now), m.token = 0, \
               m.owner = NULL, m.lane = IF(j.status = {expired}, NULL, m.lane) \
             WHERE m.token = j.token AND m.status = 0{alive}",
            waits = status::WAITS,
            expired = status::EXPIRED,
        ));
        script.push(&format!("SELECT {}, ROW_COUNT()", row::ENDED));
    }
}

fn renew(script: &mut Script<'_>, renewed: &[Claim], lease: i64) {
    if renewed.is_empty() {
        return;
    }
    let mut renewed: Vec<&Claim> = renewed.iter().collect();
    renewed.sort_unstable_by_key(|claim| claim.id.as_uuid());
    let list = claims(&listed(renewed.into_iter().map(|claim| (claim, String::new()))), "");
    let held = "m.token = j.token AND m.status = 0 AND m.ready_at > @now";
    script.push(&format!("SELECT {}, m.token, m.id FROM {list} WHERE {held} FOR UPDATE", row::RENEWED));
    script.push(&format!("UPDATE {list} SET m.ready_at = @now + {lease} WHERE {held}"));
}

/// Puts what may be claimed into `@numbers`, and whether there is more into `@more`. Rows that others have locked are passed
/// over.
fn choose(script: &mut Script<'_>, claiming: Claiming, from: i64) {
    let Claiming { rows, bytes, .. } = claiming;
    script.push(&format!(
        "SELECT JSON_ARRAYAGG(IF(p.ahead < {bytes}, p.number, NULL)), COUNT(*) >= {rows} OR MAX(p.ahead) >= {bytes} \
         INTO @numbers, @more FROM (SELECT t.number, \
             COALESCE(SUM(t.bytes) OVER (ORDER BY t.ready_at, t.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) \
               AS ahead FROM (SELECT m.number, m.ready_at, m.bytes FROM {READY} \
             WHERE m.status = 0 AND m.ready_at >= {from} AND m.ready_at <= @now \
             ORDER BY m.ready_at, m.number LIMIT {rows} FOR UPDATE SKIP LOCKED) AS t) AS p"
    ));
}

/// What bears the token already. All of it, or nothing: a part of a lane without its first would be sent in the wrong order.
/// Read without locks, since rows that others have not committed yet are among those that are looked through.
fn again(script: &mut Script<'_>, claiming: Claiming) {
    script.push(&format!(
        "SELECT JSON_ARRAYAGG(t.number), 0 INTO @numbers, @more FROM (SELECT m.number FROM {READY} \
         WHERE m.status = 0 AND m.ready_at > @now AND m.token = {} AND @alive = 1 ORDER BY m.ready_at) AS t",
        claiming.token
    ));
}

/// Claims the rows in `@numbers`, as far as they still wait, and tells of them in the order of their commits.
fn claim(script: &mut Script<'_>, me: i64, lease: i64, claiming: Claiming) {
    let Claiming { token, again, .. } = claiming;
    let attempts = if again { "" } else { ", m.attempts = m.attempts + 1" };
    let still = if again { format!(" AND m.token = {token}") } else { String::new() };
    let rows = numbered();
    script.push(&format!(
        "UPDATE {rows} SET m.ready_at = @now + {lease}, m.token = {token}, m.owner = {me}{attempts} WHERE m.status = 0{still}"
    ));
    script.push(&format!(
        "SELECT {}, m.attempts, COALESCE(m.expires_at <= @now, FALSE), {} FROM {rows} WHERE m.token = {token} \
         ORDER BY m.number",
        row::CLAIMED,
        columns_of("m")
    ));
    script.push(&format!("SELECT {}, COALESCE(@more, 0)", row::MORE));
}

/// The relay is gone.
pub(super) fn leave(server: &Server, id: i64) -> Text {
    let mut script = Script::new(server);
    script.push(&format!("DELETE FROM hapax.outbox_relay WHERE id = {id}"));
    script.push(&format!("UPDATE hapax.outbox_partition SET owner = NULL, epoch = epoch + 1 WHERE owner = {id}"));
    script.text()
}

/// Moves up to `rows` rows of `status` that were over `keep` milliseconds ago to the archive, or away. The last answer is of
/// those that have left.
pub(super) fn remove(server: &Server, status: i16, keep: i64, rows: usize, archives: bool) -> Text {
    let mut script = Script::new(server);
    let columns = super::statements::COLUMNS;
    script.push(&format!("SET @now = {NOW}"));
    script.push(&format!(
        "SELECT JSON_ARRAYAGG(t.number) INTO @numbers FROM (SELECT m.number FROM {READY} WHERE m.status = {status} \
         AND m.ready_at <= @now - {keep} ORDER BY m.ready_at, m.number LIMIT {rows} FOR UPDATE SKIP LOCKED) AS t"
    ));
    let over = numbered();
    if archives {
        script.push(&format!(
            "INSERT INTO hapax.outbox_archive ({columns}, status, attempts, stored_at, ended_at) \
             SELECT {}, m.status, m.attempts, m.stored_at, COALESCE(m.ended_at, @now) FROM {over} \
             ON DUPLICATE KEY UPDATE hapax.outbox_archive.attempts = m.attempts",
            columns_of("m")
        ));
    }
    script.push(&format!("DELETE m FROM {over} WHERE m.status = {status}"));
    script.text()
}

/// Changes those of `ids` that have failed: `set` says how.
pub(super) fn change(server: &Server, ids: &[uuid::Uuid], set: &str) -> Text {
    let ids: Vec<String> = ids.iter().map(|id| hex(id.as_bytes())).collect();
    let mut script = Script::new(server);
    script.push(&format!("SET @now = {NOW}"));
    script.push(&format!("UPDATE {BY_ID} SET {set} WHERE m.id IN ({}) AND m.status = 2", ids.join(",")));
    script.text()
}

/// They begin with their first attempt again.
pub(super) const RETRY: &str =
    "m.status = 0, m.attempts = 0, m.ready_at = @now, m.token = 0, m.owner = NULL, m.ended_at = NULL";
/// They count as over.
pub(super) const DISCARD: &str = "m.status = 3, m.ready_at = @now, m.ended_at = @now, m.lane = NULL";

fn cut(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}
