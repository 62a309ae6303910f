//! Leases that begin anew: locks of messages together, and that of each session by itself.

use std::sync::Arc;

use hapax_core::ports::TransportError;
use tokio::time::Instant;

use super::{
    super::{
        renewal::{Renewed, Token, Wanted},
        sessions::SessionLock,
    },
    End,
};

/// Locks in one request: the service takes more, and one that is lost spoils all of them.
const TOGETHER_MAX: usize = 100;

impl End {
    /// Starts leases anew; those that cannot be are lost.
    pub(super) async fn extend(&self, numbers: &[u64]) -> Result<(), TransportError> {
        if !self.is_service() {
            return Ok(());
        }
        let mut locks: Vec<(u64, Token)> = Vec::new();
        let mut sessions: Vec<(u64, Arc<SessionLock>)> = Vec::new();
        {
            let all = self.held();
            for number in numbers {
                let Some(held) = all.get(number).filter(|held| !held.is_lost()) else { continue };
                match (&held.session, held.token) {
                    (Some(session), _) => sessions.push((*number, session.clone())),
                    (None, Some(token)) => locks.push((*number, token)),
                    (None, None) => {}
                }
            }
        }
        for some in locks.chunks(TOGETHER_MAX) {
            let tokens: Vec<Token> = some.iter().map(|(_, token)| *token).collect();
            if self.renewed(some, &Wanted::Locks(&tokens)).await? == Renewed::All {
                continue;
            }
            // One of them is lost: which one is seen when they are asked for one by one.
            for one in some {
                if self.renewed(std::slice::from_ref(one), &Wanted::Locks(&[one.1])).await? == Renewed::Lost {
                    self.forget(one.0);
                }
            }
        }
        for (number, session) in sessions {
            let began = Instant::now();
            match self.renewed(&[(number, ())], &Wanted::Session(session.id())).await? {
                Renewed::All => session.begins_anew(began),
                Renewed::Lost => self.forget(number),
            }
        }
        Ok(())
    }

    /// Asks for it; the leases of `some` begin anew if all do.
    async fn renewed<T: Sync>(&self, some: &[(u64, T)], wanted: &Wanted<'_>) -> Result<Renewed, TransportError> {
        let broker = &self.bus.0;
        let address = broker.names.management_address(&self.endpoint);
        // Before the request: the service begins later.
        let until = Instant::now() + broker.options.lease();
        let renewed = self.renewal.renew(&broker.link, &address, wanted).await?;
        if renewed == Renewed::All {
            let mut all = self.held();
            for (number, _) in some {
                if let Some(held) = all.get_mut(number) {
                    held.until = held.until.max(Some(until));
                }
            }
        }
        Ok(renewed)
    }
}
