//! A table that breaks one promise.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    envelope::Outgoing,
    ids::MessageId,
    ports::{
        Care, Cared, Claim, Claimed, Ended, Instance, OutboxState, OutboxTable, Outcome, StoreError, Tick, Ticked,
    },
    relay::PushLine,
};

use super::Outbox;

/// A promise that a table breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Gives a row that another claim has.
    TwoOwners,
    /// Takes the word of any claim.
    Unfenced,
    /// Counts once something was said of an attempt.
    Uncounted,
    /// Takes what was not sent for sent.
    Forgets,
    /// Takes what has failed for over, and what is behind something may pass it.
    Unordered,
    /// Knows no back-off.
    Early,
    /// Shows rows of any status.
    AnyStatus,
    /// Shows the first page again and again.
    OnePage,
    /// Shows nothing that is in the archive.
    NoArchive,
    /// Takes rows that have not failed for tried again.
    AnyRow,
    /// Does not give up what it is told to.
    GivesUpNothing,
}

#[derive(Debug)]
pub(crate) struct Lying {
    pub(crate) inner: Outbox,
    pub(crate) lie: Lie,
    /// The newest claim of each row, and the message.
    given: Mutex<HashMap<MessageId, (Claim, Outgoing)>>,
}

impl Lying {
    pub(crate) fn new(inner: &Outbox, lie: Lie) -> Self {
        Self { inner: inner.clone(), lie, given: Mutex::default() }
    }

    fn told(&self, ended: &Ended) -> Ended {
        let mut ended = ended.clone();
        let given = self.given.lock().unwrap();
        let waits = matches!(ended.outcome, Outcome::Later(..) | Outcome::GivenBack);
        match self.lie {
            Lie::Unfenced => {
                if let Some((newest, _)) = given.get(&ended.claim.id) {
                    ended.claim = newest.clone();
                }
            }
            Lie::Forgets if waits => ended.outcome = Outcome::Sent,
            Lie::Unordered if matches!(ended.outcome, Outcome::Failed(_)) => ended.outcome = Outcome::Expired,
            Lie::Early if waits => ended.outcome = Outcome::Later(Duration::ZERO, "at once".into()),
            _ => {}
        }
        ended
    }
}

#[async_trait]
impl OutboxTable for Lying {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_ordered(&self) -> bool {
        self.inner.is_ordered()
    }

    fn is_told(&self) -> bool {
        self.inner.is_told()
    }

    fn attach(&self, line: &Arc<PushLine>) -> bool {
        self.inner.attach(line)
    }

    fn detach(&self, line: &Arc<PushLine>) {
        self.inner.detach(line);
    }

    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        let ended = tick.ended.iter().map(|ended| self.told(ended)).collect();
        let mut ticked = self.inner.tick(&Tick { ended, ..tick.clone() }).await?;
        let mut given = self.given.lock().unwrap();
        if let Some(claiming) = tick.claiming.filter(|_| self.lie == Lie::TwoOwners && ticked.claimed.is_empty()) {
            ticked.claimed.extend(given.values().map(|(claim, outgoing)| Claimed {
                claim: Claim { token: claiming.token, ..claim.clone() },
                attempts: 1,
                expired: false,
                key: None,
                outgoing: Ok(outgoing.clone()),
            }));
        }
        for row in &mut ticked.claimed {
            if self.lie == Lie::Uncounted {
                row.attempts = 1;
            }
            given.insert(row.claim.id.clone(), (row.claim.clone(), row.outgoing.clone().unwrap()));
        }
        Ok(ticked)
    }

    async fn care(&self, care: &Care) -> Result<Cared, StoreError> {
        self.inner.care(care).await
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        self.inner.state().await
    }

    async fn leave(&self, instance: &Instance) -> Result<(), StoreError> {
        self.inner.leave(instance).await
    }
}
