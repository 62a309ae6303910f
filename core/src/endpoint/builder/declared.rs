//! What an endpoint says of the messages it sends and remembers.

use super::EndpointBuilder;
use crate::{endpoint::Eviction, routes::Routes};

impl EndpointBuilder {
    /// Where handlers send their messages. With routes, what is not declared is refused before anything is saved; without, they may send
    /// anything to anybody.
    pub fn routes(mut self, routes: Routes) -> Self {
        self.services.insert(routes.clone());
        self.routes = routes;
        self
    }

    /// When it may forget that a message is over. Without it, after [`Settings::retention`](crate::endpoint::Settings::retention); the time of
    /// [`Eviction::After`] is in its place, in whichever order the two are given. It stays so when [`Eviction::Evidence`] is given after it: as the
    /// time within which no entry goes.
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.evidence = eviction == Eviction::Evidence;
        if let Eviction::After(retention) = eviction {
            self.evicts_after = Some(retention);
        }
        self
    }

    /// Numbers what handlers send, so that receivers know each message for ever: see [`Eviction::Evidence`], with which it is always done.
    /// A message gets its number with the save that decides to send it: one for each process, destination and type, from a count that
    /// begins anew, under a new name, with each start.
    ///
    /// Receivers that know a message by its number and those that know it by its id would handle it once each: let all that share a queue
    /// understand numbers (any of this version do) before its senders number.
    pub const fn number_messages(mut self) -> Self {
        self.numbers = true;
        self
    }
}
