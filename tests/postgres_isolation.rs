//! The PostgreSQL store and queue in databases whose transactions begin at other isolation levels than the usual one: the
//! promises that several processes at once could break, and two stores that race for the same entities. Directly and behind a
//! connection pooler, where a session has no settings of its own.
#![allow(clippy::unwrap_used)]

#[path = "postgres/samples.rs"]
mod samples;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use hapax::{
    Postgres, PostgresQueue,
    entity::Expected,
    ports::{DedupStore, EntityStore, Saved, Transport},
    stores::postgres::PostgresOptions,
    testing,
};
use hapax_tests::{Pgbouncer, PostgresDatabase, PostgresSchema};
use samples::Samples;
use sqlx::{Connection, PgConnection};

/// As in `conformance.rs`.
const LEASE: Duration = Duration::from_secs(1);

/// A database of one level.
#[derive(Debug)]
struct Place {
    pooler: Option<Pgbouncer>,
    // Before the database.
    schema: PostgresSchema,
    other: PostgresSchema,
    _database: PostgresDatabase,
}

impl Place {
    async fn new(level: &str) -> Self {
        let _database = PostgresDatabase::new(&[&format!("default_transaction_isolation = '{level}'")]).await;
        let mut connection = PgConnection::connect(&_database.url()).await.unwrap();
        let of_others: String =
            sqlx::query_scalar("SHOW transaction_isolation").fetch_one(&mut connection).await.unwrap();
        assert_eq!(of_others, level, "the database has the level that is being tried");
        let [schema, other] = [_database.schema(), _database.schema().named("other")];
        Self { pooler: None, schema, other, _database }
    }

    /// Behind a connection pooler; `None` where there is none.
    async fn pooled(level: &str) -> Option<Self> {
        let place = Self::new(level).await;
        let pooler = Pgbouncer::start(place.schema.url(), &[]).await?;
        Some(Self { pooler: Some(pooler), ..place })
    }

    fn options(&self, schema: &PostgresSchema) -> PostgresOptions {
        let (url, pooled) = match &self.pooler {
            Some(pooler) => (pooler.url(), true),
            None => (schema.url(), false),
        };
        Postgres::options(url).pooler(pooled).schema(schema.name()).migrate(true).writers(1)
    }

    async fn open(&self) -> Arc<Postgres> {
        Arc::new(self.options(&self.schema).open().await.unwrap())
    }
}

#[async_trait]
impl testing::entity_store::Builder for Place {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        self.open().await
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(self.open().await)
    }
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        None
    }
}

#[async_trait]
impl testing::dedup_store::Builder for Place {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        self.open().await
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.options(&self.other).open().await.unwrap()))
    }
}

#[async_trait]
impl testing::transport::Builder for Place {
    async fn transport(&self) -> Arc<dyn Transport> {
        let options = PostgresQueue::options().lease(LEASE).migrate(true);
        Arc::new(options.open_database(self.options(&self.schema)).await.unwrap())
    }
}

async fn keeps_its_promises(place: &Place) {
    use testing::{assert_kept, dedup_store, entity_store, transport};
    assert_kept(entity_store::guarded(place).await);
    assert_kept(entity_store::never_again(place).await);
    assert_kept(entity_store::current(place).await);
    assert_kept(entity_store::one_snapshot(place).await);
    assert_kept(entity_store::only_with_the_winner(place).await);
    assert_kept(entity_store::finish_marks_first(place).await);
    assert_kept(entity_store::own_result(place).await);
    assert_kept(entity_store::purge_spares(place).await);
    assert_kept(dedup_store::visible(place).await);
    assert_kept(dedup_store::idempotent(place).await);
    assert_kept(dedup_store::in_the_end(place).await);
    assert_kept(transport::kept_until_settled(place).await);
    assert_kept(transport::hidden_under_a_lease(place).await);
    assert_kept(transport::late_settles_are_refused(place).await);
    assert_kept(transport::own_result(place).await);
}

/// Two stores count up the same entities, each with a message that both have, while a third one closes and empties
/// generations, sweeps and purges. Each step is counted once, and nobody is told of an error.
async fn races(place: &Place) {
    const KEYS: u32 = 10;
    const ROUNDS: u32 = 20;
    let samples = Samples::new("race");
    let [first, second, upkeep] = [place.open().await, place.open().await, place.open().await];
    let end = Arc::new(AtomicBool::new(false));
    let keeping = tokio::spawn({
        let (samples, end) = (samples.clone(), end.clone());
        async move {
            let key = samples.key(0);
            let mut rounds = 0;
            while !end.load(Ordering::Relaxed) {
                upkeep.evict(Duration::from_millis(1)).await.unwrap();
                upkeep.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap();
                upkeep.purge(key.scope(), Duration::ZERO, 10).await.unwrap();
                rounds += 1;
            }
            rounds
        }
    });
    let count = |store: Arc<Postgres>| {
        let samples = samples.clone();
        tokio::spawn(async move {
            let mut wins = vec![0; KEYS as usize];
            for round in 0..ROUNDS {
                let steps = (0..KEYS).map(|number| {
                    let (store, samples) = (&store, &samples);
                    async move {
                        let key = samples.key(number);
                        let stored = store.load(&key, &[]).await.unwrap().stored;
                        let (expected, count) = match stored {
                            Some(stored) => (Expected::Version(stored.version), Samples::number(&stored.entity)),
                            None => (Expected::Absent, 0),
                        };
                        let done = [samples.done(round * KEYS + number)];
                        store.save(&key, &expected, &samples.entity(count + 1), &done).await.unwrap() != Saved::Conflict
                    }
                });
                for (wins, won) in wins.iter_mut().zip(join_all(steps).await) {
                    *wins += u32::from(won);
                }
            }
            wins
        })
    };
    let [one, other] = [count(first.clone()), count(second)];
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    end.store(true, Ordering::Relaxed);
    assert!(keeping.await.unwrap() > 0);
    for number in 0..KEYS {
        let stored = first.load(&samples.key(number), &[]).await.unwrap().stored.unwrap();
        let wins = one[number as usize] + other[number as usize];
        assert_eq!(Samples::number(&stored.entity), wins, "{number}");
        assert!(wins >= ROUNDS, "{number}: of two that write at once, one wins");
    }
}

macro_rules! at_each_level {
    ($($module:ident: $level:literal,)*) => {$(
        mod $module {
            use super::{Place, keeps_its_promises, races};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres_keeps_its_promises() {
                keeps_its_promises(&Place::new($level).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn two_postgres_stores_race() {
                races(&Place::new($level).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn two_postgres_stores_race_behind_a_pooler() {
                if let Some(place) = Place::pooled($level).await {
                    races(&place).await;
                }
            }
        }
    )*};
}

at_each_level! {
    read_committed: "read committed",
    repeatable_read: "repeatable read",
    serializable: "serializable",
}
