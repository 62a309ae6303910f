//! Entities, dedup entries and dead letters in one DynamoDB table.
