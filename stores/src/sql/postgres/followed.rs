//! Whether a standby follows for which no commit waits: a fail-over to it would lose what was confirmed. It is no reason to refuse: a standby
//! may be there to be read alone, or to be copied from.

use sqlx::{Executor, PgConnection, Row};

use super::error::Failure;

/// Those that are no backup and no reader of the log of ours or of somebody else's. What else is known of them is for those who may monitor
/// the server; that they are there is for everybody.
const FOLLOWERS: &str = "\
    SELECT count(*) FROM pg_stat_replication AS follower \
    WHERE current_setting('synchronous_standby_names') = '' AND follower.state IS DISTINCT FROM 'backup' \
      AND NOT EXISTS (SELECT FROM pg_replication_slots AS slot \
                      WHERE slot.active_pid = follower.pid AND slot.slot_type = 'logical')";

/// Warns, once for each opening.
pub(super) async fn warn(connection: &mut PgConnection, place: &str) -> Result<(), Failure> {
    let row = connection.fetch_one(sqlx::raw_sql(FOLLOWERS)).await.map_err(Failure::of_read)?;
    let followers: i64 = row.try_get(0).map_err(Failure::of_read)?;
    if followers > 0 {
        tracing::warn!(
            "{place}: {followers} of its standbys follow it asynchronously, so a fail-over to it loses what was confirmed: set \
             `synchronous_standby_names`, as to 'ANY 1 (NAME)', or never promote such a standby"
        );
    }
    Ok(())
}
