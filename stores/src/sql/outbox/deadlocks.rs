//! Batches of an import that a deadlock has undone.

use super::EnqueueError;

/// Batches that one after another were lost to deadlocks, after which an import ends. Each of them was got in the way of by a
/// transaction that went on, so this many in a row mean that somebody holds rows of both tables all the time.
const DEADLOCKS_MAX: u32 = 100;

/// What PostgreSQL and MariaDB say of a transaction that they have rolled back for the sake of another one.
const DEADLOCKS: [&str; 2] = ["40001", "40P01"];

/// How many there were since the last batch that was committed.
#[derive(Default)]
pub(in crate::sql) struct Deadlocks(u32);

impl Deadlocks {
    /// What becomes of a batch that has failed: it is done again if it was rolled back in a deadlock, as it is with two imports at
    /// once on MariaDB, where who inserts locks the gaps between rows too.
    pub(in crate::sql) fn after(&mut self, error: EnqueueError) -> Result<(), EnqueueError> {
        let is_deadlock = match &error {
            EnqueueError::Database(sqlx::Error::Database(told)) => {
                told.code().is_some_and(|code| DEADLOCKS.contains(&&*code))
            }
            _ => false,
        };
        self.0 += 1;
        if is_deadlock && self.0 < DEADLOCKS_MAX { Ok(()) } else { Err(error) }
    }
}
