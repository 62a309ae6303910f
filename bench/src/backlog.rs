//! What waits in a durable queue before the window opens, and what of it was handled in the end.

use crate::{
    AnyError,
    run::Shape,
    workload::{Incoming, Workload},
};

/// The deliveries of one run: the first of the workload's stream, so that they need not be kept.
#[derive(Debug)]
pub(crate) struct Backlog {
    workload: Workload,
    count: u64,
}

impl Backlog {
    pub(crate) fn of(shape: &Shape) -> Self {
        /// Of every round: the queue is filled once.
        const SEED: u64 = 1;
        Self { workload: Shape { seed: SEED, ..*shape }.workload(), count: shape.queued }
    }

    /// In the order of sending.
    pub(crate) fn deliveries(mut self) -> impl Iterator<Item = Incoming> {
        (0..self.count).map(move |_| self.workload.next())
    }

    /// Distinct ids of which a delivery is no longer in the queue, where the deliveries of `left` still are.
    ///
    /// # Errors
    /// When something is left that was never sent.
    pub(crate) fn handled(self, mut left: Vec<[u8; 16]>) -> Result<u64, AnyError> {
        let mut sent: Vec<[u8; 16]> = self.deliveries().map(|message| message.id).collect();
        sent.sort_unstable();
        left.sort_unstable();
        let mut left = left.chunk_by(|a, b| a == b).peekable();
        let mut handled = 0;
        for copies in sent.chunk_by(|a, b| a == b) {
            let left = left.next_if(|ids| ids[0] == copies[0]).map_or(0, <[_]>::len);
            if left > copies.len() {
                return Err("a queue holds more copies of a message than were sent".into());
            }
            handled += u64::from(left < copies.len());
        }
        if left.next().is_some() { Err("a queue holds a message that was not sent".into()) } else { Ok(handled) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{cases::Case, options::Options};

    const SENT: u64 = 10_000;

    fn backlog() -> Backlog {
        Backlog::of(&Shape { queued: SENT, ..Case::Queue.shape(&Options::default()) })
    }

    fn ids() -> Vec<[u8; 16]> {
        backlog().deliveries().map(|message| message.id).collect()
    }

    #[test]
    fn what_is_no_longer_in_the_queue_was_handled() {
        let ids = ids();
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() < ids.len(), "there are repeats");
        assert_eq!(backlog().handled(Vec::new()).unwrap(), distinct.len() as u64);
        assert_eq!(backlog().handled(ids.clone()).unwrap(), 0);
        assert_eq!(backlog().handled(ids[1..].to_vec()).unwrap(), 1);
    }

    #[test]
    fn a_message_of_which_one_copy_is_left_was_handled() {
        let ids = ids();
        let repeat = (1..ids.len()).find(|&n| ids[..n].contains(&ids[n])).unwrap();
        let distinct = backlog().handled(Vec::new()).unwrap();
        assert_eq!(backlog().handled(vec![ids[repeat]]).unwrap(), distinct);
    }

    #[test]
    fn what_was_not_sent_cannot_be_left() {
        let ids = ids();
        assert!(backlog().handled(vec![[7; 16]]).is_err());
        assert!(backlog().handled([&ids[..], &ids[..]].concat()).is_err());
    }
}
