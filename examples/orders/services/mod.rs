//! Services that keep a shop in several processes and have no queues: those are in a file beside the ledger, or on a broker. Each
//! is compiled in by a feature, since its client library takes long to build; their futures are boxed, since they are deeper than the
//! compiler likes to look.

#[cfg(feature = "cosmos")]
pub(crate) mod cosmos;
#[cfg(feature = "dynamodb")]
pub(crate) mod dynamodb;

#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
use hapax::{Sqlite, SqliteQueue, ports::StoreError};

use crate::{
    Options, Refusal,
    input::Input,
    place::{Database, Own, Service, ServiceKind},
    shop::Run,
    telemetry::Telemetry,
};
#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
use crate::{broker::OnBroker, worker, workers};

/// What a service does not have, in a file: queues, and a schedule for what a broker cannot hold back until it is due.
#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
struct Beside {
    schedule: Sqlite,
    queue: SqliteQueue,
}

#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
impl Beside {
    async fn open(service: &Service, new: bool) -> Result<Self, StoreError> {
        let schedule = Sqlite::options(service.queue()).create_if_missing(new).migrate(new).open().await?;
        let queue = SqliteQueue::options().lease(workers::LEASE).migrate(new).on(&schedule).await?;
        Ok(Self { schedule, queue })
    }
}

#[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
fn not_built(kind: ServiceKind) -> Refusal {
    Refusal::new(format!("this program was built without {}", kind.name()))
}

/// A day in the shop, as [`workers::run`] has it.
#[allow(unused_variables, reason = "where no service is compiled in")]
pub(crate) async fn run(
    service: &Service,
    database: &Database,
    own: Own<'_>,
    input: &Input,
    options: &Options,
    seed: u64,
    telemetry: Option<&Telemetry>,
) -> Result<Run, Refusal> {
    match (service.kind, database.broker.is_some()) {
        #[cfg(feature = "dynamodb")]
        (ServiceKind::DynamoDb, false) => {
            Box::pin(workers::run::<dynamodb::InDynamoDb>(service, database, own, input, options, seed, telemetry))
                .await
        }
        #[cfg(feature = "dynamodb")]
        (ServiceKind::DynamoDb, true) => {
            Box::pin(workers::run::<OnBroker<dynamodb::InDynamoDb>>(
                service, database, own, input, options, seed, telemetry,
            ))
            .await
        }
        #[cfg(feature = "cosmos")]
        (ServiceKind::CosmosDb, false) => {
            Box::pin(workers::run::<cosmos::InCosmosDb>(service, database, own, input, options, seed, telemetry)).await
        }
        #[cfg(feature = "cosmos")]
        (ServiceKind::CosmosDb, true) => {
            Box::pin(workers::run::<OnBroker<cosmos::InCosmosDb>>(
                service, database, own, input, options, seed, telemetry,
            ))
            .await
        }
        #[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
        (kind, _) => Err(not_built(kind)),
    }
}

/// A worker of it, as [`worker::run`] has it.
#[allow(unused_variables, reason = "where no service is compiled in")]
pub(crate) async fn work(service: &Service, database: &Database, options: &Options) -> Result<(), Refusal> {
    match (service.kind, database.broker.is_some()) {
        #[cfg(feature = "dynamodb")]
        (ServiceKind::DynamoDb, false) => {
            Box::pin(worker::run::<dynamodb::InDynamoDb>(service, database, options)).await
        }
        #[cfg(feature = "dynamodb")]
        (ServiceKind::DynamoDb, true) => {
            Box::pin(worker::run::<OnBroker<dynamodb::InDynamoDb>>(service, database, options)).await
        }
        #[cfg(feature = "cosmos")]
        (ServiceKind::CosmosDb, false) => Box::pin(worker::run::<cosmos::InCosmosDb>(service, database, options)).await,
        #[cfg(feature = "cosmos")]
        (ServiceKind::CosmosDb, true) => {
            Box::pin(worker::run::<OnBroker<cosmos::InCosmosDb>>(service, database, options)).await
        }
        #[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
        (kind, _) => Err(not_built(kind)),
    }
}

/// Says why the service itself cannot be used; nothing is made.
pub(crate) async fn check(service: &Service) -> Result<(), String> {
    match service.kind {
        #[cfg(feature = "dynamodb")]
        ServiceKind::DynamoDb => dynamodb::check(service).await,
        #[cfg(feature = "cosmos")]
        ServiceKind::CosmosDb => cosmos::check(service).await,
        #[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
        kind => Err(not_built(kind).to_string()),
    }
}

/// Removes what a run has there.
pub(crate) async fn remove(service: &Service) -> Result<(), String> {
    match service.kind {
        #[cfg(feature = "dynamodb")]
        ServiceKind::DynamoDb => dynamodb::remove(service).await,
        #[cfg(feature = "cosmos")]
        ServiceKind::CosmosDb => cosmos::remove(service).await,
        #[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
        kind => Err(not_built(kind).to_string()),
    }
}
