//! Dedup entries in object storage.
