//! What all outboxes may be told when they are opened.

use hapax_core::{
    ids::InvalidId,
    ports::{ErrorKind, StoreError},
};

use super::Writes;

#[derive(Debug, Clone, Default)]
pub(in crate::sql) struct Settings {
    pub(in crate::sql) writes: Writes,
    pub(in crate::sql) migrate: bool,
    pub(in crate::sql) ordered: bool,
    /// Nothing is asked of the order, or of who sends, and nothing decided.
    pub(in crate::sql) order_as_it_is: bool,
    pub(in crate::sql) wrong: Option<InvalidId>,
}

impl Settings {
    pub(in crate::sql) fn check(self, opening: &'static str) -> Result<Self, StoreError> {
        match self.wrong {
            Some(wrong) => Err(StoreError::new(ErrorKind::Misconfigured, opening, wrong.to_string())),
            None => Ok(self),
        }
    }

    /// What the table is to be, unless it is taken as it is.
    pub(in crate::sql) fn order(&self) -> Option<bool> {
        (!self.order_as_it_is).then_some(self.ordered)
    }

    /// Whether Debezium is to send, unless the table is taken as it is.
    #[cfg(feature = "postgres")]
    pub(in crate::sql) fn debezium(&self) -> Option<bool> {
        (!self.order_as_it_is).then_some(self.writes.debezium)
    }
}

/// Whether the table keeps order is the same for all who use it: answers it. Where nobody has decided, nothing keeps it yet.
pub(in crate::sql) fn decided(
    is: Option<bool>,
    asked: Option<bool>,
    opening: &'static str,
    place: &str,
) -> Result<bool, StoreError> {
    let Some(asked) = asked.filter(|asked| is != Some(*asked)) else { return Ok(is.unwrap_or_default()) };
    let (is, asked) = if asked { ("does not keep order", "`ordered_keys(true)`") } else { ("keeps order", "no order") };
    let why = format!(
        "{place}: the outbox {is}, and it was opened with {asked}: open it as all others do, or use another table prefix"
    );
    Err(StoreError::new(ErrorKind::Misconfigured, opening, why))
}

/// The methods that options of all databases have, in an `impl` of theirs; they have a field `settings`.
macro_rules! settings {
    () => {
        /// Messages of `message_type` go to `endpoint`, unless they are given an address. Default: to everybody who
        /// subscribes to their type.
        pub fn route(mut self, message_type: &str, endpoint: &str) -> Self {
            let added = self.settings.writes.routes.add(message_type, endpoint);
            self.settings.wrong = self.settings.wrong.or_else(|| added.err());
            self
        }

        /// Messages of other types go to `endpoint`.
        pub fn route_all(mut self, endpoint: &str) -> Self {
            let set = self.settings.writes.routes.set_usual(endpoint);
            self.settings.wrong = self.settings.wrong.or_else(|| set.err());
            self
        }

        /// Whether messages of one partition key are sent in the order of their commits, each only once the one before it
        /// is confirmed. Default no. It is a property of the table, decided when that is first opened. Transactions that
        /// store messages of one key wait for each other then, and one of several keys may meet a deadlock, which is to be
        /// repeated like any other. A message that has failed holds up those of its key until a person decides; a relay
        /// that is overtaken may repeat an older message later, but never sends a newer one first.
        pub const fn ordered_keys(mut self, ordered: bool) -> Self {
            self.settings.ordered = ordered;
            self
        }

        /// Whether the table is taken as it is, for who only looks at it, or makes it for others: what
        /// [`ordered_keys`](Self::ordered_keys) says does not count then, and a table of which nobody has decided stays that. In PostgreSQL one
        /// that Debezium sends is taken so as well. Default no.
        pub const fn order_as_it_is(mut self, as_it_is: bool) -> Self {
            self.settings.order_as_it_is = as_it_is;
            self
        }

        /// How messages are encoded. Default JSON.
        pub fn codec(mut self, codec: hapax_core::codec::Codec) -> Self {
            self.settings.writes.codec = codec;
            self
        }

        /// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 1 MiB.
        /// Larger ones are refused before anything is stored.
        pub const fn message_bytes_max(mut self, bytes: usize) -> Self {
            self.settings.writes.message_bytes_max = bytes;
            self
        }

        /// The transport that relays elsewhere send with: what it could never send is refused before it is stored. Not
        /// needed where the relay runs in the same process, and asks its own.
        pub fn transport(mut self, transport: impl hapax_core::ports::Dispatcher + 'static) -> Self {
            self.settings.writes.transport = Some(std::sync::Arc::new(transport));
            self
        }

        /// Whether missing tables are added. Default: no, and a database without them is an error.
        pub const fn migrate(mut self, migrate: bool) -> Self {
            self.settings.migrate = migrate;
            self
        }
    };
}
pub(in crate::sql) use settings;
