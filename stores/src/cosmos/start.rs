//! What is looked at before a store is used. Each refusal says what is wrong, and the remedy.

use std::{env, sync::Arc};

use azure_core::http::StatusCode;
use azure_data_cosmos::{
    ContainerClient, CosmosError,
    models::{ContainerProperties, IndexingMode, IndexingPolicy, PartitionKeyVersion, PropertyPath, TimeToLive},
    options::{ItemReadOptions, OperationOptions, ReadConsistencyStrategy},
};
use hapax_core::ports::{ErrorKind, StoreError};
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    CosmosDb, Inner, Layout,
    access::{Access, Written},
    calls::Calls,
    documents::{FORMAT, SettingsDocument},
    error::{self, unfit},
    options::{CosmosDbOptions, KEEPS_MARGIN},
    places::{OWN_PARTITION, PARTITION_PATH, property_of},
};

const OPENING: &str = "opening the Cosmos DB store";
/// Overrides what a program says about hedging, and hedged reads say "not seen" of what is over.
const HEDGING_OVERRIDE: &str = "AZURE_COSMOS_HEDGING_ENABLED_OVERRIDE";
/// What is looked for by the sweeper, the purge and whoever lists dead letters.
const INDEXED: [&str; 6] = ["/pk/?", "/waits/?", "/oldest/?", "/ended/?", "/sorted/?", "/message/?"];
pub(super) const SETTINGS: &str = "settings";

/// Opening may take as long as so many calls: there are some ten, of which few are slow. The client library tries each of them for
/// longer than a call is waited for.
const OPENING_CALLS: u32 = 6;

pub(super) async fn open(options: CosmosDbOptions) -> Result<CosmosDb, StoreError> {
    let limit = options.call_limit.saturating_mul(OPENING_CALLS);
    let opened = timeout(limit, open_in_time(options)).await;
    opened.unwrap_or_else(|_| {
        let why = format!("not open within {limit:?}: the service can be reached and does not answer; try again");
        Err(StoreError::new(ErrorKind::Unavailable, OPENING, why))
    })
}

async fn open_in_time(options: CosmosDbOptions) -> Result<CosmosDb, StoreError> {
    let options = options.checked()?;
    check_environment(env::var(HEDGING_OVERRIDE).ok().as_deref())?;
    if options.create_if_missing {
        create_database(&options).await?;
    }
    let container = container(&options, &options.container, &options.partition_path).await?;
    let strong = is_strong(&container).await?;
    if !strong && !options.one_write_region {
        return Err(unfit(
            "the account's default consistency is not strong, so a region may not know yet what is over; make it strong, \
             or say `one_write_region(true)` if the account takes writes in one region only; one that takes them in several \
             cannot be used",
        ));
    }
    let calls = Arc::new(Calls::new(options.call_limit, options.throttle_wait(), strong));
    let own = (options.partition_path != PARTITION_PATH).then(|| property_of(&options.partition_path)).flatten();
    let everything = Access { container, calls: calls.clone(), property: own.map(Into::into) };
    everything.second(OPENING).await?; // Also tells which region takes the writes.
    let marks = match options.layout {
        Layout::Together => everything.clone(),
        Layout::Apart => {
            let container = self::container(&options, &options.dedup_container, PARTITION_PATH).await?;
            Access { container, calls, property: None }
        }
    };
    check_history(&everything, &marks, &options).await?;
    let kept = options.keeps.saturating_add(KEEPS_MARGIN);
    Ok(CosmosDb(Arc::new(Inner { everything, marks, layout: options.layout, keeps: options.keeps, kept })))
}

fn check_environment(hedging: Option<&str>) -> Result<(), StoreError> {
    // Whatever the client library does not take for false.
    match hedging.map(str::trim) {
        Some(value) if !value.eq_ignore_ascii_case("false") => Err(unfit(format!(
            "the environment variable {HEDGING_OVERRIDE} is `{value}` and would switch on hedged reads, which may say of a \
             message that it was not seen; unset it"
        ))),
        _ => Ok(()),
    }
}

async fn create_database(options: &CosmosDbOptions) -> Result<(), StoreError> {
    let mut containers = vec![(&options.container, options.partition_path.as_str())];
    if options.layout == Layout::Apart {
        containers.push((&options.dedup_container, PARTITION_PATH));
    }
    unless_there(options.client.create_database(&options.database, None).await)?;
    for (name, path) in containers {
        let policy = IndexingPolicy::default().with_indexing_mode(IndexingMode::Consistent);
        let policy = INDEXED.iter().fold(policy, |policy, path| policy.with_included_path(PropertyPath::from(*path)));
        let mut policy = policy.with_excluded_path(PropertyPath::from("/*"));
        policy.automatic = true;
        let properties = ContainerProperties::new(name.clone(), path.into())
            .with_indexing_policy(policy)
            .with_default_ttl(TimeToLive::NoDefault);
        unless_there(options.database_client().create_container(properties, None).await)?;
    }
    Ok(())
}

