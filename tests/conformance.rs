//! Every honest adapter keeps every promise of its port: each suite of `hapax_core::testing`, run on each adapter.

#![allow(clippy::unwrap_used)]

#[path = "conformance/bodies.rs"]
mod bodies;
#[path = "liars/faulty.rs"]
mod faulty;
#[path = "conformance/partitioned_log.rs"]
mod partitioned_log;
#[path = "conformance/queues.rs"]
mod queues;
#[path = "conformance/served.rs"]
mod served;
#[path = "conformance/surveys.rs"]
mod surveys;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Memory, Sqlite,
    entity::{Entity, Expected},
    ids::{EndpointName, EntityKey, SagaKey, SagaName, Scope},
    ports::{DeadLetters, DedupStore, EntityStore, Saved, Schedule},
    testing,
};
use queues::{Queues, QueuesInMySql, QueuesInPostgres, QueuesInSqlite};
use served::{InMySql, InPostgres};

/// Short, so that the suite has not long to wait; long beside what a busy machine takes between two steps of a check.
const LEASE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct InMemory(Memory);

#[async_trait]
impl testing::entity_store::Builder for InMemory {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        Arc::new(self.0.clone())
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.0.clone()))
    }
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        Some(Arc::new(faulty::Faulty::honest(self.0.clone())))
    }
}

#[async_trait]
impl testing::dedup_store::Builder for InMemory {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(self.0.clone())
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(Memory::new()))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for InMemory {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(self.0.clone())
    }
}

#[async_trait]
impl testing::schedule::Builder for InMemory {
    async fn schedule(&self) -> Arc<dyn Schedule> {
        Arc::new(self.0.clone())
    }
}

/// One file; each handle is opened anew, as another process would.
#[derive(Debug)]
struct InSqlite(PathBuf);

static FILES: AtomicUsize = AtomicUsize::new(0);

impl InSqlite {
    fn new() -> Self {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("hapax-conformance-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    async fn open(&self) -> Arc<Sqlite> {
        Arc::new(Sqlite::open(self.0.join("hapax.db")).await.unwrap())
    }
}

impl Drop for InSqlite {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0)); // What cannot be removed is left in the temporary directory.
    }
}

#[async_trait]
impl testing::entity_store::Builder for InSqlite {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        self.open().await
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(self.open().await)
    }
    /// By turns, one that waits for no lock while another writes all the time, and one that waits for no answer.
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        let rival = self.open().await; // First, for it creates the file.
        let options = Sqlite::options(self.0.join("hapax.db"));
        let locked_out = options.clone().busy_timeout(Duration::ZERO).open().await.unwrap();
        let unanswered = options.write_limit(Duration::ZERO).open().await.unwrap();
        let faulty = Arc::new(faulty::Turns::new([Arc::new(locked_out), Arc::new(unanswered)]));
        let alive = Arc::downgrade(&faulty);
        tokio::spawn(async move {
            let scope =
                Scope { endpoint: EndpointName::parse("rival").unwrap(), saga: SagaName::parse("rival").unwrap() };
            let key = EntityKey::new(Arc::new(scope), SagaKey::parse("rival").unwrap());
            let large = Entity { state: vec![b'x'; 1 << 20].into(), ..Entity::default() };
            let mut expected = Expected::Absent;
            while alive.strong_count() > 0 {
                if let Ok(Saved::At(version)) = rival.save(&key, &expected, &large, &[]).await {
                    expected = Expected::Version(version);
                }
            }
        });
        Some(faulty)
    }
}

#[async_trait]
impl testing::dedup_store::Builder for InSqlite {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        self.open().await
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(Sqlite::open(self.0.join("separate.db")).await.unwrap()))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for InSqlite {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        self.open().await
    }
}

#[async_trait]
impl testing::schedule::Builder for InSqlite {
    async fn schedule(&self) -> Arc<dyn Schedule> {
        self.open().await
    }
}

mod memory {
    mod entities {
        hapax_core::entity_store_suite!(crate::InMemory::default());
    }
    mod dedup {
        hapax_core::dedup_store_suite!(crate::InMemory::default());
    }

    mod long_memory {
        hapax_core::long_memory_suite!(crate::InMemory::default());
    }
    mod letters {
        hapax_core::dead_letters_suite!(crate::InMemory::default());
    }
    mod schedule {
        hapax_core::schedule_suite!(crate::InMemory::default());
    }
    mod survey {
        hapax_core::survey_suite!(crate::InMemory::default());
    }
}

