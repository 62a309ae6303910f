//! The way out: for what is retried and swept, and to see what is in queues.

use hapax::{
    operator::{Operator, masked_url},
    ports::{Dispatcher, QueueSurvey, Transport},
};

use crate::{
    args::Common,
    failure::Failure,
    place::{Opened, Place},
};

/// The operator with the transport that was named, or with the queues that stand beside the store.
pub(crate) async fn with_transport(opened: Opened, common: &Common) -> Result<Operator, Failure> {
    let Some(url) = common.transport() else { return Ok(opened.operator) };
    on_transport(opened.operator, &url, common).await
}

/// The same for what sends: without one it is refused.
pub(crate) async fn sending(opened: Opened, common: &Common) -> Result<Operator, Failure> {
    if common.transport().is_none() && !opened.has_queues {
        return Err(Failure::usage(
            "it sends messages, and there are no queues beside the store: name the endpoint's transport, --transport URL or HAPAX_TRANSPORT",
        ));
    }
    with_transport(opened, common).await
}

/// What it is called where somebody is asked: queues that are left beside a store are not those of an endpoint that has moved on.
pub(crate) fn way_out(opened: &Opened, common: &Common) -> String {
    match (common.transport(), opened.has_queues) {
        (Some(url), _) => masked_url(&url),
        (None, true) => "the queues beside the store".to_owned(),
        (None, false) => "a transport that is to be named".to_owned(),
    }
}

fn given<T>(operator: Operator, transport: T) -> Operator
where
    T: Dispatcher + QueueSurvey + Clone + 'static,
{
    operator.queues(transport.clone()).sends_by(transport)
}

/// The operator with the transport at `url`, and no other.
pub(crate) async fn on_transport(operator: Operator, url: &str, common: &Common) -> Result<Operator, Failure> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        #[cfg(feature = "rabbitmq")]
        Some("amqp" | "amqps") => {
            let mut options = hapax::RabbitMq::options().ordered_keys(common.ordered_keys);
            options = common.queue_prefix.iter().fold(options, hapax::transports::rabbitmq::RabbitMqOptions::prefix);
            Ok(given(operator, options.open(url).await.map_err(|error| Failure::of(&error))?))
        }
        #[cfg(feature = "nats")]
        Some("nats" | "tls") => {
            let mut options = hapax::Nats::options().ordered_keys(common.ordered_keys);
            options = common.queue_prefix.iter().fold(options, hapax::transports::nats::NatsOptions::prefix);
            Ok(given(operator, options.open(url).await.map_err(|error| Failure::of(&error))?))
        }
        #[cfg(feature = "redis")]
        Some("redis" | "rediss") => {
            use hapax::transports::redis::{MayLose, RedisStreamsOptions};
            // What the server may lose is the endpoint's affair, which has said so or would not run; here it is told.
            let mut options =
                hapax::RedisStreams::options().ordered_keys(common.ordered_keys).may_lose(MayLose::Everything);
            options = common.queue_prefix.iter().fold(options, RedisStreamsOptions::prefix);
            let queues = options.open(url).await.map_err(|error| Failure::of(&error))?;
            if !queues.capabilities().marks {
                tracing::warn!(
                    "{} may lose what it has confirmed when it dies, and a message that was sent there again is no dead letter any more: \
                     set `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no`",
                    masked_url(url)
                );
            }
            Ok(given(operator, queues))
        }
        #[cfg(feature = "kafka")]
        Some("kafka" | "kafka+tls") => {
            let mut options = hapax::Kafka::options().ordered_keys(common.ordered_keys);
            options = common.queue_prefix.iter().fold(options, hapax::transports::kafka::KafkaOptions::prefix);
            Ok(given(operator, options.open(url).await.map_err(|error| Failure::of(&error))?))
        }
        _ => queues(operator, url, common).await,
    }
}

/// Queues in a database.
async fn queues(operator: Operator, url: &str, common: &Common) -> Result<Operator, Failure> {
    // Names of the store's tables say nothing of a database of another kind.
    let kind = |url: &str| url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_of_one_kind = kind(url) == common.store().as_deref().and_then(kind);
    let named = if is_of_one_kind { common.clone() } else { common.without_names() };
    let unknown = || {
        // What lacks its slashes has its password anywhere.
        let shown = if url.contains("://") { masked_url(url) } else { "what was given".to_owned() };
        Failure::usage(format!("`{shown}` is no transport that this program was built with; run `hapax --help`"))
    };
    let place = Place::parse(url, &named).map_err(|_| unknown())?;
    match place {
        #[cfg(feature = "sqlite")]
        Place::Sqlite(path) => {
            let file = hapax::Sqlite::options(&path);
            let queues = hapax::SqliteQueue::options().ordered_keys(common.ordered_keys).migrate(false);
            Ok(given(operator, queues.open_database(file).await.map_err(|error| Failure::of(&error))?))
        }
        #[cfg(feature = "postgres")]
        Place::Postgres(database) => {
            let queues = hapax::PostgresQueue::options().ordered_keys(common.ordered_keys).migrate(false);
            Ok(given(operator, queues.open_database(database).await.map_err(|error| Failure::of(&error))?))
        }
        #[cfg(feature = "mysql")]
        Place::MySql(database) => {
            let queues = hapax::MySqlQueue::options().ordered_keys(common.ordered_keys).migrate(false);
            Ok(given(operator, queues.open_database(database).await.map_err(|error| Failure::of(&error))?))
        }
        #[allow(unreachable_patterns, reason = "as the features are")]
        _ => Err(unknown()),
    }
}