fn unless_there<T>(created: azure_data_cosmos::Result<T>) -> Result<(), StoreError> {
    match created {
        Err(e) if matches!(e.status().status_code(), StatusCode::Forbidden | StatusCode::Unauthorized) => {
            let why = "the service denied `create_if_missing(true)`: it takes a key of the account that may write, for no role of Entra ID \
                       lets an identity make databases and containers this way; make them first, and leave it out";
            Err(StoreError::new(ErrorKind::Denied, OPENING, why).caused_by(e))
        }
        // Whether it was made matters to nobody: who opens again finds it.
        Err(e) if !e.status().is_conflict() => Err(error::of_read(OPENING, e)),
        _ => Ok(()),
    }
}

async fn container(options: &CosmosDbOptions, name: &str, path: &str) -> Result<ContainerClient, StoreError> {
    let failed = |e: CosmosError| {
        if e.status().is_not_found() {
            let why = format!(
                "there is no container {name} in a database {}; create both with the partition key {path} and a \
                 default time to live of -1, or say `create_if_missing(true)`",
                options.database
            );
            return StoreError::new(ErrorKind::Absent, OPENING, why).caused_by(e);
        }
        error::of_read(OPENING, e)
    };
    let container = options.database_client().container_client(name.to_owned(), None).await.map_err(failed)?;
    let read = container.read(None).await.map_err(failed)?;
    let properties = read.into_model().map_err(|e| error::malformed(OPENING, e))?;
    check_container(name, path, &properties)?;
    Ok(container)
}

fn check_container(name: &str, path: &str, properties: &ContainerProperties) -> Result<(), StoreError> {
    let key = &properties.partition_key;
    if key.paths().len() != 1 || key.paths()[0] != path {
        let paths = key.paths();
        return Err(unfit(format!(
            "container {name} has the partition key {paths:?}, not {path}; create another, or open the store with its \
             `partition_path`"
        )));
    }
    if key.version() != PartitionKeyVersion::V2 {
        return Err(unfit(format!("container {name} tells partition keys apart by 100 bytes only; create another")));
    }
    if properties.default_ttl != TimeToLive::NoDefault {
        return Err(unfit(format!(
            "the default time to live of container {name} has to be -1: with none, dedup entries would stay for ever, and \
             with another, entities would be lost; change it"
        )));
    }
    let Some(policy) = &properties.indexing_policy else { return Ok(()) };
    if !policy.automatic || policy.indexing_mode.as_ref().is_some_and(|mode| *mode != IndexingMode::Consistent) {
        return Err(unfit(format!("the index of container {name} is not kept up with its writes; make it consistent")));
    }
    let is_included = |wanted: &str| {
        let wide = wanted.replace("/?", "/*");
        let has = |paths: &[PropertyPath], wanted: &[&str]| paths.iter().any(|path| wanted.contains(&&*path.path));
        // The service's own policy includes everything, and one without paths is that. Of two paths the more precise one counts.
        let is_wide = policy.included_paths.is_empty() || has(&policy.included_paths, &[wide.as_str(), "/*"]);
        has(&policy.included_paths, &[wanted]) || is_wide && !has(&policy.excluded_paths, &[wanted, wide.as_str()])
    };
    let missing = INDEXED.iter().find(|path| !is_included(path));
    match missing {
        Some(path) => Err(unfit(format!("the index of container {name} leaves out {path}; include it"))),
        None => Ok(()),
    }
}

/// Whether the account is strong. Asked of the client library, which refuses the strongest reads where it is not, before it
/// sends anything; an account that is strong takes writes in one region.
async fn is_strong(container: &ContainerClient) -> Result<bool, StoreError> {
    let mut options = OperationOptions::default();
    options.read_consistency_strategy = Some(ReadConsistencyStrategy::GlobalStrong);
    let options = ItemReadOptions::default().with_operation_options(options);
    match container.read_item(OWN_PARTITION, SETTINGS, Some(options)).await {
        Ok(_) => Ok(true),
        Err(e) if e.status().is_not_found() => Ok(true),
        Err(e) if e.status().is_bad_request() && !e.is_from_wire() => Ok(false),
        Err(e) => Err(error::of_read(OPENING, e)),
    }
}

