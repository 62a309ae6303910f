//! A door for the tests of decoders: the server's log.

use bytes::Bytes;

use super::{super::super::super::outbox::Row, decode::Decoder};

/// Messages of the log as a server may write them, one behind the other, each behind its length in a byte; and the rows that come of them.
#[doc(hidden)]
pub fn fuzz_log(data: &[u8]) {
    let (mut decoder, mut rest) = (Decoder::default(), data);
    while let Some((length, behind)) = rest.split_first() {
        let (message, next) = behind.split_at(behind.len().min(usize::from(*length)));
        if let Ok(Some(stored)) = decoder.read(Bytes::copy_from_slice(message)) {
            let Ok(outgoing) = stored.row.outgoing() else { return };
            // What can be read can be written, and is read as the same.
            let again = Row::of(&outgoing).map(Row::outgoing);
            assert_eq!(again, Some(Ok(outgoing)));
        }
        rest = next;
    }
}
