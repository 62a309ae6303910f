//! What all calls of one store have in common: options, a time limit, what was charged, and which regions count.

use std::{
    future::Future,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use azure_data_cosmos::{
    diagnostics::DiagnosticsContext,
    options::{
        AvailabilityStrategy, ContentResponseOnWrite, ExcludedRegions, OperationOptions, ReadConsistencyStrategy,
        Region, ThrottlingRetryOptionsBuilder,
    },
};
use hapax_core::ports::StoreError;
use tokio::time::timeout;

use super::error;

/// Charges are counted in thousandths of a request unit.
const UNIT: f64 = 1_000.0;

/// The calls of one store and its clones.
#[derive(Debug)]
pub(super) struct Calls {
    reads: OperationOptions,
    writes: OperationOptions,
    limit: Duration,
    charged: AtomicU64,
    requests: AtomicU64,
    pub(super) regions: Regions,
}

/// Which region takes the writes, as the last of them was answered.
#[derive(Debug, Default)]
pub(super) struct Regions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    home: Option<Region>,
    /// Those that have answered reads and do not take the writes.
    away: Vec<Region>,
}

impl Calls {
    pub(super) fn new(limit: Duration, throttle_wait: Duration, strong: bool) -> Self {
        let mut writes = OperationOptions::default();
        writes.hedging_enabled = Some(false);
        writes.availability_strategy = Some(AvailabilityStrategy::Disabled);
        // What is to be done about a lost answer knows whoever has written; and another region's reads do not count.
        writes.max_failover_retry_count = Some(0);
        let throttling = ThrottlingRetryOptionsBuilder::new().with_max_retry_wait_time(throttle_wait).build();
        writes.throttling_retry_options = Some(throttling);
        let mut reads = writes.clone();
        reads.read_consistency_strategy = Some(match strong {
            true => ReadConsistencyStrategy::GlobalStrong,
            false => ReadConsistencyStrategy::LatestCommitted,
        });
        let (charged, requests) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { reads, writes, limit, charged, requests, regions: Regions::default() }
    }

    pub(super) fn units(&self) -> f64 {
        self.charged.load(Ordering::Relaxed) as f64 / UNIT
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts what a call has cost, and tells which regions it has asked.
    pub(super) fn heard(&self, diagnostics: &DiagnosticsContext) -> Vec<Region> {
        self.tally(diagnostics);
        diagnostics.regions_contacted()
    }

    pub(super) fn tally(&self, diagnostics: &DiagnosticsContext) {
        let charge = diagnostics.total_request_charge().value() * UNIT;
        // A charge is small and never negative.
        self.charged.fetch_add(charge as u64, Ordering::Relaxed);
        self.requests.fetch_add(diagnostics.request_count() as u64, Ordering::Relaxed);
    }

    pub(super) fn reading(&self) -> OperationOptions {
        let mut options = self.reads.clone();
        let known = self.regions.known();
        if !known.away.is_empty() {
            let regions = known.away.iter().cloned();
            options.excluded_regions = Some(regions.fold(ExcludedRegions::new(), ExcludedRegions::with_region));
        }
        options
    }

    /// `told`: the answer is to have the document in it, which says when it was written.
    pub(super) fn writing(&self, told: bool) -> OperationOptions {
        let mut options = self.writes.clone();
        options.content_response_on_write =
            Some(if told { ContentResponseOnWrite::Enabled } else { ContentResponseOnWrite::Disabled });
        options
    }

    pub(super) async fn in_time<T>(
        &self,
        doing: &'static str,
        writes: bool,
        call: impl Future<Output = T> + Send,
    ) -> Result<T, StoreError> {
        timeout(self.limit, call).await.map_err(|_| error::too_late(doing, self.limit, writes))
    }
}

impl Regions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers which region has taken a write.
    pub(super) fn wrote_in(&self, diagnostics: &DiagnosticsContext) {
        let mut known = self.known();
        known.home = diagnostics.regions_contacted().pop();
        let home = known.home.clone();
        known.away.retain(|region| Some(region) != home.as_ref());
    }

    /// Whether the region that takes the writes was asked, and no other.
    pub(super) fn are_home(&self, asked: &[Region]) -> bool {
        let known = self.known();
        !asked.is_empty() && asked.iter().all(|region| Some(region) == known.home.as_ref())
    }

    /// The same; and those that do not take the writes are left out from now on.
    pub(super) fn are_home_or_away(&self, asked: &[Region]) -> bool {
        if self.are_home(asked) {
            return true;
        }
        let mut known = self.known();
        for region in asked {
            if Some(region) != known.home.as_ref() && !known.away.contains(region) {
                known.away.push(region.clone());
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_hedged_and_nothing_fails_over_to_another_region() {
        for strong in [true, false] {
            let calls = Calls::new(Duration::from_secs(1), Duration::from_millis(500), strong);
            for options in [calls.reading(), calls.writing(true), calls.writing(false)] {
                assert_eq!(options.hedging_enabled, Some(false));
                assert_eq!(options.availability_strategy, Some(AvailabilityStrategy::Disabled));
                assert_eq!(options.max_failover_retry_count, Some(0));
            }
        }
    }

    #[test]
    fn a_region_that_does_not_take_the_writes_does_not_count_and_is_left_out() {
        let calls = Calls::new(Duration::from_secs(1), Duration::from_millis(500), true);
        let (east, west) = (Region::EAST_US, Region::WEST_US);
        assert!(!calls.regions.are_home(&[]));
        assert!(!calls.regions.are_home(std::slice::from_ref(&east)));
        calls.regions.known().home = Some(east.clone());
        assert!(calls.regions.are_home(std::slice::from_ref(&east)));
        assert!(!calls.regions.are_home_or_away(&[east.clone(), west.clone()]));
        let excluded = calls.reading().excluded_regions.unwrap_or_default();
        assert_eq!(excluded.iter().collect::<Vec<_>>(), [&west]);
    }
}
