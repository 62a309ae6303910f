//! Entities, dedup entries and dead letters in a MariaDB or MySQL database.
