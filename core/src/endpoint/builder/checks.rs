//! What an endpoint looks at before it starts. Each failure is one line: what is wrong, and the remedy.

use std::{panic::catch_unwind, time::Duration};

use super::Settings;
use crate::{
    ids::{EndpointName, SagaName, TypeName},
    manager::Stores,
    ports::{Delays, Schedule, Transport, TransportCapabilities},
};

/// A message of several sagas comes again for all of them while one of them fails: those that are done with it must still know.
pub(super) fn check_rests(
    settings: &Settings,
    transport: &dyn Transport,
    shared: Option<&TypeName>,
) -> Result<(), String> {
    let Some(shared) = shared else { return Ok(()) };
    let rests = settings.recoverability.longest();
    let needed = rests.saturating_add(transport.capabilities().redelivery_max).saturating_add(settings.limits.deadline);
    if needed < settings.retention {
        return Ok(());
    }
    Err(format!(
        "several sagas take {shared}, and while one fails the message may come again for {rests:?}, after those that are done with it have \
         forgotten it: retention is {:?}; raise it, or shorten the rests of recoverability",
        settings.retention
    ))
}

/// Refuses what cannot keep the promise, whatever the handlers do.
pub(super) fn check_promise(stores: &Stores, transport: &dyn Transport, settings: &Settings) -> Result<(), String> {
    let (store, transport) = (stores.entities().capabilities(), transport.capabilities());
    let needed = transport.redelivery_max.saturating_add(settings.limits.deadline);
    if settings.retention <= needed {
        return Err(format!(
            "retention is {:?}, but {} may give a message again for {:?} and a pass may take {:?}; raise the retention",
            settings.retention, transport.name, transport.redelivery_max, settings.limits.deadline
        ));
    }
    if settings.sweep_age.saturating_mul(2) > settings.retention {
        return Err(format!(
            "the sweeper's age is {:?}, too near to the retention of {:?}; lower it",
            settings.sweep_age, settings.retention
        ));
    }
    let dedup = stores.dedup().dedup_capabilities();
    if let Some(keeps) = dedup.keeps.filter(|keeps| *keeps < settings.retention) {
        return Err(format!(
            "retention is {:?}, but {} keeps dedup entries for {keeps:?} only; let it keep them for longer, or lower the \
             retention",
            settings.retention, dedup.name
        ));
    }
    if !dedup.alone && !stores.are_one() {
        return Err(format!(
            "{} takes dedup entries with its own entities only, and the entities are in {}; open it so that it takes them \
             alone, give another dedup store, or keep the entities in it too",
            dedup.name, store.name
        ));
    }
    for (name, durable) in [(store.name, store.durable), (dedup.name, dedup.durable)] {
        if transport.durable && !durable {
            return Err(format!(
                "messages in {} outlive the process, but what {name} remembers of them does not; give a durable store",
                transport.name
            ));
        }
    }
    if !transport.counts_deliveries {
        return Err(format!(
            "{} does not count deliveries, so a message that always fails would never be given up; give a transport that \
             counts",
            transport.name
        ));
    }
    let (deliveries_max, attempts_max) = (settings.recoverability.most_deliveries(), settings.limits.attempts_max);
    if deliveries_max > attempts_max {
        return Err(format!(
            "a failing message is to be given up after {deliveries_max} deliveries, but after {attempts_max} every message is \
             taken for poison; raise attempts_max of the limits or lower deliveries_max"
        ));
    }
    if settings.in_flight_max == 0 {
        return Err("in_flight_max is 0, so nothing would be received; raise it".into());
    }
    if settings.bytes_in_flight_max == 0 {
        return Err("bytes_in_flight_max is 0, so messages would be handled one by one; raise it".into());
    }
    Ok(())
}

/// What is due later has to be kept by somebody until then. Whether handlers send such messages shows when they do.
pub(super) fn check_delays(
    transport: &TransportCapabilities,
    schedule: Option<&dyn Schedule>,
    recurs: bool,
) -> Result<(), String> {
    let Some(schedule) = schedule.map(Schedule::schedule_capabilities) else {
        if recurs && transport.delays != Delays::Any {
            return Err(format!(
                "{} does not hold messages back for as long as what recurs has to wait; add .schedule(..), or give a transport \
                 with delays",
                transport.name
            ));
        }
        return Ok(());
    };
    if transport.durable && !schedule.durable {
        return Err(format!(
            "messages in {} outlive the process, but those that wait in the schedule in {} do not; give a durable schedule",
            transport.name, schedule.name
        ));
    }
    Ok(())
}

/// Two sagas of one name at one endpoint would silence each other's messages (S56).
pub(super) fn check_scopes<'a>(
    endpoint: &EndpointName,
    sagas: impl Iterator<Item = &'a SagaName>,
) -> Result<(), String> {
    let mut names: Vec<_> = sagas.collect();
    names.sort_unstable();
    match names.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(format!("endpoint {endpoint} has two sagas or handlers named {}; rename one", two[0])),
        None => Ok(()),
    }
}

/// An endpoint waits a great deal, and tokio panics at the first wait in a runtime that has no timers. It has no other way
/// to be asked; what it panics with goes to the panic hook, and says the same.
pub(crate) fn check_timers() -> Result<(), String> {
    let wait = catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO)));
    wait.map_err(|_| "there is no tokio runtime with timers here; build it with .enable_all() or .enable_time()".into())
}
