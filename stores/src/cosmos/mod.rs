//! Entities, dedup entries and dead letters in Cosmos DB containers.