mod sqlite {
    mod entities {
        hapax_core::entity_store_suite!(crate::InSqlite::new());
    }
    mod dedup {
        hapax_core::dedup_store_suite!(crate::InSqlite::new());
    }
    mod long_memory {
        hapax_core::long_memory_suite!(crate::InSqlite::new());
    }
    mod letters {
        hapax_core::dead_letters_suite!(crate::InSqlite::new());
    }
    mod schedule {
        hapax_core::schedule_suite!(crate::InSqlite::new());
    }
    mod survey {
        hapax_core::survey_suite!(crate::InSqlite::new());
    }
}

mod postgres {
    mod entities {
        hapax_core::entity_store_suite!(crate::InPostgres::new());
    }
    mod entities_cleaned_later {
        hapax_core::entity_store_suite!(crate::InPostgres::cleaned_later());
    }
    mod dedup {
        hapax_core::dedup_store_suite!(crate::InPostgres::new());
    }
    mod long_memory {
        hapax_core::long_memory_suite!(crate::InPostgres::new());
    }
    mod letters {
        hapax_core::dead_letters_suite!(crate::InPostgres::new());
    }
    mod schedule {
        hapax_core::schedule_suite!(crate::InPostgres::new());
    }
    mod survey {
        hapax_core::survey_suite!(crate::InPostgres::new());
    }
}

mod mysql {
    mod entities {
        hapax_core::entity_store_suite!(crate::InMySql::new());
    }
    mod entities_cleaned_later {
        hapax_core::entity_store_suite!(crate::InMySql::cleaned_later());
    }
    mod dedup {
        hapax_core::dedup_store_suite!(crate::InMySql::new());
    }
    mod long_memory {
        hapax_core::long_memory_suite!(crate::InMySql::new());
    }
    mod letters {
        hapax_core::dead_letters_suite!(crate::InMySql::new());
    }
    mod schedule {
        hapax_core::schedule_suite!(crate::InMySql::new());
    }
    mod survey {
        hapax_core::survey_suite!(crate::InMySql::new());
    }
}

mod in_process {
    mod queues {
        hapax_core::transport_suite!(crate::Queues::new());
    }
    mod letters {
        hapax_core::dead_letters_suite!(crate::Queues::new());
    }
}

mod sqlite_queue {
    mod own_file {
        hapax_core::transport_suite!(crate::QueuesInSqlite::new(false, false));
    }
    mod own_file_ordered {
        hapax_core::transport_suite!(crate::QueuesInSqlite::new(true, false));
    }
    mod stores_file {
        hapax_core::transport_suite!(crate::QueuesInSqlite::new(false, true));
    }
    mod stores_file_ordered {
        hapax_core::transport_suite!(crate::QueuesInSqlite::new(true, true));
    }
    mod letters {
        hapax_core::dead_letters_suite!(crate::QueuesInSqlite::new(false, false));
    }
    mod survey {
        hapax_core::queue_survey_suite!(crate::QueuesInSqlite::new(false, false));
    }
    mod survey_ordered {
        hapax_core::queue_survey_suite!(crate::QueuesInSqlite::new(true, false));
    }
}

mod postgres_queue {
    mod own_schema {
        hapax_core::transport_suite!(crate::QueuesInPostgres::new(false, false));
    }
    mod own_schema_ordered {
        hapax_core::transport_suite!(crate::QueuesInPostgres::new(true, false));
    }
    mod stores_schema {
        hapax_core::transport_suite!(crate::QueuesInPostgres::new(false, true));
    }
    mod letters {
        hapax_core::dead_letters_suite!(crate::QueuesInPostgres::new(false, false));
    }
    mod survey {
        hapax_core::queue_survey_suite!(crate::QueuesInPostgres::new(false, false));
    }
    mod survey_ordered {
        hapax_core::queue_survey_suite!(crate::QueuesInPostgres::new(true, false));
    }
}

mod mysql_queue {
    mod own_tables {
        hapax_core::transport_suite!(crate::QueuesInMySql::new(false, false));
    }
    mod own_tables_ordered {
        hapax_core::transport_suite!(crate::QueuesInMySql::new(true, false));
    }
    mod stores_tables {
        hapax_core::transport_suite!(crate::QueuesInMySql::new(false, true));
    }
    mod letters {
        hapax_core::dead_letters_suite!(crate::QueuesInMySql::new(false, false));
    }
    mod survey {
        hapax_core::queue_survey_suite!(crate::QueuesInMySql::new(false, false));
    }
    mod survey_ordered {
        hapax_core::queue_survey_suite!(crate::QueuesInMySql::new(true, false));
    }
}
