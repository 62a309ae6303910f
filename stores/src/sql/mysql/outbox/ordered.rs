//! SQL for where messages of one key are sent in the order of their commits.
//!
//! Lanes are shared out between relays by partition. A relay that was not heard of for a lease is forgotten: its row goes, for
//! ever, and only then are its partitions anybody's. Who is there keeps his own row locked until his commit; so what he finds
//! to be his is his until then.

use hapax_core::ports::Claiming;

use super::{
    super::super::outbox::{
        as_i64,
        lanes::{PARTITIONS, number, partition},
    },
    statements::{OF_LANE, READY, row},
    tick::{Script, Way},
};

/// Lanes that one look goes through at most.
const LANES: usize = 500;
/// So many claims' rows are looked at, where there are many lanes.
const CLAIMS: i64 = 4;
/// A lane's number is its partition times this, and as many bits of its name's hash: so an index over lanes is one over
/// partitions too. Two names with one number share a lane, which only makes their order stricter.
const OF_PARTITION: i64 = 1 << 49;

/// The number of the lane `name`.
pub(super) fn lane(name: &str) -> i64 {
    partition(name) * OF_PARTITION + (number(name).cast_signed() & (OF_PARTITION - 1))
}

/// Locks the partitions of `lanes` until the commit, each once and in their order, so that two transactions with the same lanes
/// do not lock each other out. In a statement before the one that draws numbers: who waits here draws his after the commit of
/// whom he has waited for.
pub(super) fn lock(lanes: &[i64]) -> String {
    let mut partitions: Vec<i64> = lanes.iter().map(|lane| lane / OF_PARTITION).collect();
    partitions.sort_unstable();
    partitions.dedup();
    let list: Vec<String> = partitions.iter().map(i64::to_string).collect();
    format!(
        "SELECT l.`partition` FROM hapax.outbox_lock AS l FORCE INDEX (PRIMARY) WHERE l.`partition` IN ({}) \
         ORDER BY l.`partition` FOR UPDATE",
        list.join(",")
    )
}

/// What has to be known to share out partitions.
pub(super) fn shares(script: &mut Script<'_>, me: i64) {
    script.push(&format!(
        "SELECT {}, (SELECT COUNT(*) FROM hapax.outbox_relay), \
           (SELECT COUNT(*) FROM hapax.outbox_partition WHERE owner = {me})",
        row::SHARES
    ));
    script.push(&format!(
        "SELECT DISTINCT {}, p.owner FROM hapax.outbox_partition AS p LEFT JOIN hapax.outbox_relay AS r ON r.id = p.owner \
         WHERE p.owner IS NOT NULL AND r.id IS NULL",
        row::GONE
    ));
    // What is beyond its lease is not sent from here any more, and may be taken by others.
    script.push(&format!(
        "SELECT DISTINCT {}, m.lane DIV {OF_PARTITION} FROM {READY} \
         WHERE m.status = 0 AND m.ready_at > @now AND m.owner = {me} AND m.lane IS NOT NULL",
        row::BUSY
    ));
}

/// What this relay finds.
#[derive(Debug, Default)]
pub(super) struct Shares {
    pub(super) relays: i64,
    pub(super) mine: i64,
    pub(super) gone: Vec<i64>,
    pub(super) busy: Vec<i64>,
}

/// Gives up what is beyond its share and not in use, or takes what is nobody's. A partition that was taken meanwhile has
/// another owner by the time its lock is had, and is left.
pub(super) fn share(script: &mut Script<'_>, me: i64, shares: &Shares) {
    let Shares { relays, mine, gone, busy } = shares;
    let fair = PARTITIONS.div_ceil((*relays).max(1).cast_unsigned()).cast_signed();
    let list = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<String>>().join(",");
    if *mine > fair {
        let kept = if busy.is_empty() { String::new() } else { format!(" AND `partition` NOT IN ({})", list(busy)) };
        script.push(&format!(
            "UPDATE hapax.outbox_partition SET owner = NULL, epoch = epoch + 1 WHERE owner = {me}{kept} \
             ORDER BY `partition` LIMIT {}",
            mine - fair
        ));
    } else if *mine < fair {
        let gone = if gone.is_empty() { String::new() } else { format!(" OR owner IN ({})", list(gone)) };
        script.push(&format!(
            "UPDATE hapax.outbox_partition SET owner = {me}, epoch = epoch + 1 WHERE owner IS NULL{gone} \
             ORDER BY `partition` LIMIT {}",
            fair - mine
        ));
    }
}

