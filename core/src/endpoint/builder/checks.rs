//! What an endpoint looks at before it starts. Each failure is one line: what is wrong, and the remedy.

use std::{panic::catch_unwind, time::Duration};

use super::Settings;
use crate::{
    ids::{EndpointName, SagaName, TypeName},
    manager::Stores,
    ports::{Delays, Schedule, Transport, TransportCapabilities},
};

/// The one retention: the settings say it, or [`Eviction::After`](crate::endpoint::Eviction::After) does, or both the same.
pub(super) fn retention_of(settings: &Settings, evicts_after: Option<Duration>) -> Result<Duration, String> {
    let said = settings.retention;
    match evicts_after {
        Some(after) if after != said && said != Settings::default().retention => Err(format!(
            "retention is {said:?} in its settings and {after:?} in its Eviction::After; leave one of the two out"
        )),
        after => Ok(after.unwrap_or(said)),
    }
}

/// A message of several sagas comes again for all of them while one of them fails: those that are done with it must still know.
pub(super) fn check_rests(
    settings: &Settings,
    transport: &dyn Transport,
    shared: Option<&TypeName>,
    by_evidence: bool,
) -> Result<(), String> {
    let Some(shared) = shared.filter(|_| !by_evidence) else { return Ok(()) };
    let rests = settings.recoverability.longest();
    let needed = rests.saturating_add(transport.capabilities().redelivery_max).saturating_add(settings.deadline);
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
pub(super) fn check_promise(
    stores: &Stores,
    transport: &dyn Transport,
    settings: &Settings,
    by_evidence: bool,
) -> Result<(), String> {
    let (store, transport) = (stores.entities().capabilities(), transport.capabilities());
    // A queue that shows when its copies are gone may take as long as it likes.
    let redelivery_max = if by_evidence { Duration::ZERO } else { transport.redelivery_max };
    let needed = redelivery_max.saturating_add(settings.deadline);
    if settings.retention <= needed {
        return Err(format!(
            "retention is {:?}, but {} may give a message again for {:?} and a pass may take {:?}; raise the retention",
            settings.retention, transport.name, redelivery_max, settings.deadline
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
    if !dedup.consistent {
        return Err(format!(
            "{} may answer with what was known a while ago, so messages would be handled twice; open it so that its reads are strongly \
             consistent, or give another dedup store",
            dedup.name
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
    let (attempts_max, poison_above) = (settings.recoverability.most_attempts(), settings.recoverability.poison_above);
    if attempts_max > poison_above {
        return Err(format!(
            "a failing message is to be given up after {attempts_max} attempts, but after {poison_above} every message is \
             taken for poison; raise recoverability.poison_above, or lower attempts_max there or in the rule that grants most"
        ));
    }
    if poison_above == 0 {
        return Err("recoverability.poison_above is 0, so every message would be set aside unhandled; raise it".into());
    }
    check_zeros(settings)
}

/// What would come to nothing, or be done without a rest.
fn check_zeros(settings: &Settings) -> Result<(), String> {
    let busy = "so it would be done without a rest";
    let zeros = [
        ("deadline", settings.deadline.is_zero(), "so no pass would come to its end"),
        ("entries_max", settings.entries_max == 0, "so nothing that sends could be saved"),
        ("in_flight_max", settings.in_flight_max == 0, "so nothing would be received"),
        ("bytes_in_flight_max", settings.bytes_in_flight_max == 0, "so messages would be handled one by one"),
        ("pass_max", settings.pass_max == 0, "so no message would be handled"),
        ("sweep_interval", settings.sweep_interval.is_zero(), busy),
        ("enqueued_interval", settings.enqueued_interval.is_zero(), busy),
        ("evict_interval", settings.evict_interval.is_zero(), busy),
    ];
    match zeros.into_iter().find(|(_, is_zero, _)| *is_zero) {
        Some((name, _, why)) => Err(format!("{name} is 0, {why}; raise it")),
        None => Ok(()),
    }
}

/// Whoever is to remember for longer than entries are kept must be able to.
pub(super) fn check_memory(stores: &Stores, settings: &Settings, evidence: bool) -> Result<(), String> {
    let (name, keys) = (stores.dedup().dedup_capabilities().name, settings.idempotency_retention);
    if let Some(keys) = keys.filter(|keys| *keys < settings.retention) {
        return Err(format!(
            "messages with an idempotency key are to be remembered for {keys:?}, shorter than the retention of {:?}; raise \
             idempotency_retention, or leave it away",
            settings.retention
        ));
    }
    if stores.dedup().long_memory().is_some() {
        return Ok(());
    }
    if evidence {
        return Err(format!(
            "{name} does not remember the numbers of messages whose entries it has evicted, so it cannot go by evidence; use \
             Eviction::After, or a dedup store with a long memory"
        ));
    }
    match keys {
        Some(keys) if keys > settings.retention => Err(format!(
            "{name} keeps all dedup entries for one time, so it cannot keep those of idempotency keys for {keys:?}; raise the retention to \
             that, or give a dedup store with a long memory"
        )),
        _ => Ok(()),
    }
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
