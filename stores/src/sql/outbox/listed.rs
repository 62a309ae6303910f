//! A row as a person sees it.

use hapax_core::{
    envelope::Outgoing,
    ids::MessageId,
    ports::{OutboxRow, Page, RowStatus},
    time::Timestamp,
};
use uuid::Uuid;

/// What stands in a row, by its columns.
pub(in crate::sql) struct Listed {
    pub(in crate::sql) id: Uuid,
    pub(in crate::sql) status: i64,
    pub(in crate::sql) attempts: i64,
    pub(in crate::sql) stored: i64,
    pub(in crate::sql) ended: Option<i64>,
    pub(in crate::sql) ready: Option<i64>,
    pub(in crate::sql) last_error: Option<String>,
    pub(in crate::sql) archived: bool,
    pub(in crate::sql) outgoing: Result<Outgoing, String>,
}

impl Listed {
    /// # Errors
    /// When its status is none that this version knows.
    pub(in crate::sql) fn row(self) -> Result<OutboxRow, sqlx::Error> {
        let Self { id, status, attempts, stored, ended, ready, last_error, archived, outgoing } = self;
        let known = RowStatus::of_number(status);
        let status = known.ok_or_else(|| {
            let why =
                format!("message {id} has a status {status}, which a newer hapax has written: update this program");
            sqlx::Error::Decode(why.into())
        })?;
        Ok(OutboxRow {
            message_id: MessageId::from(id),
            status,
            attempts: u32::try_from(attempts).unwrap_or_default(),
            stored: time_of(stored),
            ended: ended.map(time_of),
            ready: ready.filter(|_| status == RowStatus::Waits).map(time_of),
            last_error,
            archived,
            outgoing,
        })
    }
}

fn time_of(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// The message that `page` is about, if it is about one. `None`: it is about one that cannot be in an outbox, whose ids are UUIDs.
pub(in crate::sql) fn asked(page: &Page) -> Option<Option<Uuid>> {
    page.message_id.as_ref().map_or(Some(None), |id| id.as_uuid().map(Some))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_a_newer_version_is_said_as_that() {
        let row = |status| {
            let outgoing = Err("no message".to_owned());
            let (id, last_error) = (Uuid::nil(), None);
            let row = Listed {
                id,
                status,
                attempts: 1,
                stored: 1,
                ended: None,
                ready: Some(2),
                last_error,
                archived: false,
                outgoing,
            };
            row.row().map(|row| row.ready.is_some()).map_err(|error| error.to_string())
        };
        assert_eq!((row(0), row(1)), (Ok(true), Ok(false)));
        assert!(row(9).is_err_and(|why| why.contains("a status 9") && why.contains("update this program")));
    }
}