/// How many rows of each lane a look goes through, if it sees as many lanes as the last one: enough for several claims where all
/// of them may go, and never more than one claims.
pub(super) fn depth(claiming: Option<Claiming>, lanes: i64) -> i64 {
    let rows = claiming.map_or(1, |claiming| as_i64(claiming.rows));
    (rows.saturating_mul(CLAIMS) / lanes.max(1)).clamp(1, rows.max(1))
}

/// Puts the next rows of lanes whose first row may be sent into `@numbers`; each only with all of its lane before it. Of a lane
/// that somebody had before, what he has claimed is nobody's any more.
///
/// Read without locks, since a row that is locked and passed over would be overtaken: whoever may change what makes a row fit
/// is this relay, or has been forgotten.
pub(super) fn choose(script: &mut Script<'_>, me: i64, claiming: Claiming, way: Way) {
    let (Claiming { rows, bytes, .. }, Way { from: after, depth, .. }) = (claiming, way);
    // Of each lane so many rows are looked at: up to one that is found by the index alone.
    script.push(&format!(
        "SELECT COUNT(*), MAX(k.lane), CONCAT('[', GROUP_CONCAT(IF(w.owner = {me} AND @alive = 1, CONCAT('[', k.lane, ',', \
             COALESCE((SELECT m.number FROM {OF_LANE} WHERE m.lane = k.lane ORDER BY m.number LIMIT 1 OFFSET {depth}), \
             {max}), ']'), NULL)), ']') INTO @looked, @last, @lanes \
         FROM (SELECT m.lane FROM {OF_LANE} WHERE m.lane > {after} GROUP BY m.lane ORDER BY m.lane LIMIT {LANES}) AS k \
         LEFT JOIN hapax.outbox_partition AS w ON w.`partition` = k.lane DIV {OF_PARTITION}",
        max = i64::MAX
    ));
    script.push(&format!(
        "SELECT JSON_ARRAYAGG(IF(p.ahead < {bytes}, p.number, NULL)), COUNT(*) >= {rows} OR MAX(p.ahead) >= {bytes} \
             OR COUNT(*) > 0 AND {depth} < {rows} \
         INTO @numbers, @more FROM (SELECT t.number, \
             COALESCE(SUM(t.bytes) OVER (ORDER BY t.place, t.lane ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) \
               AS ahead FROM (SELECT r.number, r.bytes, r.place, r.lane FROM (SELECT m.number, m.bytes, m.lane, \
               ROW_NUMBER() OVER (PARTITION BY m.lane ORDER BY m.number) AS place, \
               SUM(IF(m.status = 0 AND (m.ready_at <= @now OR COALESCE(m.owner <> {me}, FALSE)), 0, 1)) \
                 OVER (PARTITION BY m.lane ORDER BY m.number) AS stuck \
             FROM JSON_TABLE(@lanes, '$[*]' COLUMNS (lane BIGINT PATH '$[0]', upto BIGINT PATH '$[1]')) AS j \
             STRAIGHT_JOIN {OF_LANE} ON m.lane = j.lane AND m.number < j.upto) AS r \
           WHERE r.stuck = 0 ORDER BY r.place, r.lane LIMIT {rows}) AS t) AS p"
    ));
    script.push(&format!("SELECT {}, @looked", row::LANES));
    script.push(&format!("SELECT {}, @last FROM DUAL WHERE @looked >= {LANES}", row::LANE));
}

#[cfg(test)]
mod tests {
    use super::{OF_PARTITION, lane, partition};

    #[test]
    fn a_lane_tells_its_partition() {
        for name in ["", "a", "order-1", "key-999"] {
            assert_eq!(lane(name) / OF_PARTITION, partition(name));
            assert!(lane(name) >= 0);
        }
    }
}
