//! Rows that belong to the relay of their own process from their birth.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use hapax_core::{
    envelope::Outgoing,
    ids::MessageId,
    ports::Claim,
    relay::{PushLine, Pushed, Stored, Tell, Ticket},
};
use tokio::time::Instant;
use uuid::Uuid;

use super::Row;

/// Whose the messages of one call are.
#[derive(Debug)]
pub(in crate::sql) struct Births {
    line: Option<Arc<PushLine>>,
    begun: Instant,
    /// Of each message; 0: it waits for a claim.
    pub(in crate::sql) tokens: Vec<i64>,
}

impl Births {
    /// To be called before the server reads its clock, so that here the lease is over first.
    pub(in crate::sql) fn of(line: Option<Arc<PushLine>>, messages: &[Outgoing]) -> Self {
        let begun = Instant::now();
        let token =
            |outgoing: &Outgoing| line.as_ref().filter(|_| Self::is_timeless(outgoing)).map_or(0, |line| line.owner());
        let tokens = messages.iter().map(token).collect();
        Self { line, begun, tokens }
    }

    /// Whether it may go as soon as it is committed. What waits for its time or may expire is claimed, since the server's clock
    /// decides: this one may be hours ahead.
    pub(in crate::sql) fn is_timeless(outgoing: &Outgoing) -> bool {
        outgoing.envelope.due.is_none() && outgoing.envelope.expires.is_none()
    }

    /// Whose those are that have a token.
    pub(in crate::sql) fn owner(&self) -> Option<i64> {
        let has_any = self.tokens.iter().any(|token| *token != 0);
        self.line.as_ref().filter(|_| has_any).map(|line| line.owner())
    }

    /// For how long.
    pub(in crate::sql) fn lease(&self) -> Duration {
        self.line.as_ref().map_or(Duration::ZERO, |line| line.lease())
    }

    /// To be handed over once they are `stored` and committed; `teller` tells relays elsewhere where there is none here.
    pub(in crate::sql) fn ticket(
        self,
        messages: &[Outgoing],
        rows: &[Row],
        stored: Stored,
        teller: Option<Arc<dyn Tell>>,
    ) -> Ticket {
        let until = self.begun + self.lease();
        let Some(line) = self.line else { return Ticket::waiting(None, teller).storing(stored) };
        let born = messages.iter().zip(&self.tokens).zip(rows).filter(|((_, token), _)| **token != 0);
        let born: Vec<Pushed> = born
            .map(|((outgoing, token), row)| Pushed { claim: claim(row.id, *token), until, outgoing: outgoing.clone() })
            .collect();
        let others = born.len() < rows.len();
        Ticket::born(line, born, others).storing(stored)
    }
}

/// From now on what is stored belongs to the relay behind `line`, unless another one is there.
pub(in crate::sql) fn attach(there: &RwLock<Option<Arc<PushLine>>>, line: &Arc<PushLine>) -> bool {
    let mut there = there.write().unwrap_or_else(PoisonError::into_inner);
    let attaches = there.is_none();
    if attaches {
        *there = Some(line.clone());
    }
    attaches
}

/// From now on what is stored belongs to nobody, unless another relay than the one behind `line` is there by now.
pub(in crate::sql) fn detach(there: &RwLock<Option<Arc<PushLine>>>, line: &Arc<PushLine>) -> bool {
    let mut there = there.write().unwrap_or_else(PoisonError::into_inner);
    let detaches = there.as_ref().is_some_and(|there| Arc::ptr_eq(there, line));
    if detaches {
        *there = None;
    }
    detaches
}

#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(in crate::sql) fn ids(messages: &[Outgoing]) -> Vec<MessageId> {
    messages.iter().map(|outgoing| outgoing.envelope.message_id.clone()).collect()
}

pub(in crate::sql) fn claim(id: Uuid, token: i64) -> Claim {
    Claim { id: MessageId::from(id), token }
}
