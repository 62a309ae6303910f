use hapax_core::{ports::DeadLetter, time::Timestamp};

/// A dead letter and what its queue knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The letter.
    pub letter: DeadLetter,
    /// When the message was sent; `None` for one that was set aside by its endpoint and not by the queue.
    pub sent_at: Option<Timestamp>,
    /// When it was first given.
    pub first_given_at: Option<Timestamp>,
}
