//! What an endpoint says of the messages it sends and remembers.

use super::EndpointBuilder;
use crate::{endpoint::Eviction, routes::Routes};

impl EndpointBuilder {
    /// Where handlers send their messages. With routes, what is not declared is refused before anything is saved; without, they may send
    /// anything to anybody.
    pub fn routes(mut self, routes: Routes) -> Self {
        self.services.insert(routes);
        self
    }

    /// When it may forget that a message is over; the last that is given counts. Without it, after
    /// [`Settings::retention`](crate::endpoint::Settings::retention). The time of [`Eviction::After`] is that retention, said here, in place
    /// of the default: an endpoint whose settings say one that is neither that nor the default does not start.
    pub const fn eviction(mut self, eviction: Eviction) -> Self {
        (self.evidence, self.evicts_after) = match eviction {
            Eviction::After(retention) => (false, Some(retention)),
            Eviction::Evidence => (true, None),
        };
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