/// With other dedup entries than theirs, or without those that they had, entities would take what is over once more.
async fn check_history(everything: &Access, marks: &Access, options: &CosmosDbOptions) -> Result<(), StoreError> {
    let history = match options.layout {
        Layout::Together => String::new(),
        Layout::Apart => settings(marks, options, Uuid::new_v4().simple().to_string()).await?.history,
    };
    if settings(everything, options, history.clone()).await?.history == history {
        return Ok(());
    }
    Err(unfit(format!(
        "the dedup entries of the entities in container {} are not those in {}, which is another container, or was made anew since; \
         open it with its own `dedup_container`; only where no message from before can come again, remove the document \
         `{SETTINGS}` of partition `{OWN_PARTITION}` from container {}",
        options.container, options.dedup_container, options.container
    )))
}

/// The settings are written by whoever comes first; all others have to agree.
async fn settings(access: &Access, options: &CosmosDbOptions, history: String) -> Result<SettingsDocument, StoreError> {
    let ours = SettingsDocument {
        id: SETTINGS.into(),
        pk: OWN_PARTITION.into(),
        format: FORMAT,
        layout: options.layout.name().into(),
        keeps_seconds: options.keeps.as_secs(),
        history,
    };
    let theirs = match access.read::<SettingsDocument>(OPENING, OWN_PARTITION, SETTINGS).await? {
        Some(theirs) => theirs,
        None => {
            let written = access.create(OPENING, (OWN_PARTITION, SETTINGS), &ours, false).await?;
            match written {
                Written::Done(_) => return Ok(ours),
                Written::Refused(_) => {
                    access.read(OPENING, OWN_PARTITION, SETTINGS).await?.unwrap_or_else(|| ours.clone())
                }
            }
        }
    };
    if theirs.format != FORMAT {
        let found = theirs.format;
        return Err(unfit(format!(
            "the container has format {found}, and this program knows {FORMAT}; use its own version"
        )));
    }
    if theirs.layout != ours.layout {
        return Err(unfit(format!(
            "the container was set up with dedup entries {}, and is now opened with them {}; open it as it was, or use \
             another",
            theirs.layout, ours.layout
        )));
    }
    if theirs.keeps_seconds != ours.keeps_seconds {
        return Err(unfit(format!(
            "the container keeps dedup entries for {} s, and is now opened to keep them for {} s; open it as it was, or \
             stop all programs and change `keeps_seconds` in the document `{SETTINGS}` of partition `{OWN_PARTITION}`",
            theirs.keeps_seconds, ours.keeps_seconds
        )));
    }
    Ok(theirs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn properties() -> ContainerProperties {
        ContainerProperties::new("c", PARTITION_PATH.into()).with_default_ttl(TimeToLive::NoDefault)
    }

    #[test]
    fn an_environment_that_switches_hedging_on_is_refused() {
        check_environment(None).unwrap();
        check_environment(Some("false")).unwrap();
        for on in ["true", "1", "TRUE", ""] {
            let why = check_environment(Some(on)).unwrap_err().to_string();
            assert!(why.contains("unset"), "{why}");
        }
    }

    #[test]
    fn a_container_that_cannot_keep_the_promise_is_refused_with_the_remedy() {
        check_container("c", PARTITION_PATH, &properties()).unwrap();
        let lazy = IndexingPolicy::default().with_indexing_mode(IndexingMode::None);
        let mut narrow = IndexingPolicy::default().with_included_path(PropertyPath::from("/waits/?"));
        narrow.automatic = true;
        let wide = IndexingPolicy::default().with_included_path(PropertyPath::from("/*"));
        let mut pierced = wide.with_excluded_path(PropertyPath::from("/waits/*"));
        pierced.automatic = true;
        let precise = pierced.clone().with_included_path(PropertyPath::from("/waits/?"));
        check_container("c", PARTITION_PATH, &properties().with_indexing_policy(precise)).unwrap();
        let key = ContainerProperties::new("c", "/id".into()).with_default_ttl(TimeToLive::NoDefault);
        for (unfit, remedy) in [
            (key, "create another"),
            (properties().with_default_ttl(TimeToLive::Forever), "change it"),
            (properties().with_default_ttl(TimeToLive::Seconds(60)), "change it"),
            (properties().with_indexing_policy(lazy), "make it consistent"),
            (properties().with_indexing_policy(narrow), "include it"),
            (properties().with_indexing_policy(pierced), "/waits/?; include it"),
        ] {
            let why = check_container("c", PARTITION_PATH, &unfit).unwrap_err().to_string();
            assert!(why.contains(remedy), "{why}");
        }
        let why = check_container("c", "/customer", &properties()).unwrap_err().to_string();
        assert!(why.contains("not /customer") && why.contains("partition_path"), "{why}");
    }
}
