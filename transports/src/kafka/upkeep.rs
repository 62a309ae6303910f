//! What people and programs ask of queues, beside sending and receiving.

use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, TransportError},
};
use rdkafka::{
    admin::AdminOptions,
    error::{KafkaError, RDKafkaErrorCode as Code},
};

use super::{
    Kafka,
    errors::failure,
    notes::{Notes, Pen},
};

impl Kafka {
    /// How many messages are behind what `endpoint` has committed: those that wait, and those that are given and not settled. Offsets at which
    /// nothing is any more are counted too.
    ///
    /// # Errors
    /// [`TransportError`]; also when the endpoint has never connected.
    pub async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        const COUNTING: &str = "counting messages";
        let broker = &self.0;
        let queue = broker.names.queue(endpoint);
        if !broker.is_there(COUNTING, &queue).await? {
            let why = format!("{} has no topic `{queue}`: start its endpoint once", broker.link.place());
            return Err(TransportError::new(ErrorKind::Unavailable, COUNTING, why));
        }
        let asker = broker.link.asker_for(&broker.names.group(endpoint)).await?;
        let reads = broker.read(COUNTING, endpoint, &asker).await?;
        Ok(reads.values().map(|read| (read.bounds.high - read.at.max(read.bounds.low)).max(0).unsigned_abs()).sum())
    }

    /// Ends subscriptions of `endpoint`: once its processes are started without them, what is published does not go to it, and what it has
    /// not settled is gone.
    ///
    /// # Errors
    /// [`TransportError`]; harmless when repeated.
    pub async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        const ENDING: &str = "ending a subscription";
        let broker = &self.0;
        let pen = Pen { topic: broker.names.notes(endpoint), endpoint: endpoint.clone() };
        if !broker.is_there(ENDING, &pen.topic).await? {
            return Ok(());
        }
        let asker = broker.link.asker_for(&broker.names.group(endpoint)).await?;
        let noted = pen.topic.clone();
        let notes = broker.link.ask_as(ENDING, &asker, move |asker| Notes::read(asker, &noted)).await?;
        let topics: Vec<String> = types.iter().map(|kind| broker.names.topic(kind)).collect();
        let ended = topics.iter().filter(|topic| notes.is_subscribed(topic)).map(|topic| pen.ended(topic));
        let away = topics.iter().flat_map(|topic| notes.starts_of(topic)).map(|key| pen.away(key));
        let parcels: Vec<_> = ended.chain(away).collect();
        for put in broker.link.producing.put_all(&parcels).await {
            put.map_err(|e| failure(ENDING, broker.link.place(), &e, true))?;
        }
        Ok(())
    }

    /// Removes all that was declared under this prefix, with every message in it: what waits for `endpoints`, their dead letters, notes and
    /// groups, and all that is published. For programs that had a [prefix](super::KafkaOptions::prefix) to themselves, once all of them
    /// have ended.
    ///
    /// # Errors
    /// [`TransportError`]; some may be gone. Harmless when repeated.
    pub async fn remove(&self, endpoints: &[EndpointName]) -> Result<(), TransportError> {
        const REMOVING: &str = "removing queues";
        let (broker, names) = (&self.0, &self.0.names);
        let beginning = names.topics();
        let mut topics = broker.link.ask(REMOVING, move |asker| asker.topics(&beginning)).await?;
        for endpoint in endpoints {
            topics.extend([names.queue(endpoint), names.dead_letters(endpoint), names.notes(endpoint)]);
        }
        let groups: Vec<String> = endpoints.iter().map(|endpoint| names.group(endpoint)).collect();
        let admin = broker.link.admin()?;
        let within = AdminOptions::new().request_timeout(Some(broker.link.patience));
        let failed = |e: KafkaError| failure(REMOVING, broker.link.place(), &e, true);
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        for gone in admin.delete_topics(&names, &within).await.map_err(failed)? {
            match gone {
                Ok(name) => broker.link.forget(&name),
                Err((name, Code::UnknownTopicOrPartition)) => broker.link.forget(&name),
                Err((_, code)) => return Err(failed(KafkaError::AdminOp(code))),
            }
        }
        let names: Vec<&str> = groups.iter().map(String::as_str).collect();
        for gone in admin.delete_groups(&names, &within).await.map_err(failed)? {
            match gone {
                Ok(_) | Err((_, Code::GroupIdNotFound | Code::InvalidGroupId)) => {}
                Err((_, code)) => return Err(failed(KafkaError::AdminOp(code))),
            }
        }
        Ok(())
    }
}
