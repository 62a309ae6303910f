//! Every bound and interval of an endpoint with its default, and the reason for that number.

use std::time::Duration;

use super::super::flow::Rate;
use crate::{deliver::Recoverability, manager::Limits};

/// Bounds and intervals of an endpoint. Every field has a default with its reason.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Messages taken from the transport and not settled yet, at most. Default 1024: enough to fill group commits; more
    /// adds waiting, not speed (Little's law). A slow entity keeps a quarter of it, and of the bytes, while others want room.
    pub in_flight_max: usize,
    /// Bytes of messages (bodies, headers and half a kilobyte for each) taken from the transport and not settled yet, at most. Default
    /// 64 MiB: 64 KiB for each message of the default above. How large messages are is known once they have come: what one receive
    /// brings may exceed it, the more the sizes vary. A single message that is larger is handled alone.
    pub bytes_in_flight_max: usize,
    /// Messages received in a time at most, for the sake of somebody whom handlers call. Default `None`: as many as come. It is of this
    /// process: several that run the endpoint have it each.
    pub rate_max: Option<Rate>,
    /// How long a message is remembered after it is over. Default 7 days: longer than a queue stands still over a long
    /// weekend. It must exceed the transport's longest redelivery and the deadline of a pass; the endpoint checks.
    pub retention: Duration,
    /// How long a message with an [idempotency key](crate::envelope::Envelope::idempotency_key) is remembered, where that is longer than
    /// the `retention`: for clients that may ask again after weeks. Default `None`: as long as others. The longest that any endpoint asked a
    /// dedup store for holds for all on it, and the store has to have a [long memory](crate::ports::DedupStore::long_memory).
    pub idempotency_retention: Option<Duration>,
    /// How long the body of a published message stays in the store of [`bodies`](super::EndpointBuilder::bodies) after it was sent last: who
    /// subscribes is not known, so nobody can say that it is not needed any more. Default 14 days, twice the retention: a queue that stands
    /// still for longer finds no body. At least the retention and the transport's longest redelivery; the endpoint checks.
    pub published_retention: Duration,
    /// How old an outbox entry is before the sweeper takes it. Default 60 s, the deadline of a pass: by then its owner
    /// sends nothing more.
    pub sweep_age: Duration,
    /// How often the sweeper looks. Default 10 s. A look that finds nothing and has taken longer than a tenth of this, because
    /// very many entities wait, is followed by a rest of ten times as long, but not longer than `sweep_age`.
    pub sweep_interval: Duration,
    /// How often an endpoint that [`sends_enqueued`](super::EndpointBuilder::sends_enqueued) looks for what was committed since. Default
    /// 1 s: each look is a query of the store, which some services charge for. It rests as the sweeper does.
    pub enqueued_interval: Duration,
    /// How often old dedup entries are evicted and old tombstones purged. Default 60 s.
    pub evict_interval: Duration,
    /// How long a stop waits for what is being handled. Default 30 s; what is not done by then comes again.
    pub stop_limit: Duration,
    /// A pass, from before the load to the last dispatch: one that took longer sends nothing more, since retention is counted on it (S39). A
    /// handler that takes so long is ended there, and has failed. Default 60 s: far above any store's time limits, far below any retention.
    /// A broker that has not answered a dispatch for so long is taken to have failed, with an unknown outcome.
    pub deadline: Duration,
    /// Messages of one entity that are handled and saved together at most. Default 256: beyond it a pass gains little and
    /// a lost race costs more.
    pub pass_max: usize,
    /// Entries of an entity that may wait to be sent before it takes no more messages (S68). Default 512: two full
    /// passes.
    pub entries_max: usize,
    /// What is tried again, how often, and when a message is given up.
    pub recoverability: Recoverability,
}

impl Default for Settings {
    fn default() -> Self {
        let Limits { deadline, entries_max, .. } = Limits::default();
        Self {
            in_flight_max: 1024,
            bytes_in_flight_max: 64 << 20,
            rate_max: None,
            retention: Duration::from_secs(7 * 24 * 3600),
            idempotency_retention: None,
            published_retention: Duration::from_secs(14 * 24 * 3600),
            sweep_age: Duration::from_secs(60),
            sweep_interval: Duration::from_secs(10),
            enqueued_interval: Duration::from_secs(1),
            evict_interval: Duration::from_secs(60),
            stop_limit: Duration::from_secs(30),
            deadline,
            pass_max: 256,
            entries_max,
            recoverability: Recoverability::default(),
        }
    }
}

impl Settings {
    /// Those of a manager's passes.
    pub(in crate::endpoint) const fn limits(&self) -> Limits {
        let Self { deadline, entries_max, recoverability: Recoverability { poison_above, .. }, .. } = *self;
        Limits { deadline, poison_above, entries_max }
    }
}
