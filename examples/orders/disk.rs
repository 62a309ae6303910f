//! Whether a run's files can still be written. A store that fails is tried again until it goes well, so that a full disk would
//! look like orders that take long; here it is told as what it is.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    time::Duration,
};

use sqlx::{
    Connection, Executor, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use crate::{Refusal, apart::Apart, place::Database};

/// How often the disk is asked: little to somebody who waits for an answer, and to the disk one commit of thousands.
const EVERY: Duration = Duration::from_secs(3);
/// What is written to find out, in bytes: about what a busy commit needs. Less may still find room where that does not.
const PROBE_BYTES: u32 = 64 << 10;
/// The same in a folder of dedup entries, each of which is a block or two.
const FOLDER_PROBE_BYTES: usize = 16 << 10;
/// What is written there; entries are in folders below.
const FOLDER_PROBE: &str = ".orders-disk-probe";
/// How long others may keep the file locked meanwhile: they write, so there is room.
const BUSY: Duration = Duration::from_secs(2);

/// Makes the table that is written to find out. It is empty in between.
pub(crate) const CREATE_PROBE: &str = "CREATE TABLE orders_disk_probe (bytes BLOB NOT NULL) STRICT";

/// SQLite's primary result codes (sqlite.org/rescode.html).
mod code {
    pub(super) const BUSY: i32 = 5;
    pub(super) const FULL: i32 = 13;
}

/// Waits until what `database` has on disks cannot be written any more.
pub(crate) async fn full(database: &Database) -> Refusal {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(refusal) = check(database).await {
            return refusal;
        }
    }
}

/// Writes to the file with the ledger and to the folder with the dedup entries, if there is one, and takes it back.
pub(crate) async fn check(database: &Database) -> Result<(), Refusal> {
    match write(&database.ledger).await {
        Err(e) if primary_code(&e) == Some(code::BUSY) => {}
        written => written.map_err(|e| refusal(&database.ledger, &e))?,
    }
    match database.dedup.as_ref().and_then(Apart::as_folder) {
        Some(folder) => check_folder(folder).await,
        None => Ok(()),
    }
}

/// Writes a file to the folder with the dedup entries, and removes it.
pub(crate) async fn check_folder(folder: &Path) -> Result<(), Refusal> {
    let probe = folder.join(FOLDER_PROBE);
    let written = tokio::task::spawn_blocking(move || {
        let written = File::create(&probe).and_then(|mut file| {
            file.write_all(&[1; FOLDER_PROBE_BYTES])?;
            file.sync_all()
        });
        // Also what was written in part: the run may go on when there is room.
        let removed = fs::remove_file(&probe);
        written.and(removed)
    });
    let written = written.await.map_err(|e| Refusal::new(e.to_string()))?;
    written.map_err(|e| {
        let remedy = match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on its disk",
            _ => "see to its disk and its permissions",
        };
        let folder = folder.display();
        Refusal::new(format!("{folder} cannot be written: {e}; {remedy}, or name a folder elsewhere (--dedup)"))
    })
}

async fn write(file: &Path) -> Result<(), sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(BUSY);
    let mut file = SqliteConnection::connect_with(&options.journal_mode(SqliteJournalMode::Wal)).await?;
    let insert = "INSERT INTO orders_disk_probe (bytes) VALUES (randomblob(?))";
    sqlx::query(insert).bind(PROBE_BYTES).execute(&mut file).await?;
    file.execute("DELETE FROM orders_disk_probe").await?;
    file.close().await
}

/// Why `file` cannot be used.
pub(crate) fn refusal(file: &Path, error: &sqlx::Error) -> Refusal {
    let said = error.as_database_error().map_or_else(|| error.to_string(), |e| e.message().to_owned());
    let remedy = match primary_code(error) {
        Some(code::FULL) => "make room on its disk, or name a file elsewhere (--store, or TMPDIR for a temporary one)",
        _ => "see to its disk and its permissions, or name a file elsewhere (--store, or TMPDIR for a temporary one)",
    };
    Refusal::new(format!("{} cannot be written: {said}; {remedy}", file.display()))
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    const PRIMARY: i32 = 0xff;
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & PRIMARY)
}
