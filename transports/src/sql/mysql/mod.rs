//! Durable queues in a MariaDB or MySQL database.
