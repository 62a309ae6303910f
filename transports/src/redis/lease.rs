//! Leases, and how they end.

use std::time::Duration;

use hapax_core::{
    ports::{Delivery, Receipt, Settled, TransportError},
    time::Timestamp,
};

use super::{
    answer::{entries, number, place},
    errors::malformed,
    letters::Letter,
    receiver::End,
    scripts::Script,
};

pub(super) const SETTLING: &str = "settling a message";

/// A lease, as a receipt says it: `ID:DELIVERIES:ATTEMPTS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: String,
    /// How often the server has given the message, which is never the same twice.
    pub(super) deliveries: i64,
    /// How often it counts.
    pub(super) attempts: u32,
}

impl Lease {
    pub(super) fn receipt(&self) -> Receipt {
        Receipt::text(format!("{}:{}:{}", self.id, self.deliveries, self.attempts))
    }

    /// `None` for a receipt that is none of ours.
    pub(super) fn of(receipt: &Receipt) -> Option<Self> {
        let mut parts = receipt.as_text()?.split(':');
        let (id, deliveries, attempts) = (parts.next()?, parts.next()?, parts.next()?);
        place(id)?;
        Some(Self { id: id.to_owned(), deliveries: deliveries.parse().ok()?, attempts: attempts.parse().ok()? })
    }
}

/// What becomes of a message whose lease ends and that is not [acknowledged](End::acknowledge).
pub(super) enum What<'l> {
    Retry { millis: u64, counts: bool },
    Letter(&'l Letter),
}

impl End {
    pub(super) fn lease_millis(&self) -> u64 {
        u64::try_from(self.broker.options.lease.as_millis()).unwrap_or(u64::MAX)
    }

    /// Ends a lease, if it is still held.
    pub(super) async fn end_lease(&self, lease: &Lease, what: &What<'_>) -> Result<Settled, TransportError> {
        let (broker, names) = (&self.broker, &self.broker.names);
        let (letters, ids) = (names.dead_letters(&self.endpoint), names.dead_letter_ids(&self.endpoint));
        let asked = broker.link.ask(&self.lane, SETTLING, true, |scripts| {
            let keys = [&self.queue, &self.later, &self.uncounted, &letters, &ids].map(String::as_str);
            let mut call = scripts.call(Script::Settle, &keys);
            call.arg(broker.group()).arg(&self.consumer).arg(self.lease_millis()).arg(&lease.id).arg(lease.deliveries);
            match what {
                What::Retry { millis, counts } => drop(call.arg("retry").arg(millis).arg(u8::from(!counts))),
                What::Letter(letter) => {
                    call.arg("letter").arg(letter.identity()).arg(broker.options.unused_millis());
                    letter.write(&mut call);
                }
            }
            call
        });
        let asked = asked.await;
        self.held.ended(lease);
        match number(&asked?) {
            Some(1) => Ok(Settled::Done),
            Some(0) => Ok(Settled::LeaseLost),
            _ => Err(malformed(SETTLING, broker.link.place())),
        }
    }

    pub(super) async fn put_off(
        &self,
        lease: &Lease,
        delay: Duration,
        counts: bool,
    ) -> Result<Settled, TransportError> {
        // Now is cut to a millisecond, so that a delay needs one more to be no shorter than asked for.
        let millis =
            if delay.is_zero() { 0 } else { u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).saturating_add(2) };
        // As far away as the server's numbers are exact.
        let what = What::Retry { millis: millis.min(Timestamp::MAX.as_millis()), counts };
        let settled = self.end_lease(lease, &what).await;
        // For whoever waits here: it looks again, and is told how long there is to wait.
        self.again.notify_one();
        settled
    }

    pub(super) async fn dead_letter(&self, lease: &Lease, reason: &str) -> Result<Settled, TransportError> {
        let broker = &self.broker;
        let asked = broker.link.ask(&self.lane, SETTLING, false, |_| {
            let mut range = ::redis::cmd("XRANGE");
            range.arg(&self.queue).arg(&lease.id).arg(&lease.id);
            range
        });
        let found = entries(asked.await?).ok_or_else(|| malformed(SETTLING, broker.link.place()))?;
        let Some(entry) = found.into_iter().next() else { return Ok(Settled::LeaseLost) };
        let letter = Letter::of_entry(&entry, reason, lease.attempts, &self.endpoint);
        self.end_lease(lease, &What::Letter(&letter)).await
    }

    /// Ends leases as if they had never begun.
    pub(super) async fn give_back(&self, deliveries: &[Delivery]) {
        let mut leases = deliveries.iter().filter_map(|delivery| Lease::of(&delivery.receipt));
        for lease in leases.by_ref() {
            if let Err(error) = self.put_off(&lease, Duration::ZERO, false).await {
                tracing::debug!(%error, endpoint = %self.endpoint, "giving messages back failed; their leases will run out");
                self.held.lost_answer();
                break;
            }
        }
        leases.for_each(|lease| self.held.ended(&lease));
    }
}
