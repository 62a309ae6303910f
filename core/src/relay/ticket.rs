//! What was stored in a transaction, until that is committed.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::line::{PushLine, Pushed};
use crate::ids::MessageId;

/// How relays elsewhere are told that something was stored for them. For adapters.
pub trait Tell: std::fmt::Debug + Send + Sync {
    /// They may look now. At once, and without waiting for anything.
    fn tell(&self);
}

/// What was stored in a transaction and is to be sent once that is committed.
///
/// Hand it over after the commit, [`Ticket::committed`], or let the outbox commit: then it is on its way at once. A ticket that
/// is dropped loses nothing: where the transaction was committed all the same, a relay finds its messages when the lease of
/// their birth is over, or at its next look.
///
/// Never hand it over before the commit has returned, and not after one whose outcome is unknown: what would be sent may never
/// have happened. A commit that returns is not enough where a statement of the transaction has failed before: PostgreSQL rolls
/// back and tells of success. The outbox's own `commit` looks; who commits himself gives up at the first error.
///
/// The end of a savepoint is no commit: the tickets of one that was rolled back are to be dropped, and those of one that was
/// released wait for the commit of the whole.
///
/// A transaction that stores in several tables has a ticket of each; [`Ticket::and`] makes them one, and any of their outboxes
/// commits it: each message goes to the relay of its own table.
#[derive(Debug)]
#[must_use = "hand it over once the transaction is committed: `committed()`, or let `commit` do both"]
pub struct Ticket {
    parts: SmallVec<[Part; 1]>,
}

/// What of it is behind one relay, or one table's.
#[derive(Debug)]
struct Part {
    line: Option<Arc<PushLine>>,
    teller: Option<Arc<dyn Tell>>,
    rows: Vec<Pushed>,
    /// There are rows for the relay behind `line` that it has to claim.
    wakes: bool,
    stored: Option<Stored>,
}

/// What was stored in one table, where an outbox has to look for it before it commits. For adapters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Whose outbox has stored it: a kind of database, not one of them.
    pub database: &'static str,
    /// The table, as statements of the same transaction name it.
    pub table: Arc<str>,
    /// The messages.
    pub messages: Vec<MessageId>,
}

impl Ticket {
    /// For rows that belong to the relay behind `line`, and perhaps `others` beside them that it has to claim. For adapters.
    pub fn born(line: Arc<PushLine>, rows: Vec<Pushed>, others: bool) -> Self {
        Self { parts: smallvec![Part { line: Some(line), teller: None, rows, wakes: others, stored: None }] }
    }

    /// For rows that wait for a claim: whoever relays is to be told. For adapters.
    pub fn waiting(line: Option<Arc<PushLine>>, teller: Option<Arc<dyn Tell>>) -> Self {
        let wakes = line.is_some();
        Self { parts: smallvec![Part { line, teller, rows: Vec::new(), wakes, stored: None }] }
    }

    /// For nothing, which every transaction may have beside other tickets.
    pub fn empty() -> Self {
        Self { parts: SmallVec::new() }
    }

    /// This one and `other` of the same transaction, as one.
    pub fn and(mut self, other: Self) -> Self {
        for part in other.parts {
            match self.parts.iter_mut().find(|known| known.is_beside(&part)) {
                Some(known) => known.append(part),
                None => self.parts.push(part),
            }
        }
        self
    }

    /// With what was stored, where the outbox has to look for it before it commits. For adapters.
    pub fn storing(mut self, stored: Stored) -> Self {
        if let Some(part) = self.parts.first_mut() {
            part.stored = Some(stored);
        }
        self
    }

    /// What [`Ticket::storing`] was told, table by table. For adapters.
    pub fn stored(&self) -> impl Iterator<Item = &Stored> {
        self.parts.iter().filter_map(|part| part.stored.as_ref())
    }

    /// The transaction is committed: what was stored in it is sent now.
    pub fn committed(self) {
        for Part { line, teller, rows, wakes, .. } in self.parts {
            if let Some(line) = &line {
                if wakes {
                    line.wake();
                }
                rows.into_iter().for_each(|row| line.push(row));
            }
            if let Some(teller) = teller {
                teller.tell();
            }
        }
    }
}

