//! Bodies that are too large to travel, as rows: what all databases agree on.

use hapax_core::{
    ids::InvalidId,
    ports::{BodyName, BodyRecord, ErrorKind, NewBody, Staged, StoreError},
};

/// Largest body, in bytes: a row of it is read and written as one value, several times of which are in memory then.
pub(super) const BODY_BYTES_MAX: usize = 256 << 20;
/// Others change who needs a body at the same time; so many in a row that each is overtaken means that something is wrong.
pub(super) const TRIES_MAX: u32 = 100;

pub(super) const PUTTING: &str = "putting a body";
pub(super) const KEEPING: &str = "keeping a body";
pub(super) const GETTING: &str = "getting a body";
pub(super) const RELEASING: &str = "releasing a body";
pub(super) const LISTING: &str = "listing staged bodies";
pub(super) const UNSTAGING: &str = "removing a staged body";
pub(super) const COLLECTING: &str = "collecting bodies";

pub(super) fn check_size(body: &NewBody) -> Result<(), StoreError> {
    let bytes = body.bytes.len();
    if bytes <= BODY_BYTES_MAX {
        return Ok(());
    }
    let why = format!("it has {bytes} bytes, more than the {BODY_BYTES_MAX} that a database takes");
    Err(StoreError::new(ErrorKind::TooLarge, PUTTING, why))
}

pub(super) fn overtaken(operation: &'static str, place: &str) -> StoreError {
    let why = format!("{place}: others change who needs the body all the time; try again");
    StoreError::new(ErrorKind::Unavailable, operation, why)
}

/// What is staged, by its row.
pub(super) fn staged_of(name: &str, record: &str) -> Result<Staged, InvalidId> {
    BodyRecord::decode(record)?.staged(BodyName::parse(name)?)
}
