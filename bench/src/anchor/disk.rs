//! The disk's own limit: append and `fdatasync`, nothing else.

use std::{
    fs::OpenOptions,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use crate::measure::{Sample, Window};

/// Bytes of one append: about what one message writes.
const APPEND_BYTES: usize = 600;
/// The file begins anew after this many bytes, so that it fills no disk.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Appends and syncs, one after the other, for `time`.
pub(crate) fn run(dir: &Path, time: Duration) -> std::io::Result<Sample> {
    let path = dir.join("raw");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let block = [b'x'; APPEND_BYTES];
    let (mut syncs, mut bytes) = (0, 0);
    let window = Window::open();
    let end = Instant::now() + time;
    while Instant::now() < end {
        file.write_all(&block)?;
        file.sync_data()?;
        syncs += 1;
        bytes += APPEND_BYTES as u64;
        if bytes >= FILE_BYTES_MAX {
            file.set_len(0)?;
            bytes = 0;
        }
    }
    let sample = window.close(syncs);
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(sample)
}