impl Part {
    /// Whether both are of one table and behind one relay: many messages of a transaction are one part then.
    fn is_beside(&self, other: &Self) -> bool {
        fn place(part: &Part) -> (Option<*const PushLine>, Option<*const ()>, Option<(&str, &str)>) {
            let stored = part.stored.as_ref();
            (
                part.line.as_ref().map(Arc::as_ptr),
                part.teller.as_ref().map(|teller| Arc::as_ptr(teller).cast::<()>()),
                stored.map(|stored| (stored.database, &*stored.table)),
            )
        }
        place(self) == place(other)
    }

    fn append(&mut self, mut other: Self) {
        self.wakes |= other.wakes;
        self.rows.append(&mut other.rows);
        if let (Some(stored), Some(mut other)) = (&mut self.stored, other.stored) {
            stored.messages.append(&mut other.messages);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        time::Duration,
    };

    use tokio::time::Instant;

    use super::{PushLine, Pushed, Stored, Tell, Ticket};
    use crate::{
        envelope::{Destination, Envelope, Outgoing},
        ids::{MessageId, TypeName},
        ports::{Claim, DispatchError, Dispatcher, Refused},
        sync::mpsc,
    };

    #[derive(Debug)]
    struct Nowhere;

    #[async_trait::async_trait]
    impl Dispatcher for Nowhere {
        fn check(&self, _: &Outgoing) -> Result<(), Refused> {
            Ok(())
        }

        async fn dispatch(&self, _: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
            Vec::new()
        }
    }

    #[derive(Debug, Default)]
    struct Counts(AtomicU32);

    impl Tell for Counts {
        fn tell(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn line() -> (Arc<PushLine>, mpsc::Receiver<Pushed>) {
        PushLine::new(1, Duration::from_secs(1), Arc::new(Nowhere), 10, Arc::default())
    }

    fn born(line: &Arc<PushLine>, table: &str) -> (MessageId, Ticket) {
        let id = MessageId::random();
        let envelope = Envelope::new(id.clone(), TypeName::parse("shop.placed").unwrap(), "{}");
        let outgoing =
            Outgoing { destination: Destination::parse("endpoint:billing").unwrap(), envelope: Arc::new(envelope) };
        let row = Pushed { claim: Claim { id: id.clone(), token: 1 }, until: Instant::now(), outgoing };
        let stored = Stored { database: "a database", table: table.into(), messages: vec![id.clone()] };
        (id, Ticket::born(line.clone(), vec![row], false).storing(stored))
    }

    fn pushed(queue: &mut mpsc::Receiver<Pushed>) -> Vec<MessageId> {
        std::iter::from_fn(|| queue.try_recv().ok()).map(|row| row.claim.id).collect()
    }

    #[test]
    fn what_was_stored_in_several_tables_goes_to_the_relay_of_each() {
        let ((first, mut of_first), (second, mut of_second)) = (line(), line());
        let ((a, ticket), (b, two), (c, three)) = (born(&first, "a"), born(&second, "b"), born(&first, "a"));
        let ticket = ticket.and(two).and(three);
        let stored: Vec<(&str, usize)> =
            ticket.stored().map(|stored| (&*stored.table, stored.messages.len())).collect();
        assert_eq!(stored, [("a", 2), ("b", 1)], "what is of one table is looked for at once");
        ticket.committed();
        assert_eq!(pushed(&mut of_first), [a, c]);
        assert_eq!(pushed(&mut of_second), [b]);
    }

    #[test]
    fn relays_elsewhere_are_told_of_each_table() {
        let (first, second) = (Arc::<Counts>::default(), Arc::<Counts>::default());
        let of = |counts: &Arc<Counts>| Ticket::waiting(None, Some(counts.clone()));
        of(&first).and(of(&second)).and(of(&first)).and(Ticket::empty()).committed();
        assert_eq!([&first, &second].map(|counts| counts.0.load(Ordering::Relaxed)), [1, 1]);
    }
}
