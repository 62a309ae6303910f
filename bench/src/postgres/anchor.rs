//! The hand-written limits on PostgreSQL: what somebody who knows the driver well would write for this one workload.
//!
//! Each connection owns its share of the entities, so no two messages of one are ever handled at once; the version check of
//! every write is a belt to that. An error ends the run. Ids are checked once more when they are inserted, and the states
//! only change if all of them were new.

use std::{collections::HashMap, time::Instant};

use futures_util::future::try_join_all;
use sqlx::{Connection, Executor, PgConnection, Row};

use super::{Load, server::Schema};
use crate::{
    AnyError,
    books::Books,
    figure::percentile,
    measure::Window,
    run::Run,
    workload::{Account, Deposit, Incoming, Workload, key_of},
};

/// Plans are made once and look into indexes. Left to itself, the server plans while the tables are empty, and then reads
/// all of a table that grows by a thousand rows a second and more for every batch.
pub(super) const PLANS: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off;
    SET enable_mergejoin = off; SET jit = off";
const TABLES: &str = "
    CREATE SCHEMA {s};
    CREATE TABLE {s}.account (key text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL, state bytea NOT NULL)
        WITH (fillfactor = 70);
    CREATE TABLE {s}.dedup (id bytea PRIMARY KEY);
    CREATE TABLE {s}.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL);";
const PRELOAD: &str = "INSERT INTO {s}.account SELECT key, 1, $2 FROM unnest($1::text[]) AS key";
const LOOK: &str = "
    SELECT key, version, state FROM {s}.account WHERE key = ANY($1)
    UNION ALL SELECT NULL, NULL, id FROM {s}.dedup WHERE id = ANY($2)";
const WRITE: &str = "
    WITH d AS (INSERT INTO {s}.dedup SELECT unnest($1::bytea[])),
      u AS (UPDATE {s}.account AS a SET version = a.version + 1, state = r.state
            FROM (SELECT unnest($2::text[]) AS key, unnest($3::bigint[]) AS version, unnest($4::bytea[]) AS state) AS r
            WHERE a.key = r.key AND a.version = r.version RETURNING 1),
      o AS (INSERT INTO {s}.outbox (body) SELECT unnest($5::bytea[]) RETURNING id)
    SELECT (SELECT count(*) FROM u), (SELECT array_agg(id) FROM o)";
const SENT: &str = "DELETE FROM {s}.outbox WHERE id = ANY($1)";
/// Of one message, without arrays.
const LOOK_ONE: &str = "
    SELECT version, state, EXISTS (SELECT FROM {s}.dedup WHERE id = $2) FROM {s}.account WHERE key = $1";
const WRITE_ONE: &str = "
    WITH d AS (INSERT INTO {s}.dedup VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1),
      u AS (UPDATE {s}.account SET version = version + 1, state = $4
            WHERE key = $2 AND version = $3 AND EXISTS (SELECT FROM d) RETURNING 1)
    INSERT INTO {s}.outbox (body) SELECT $5 FROM u RETURNING id";
const SENT_ONE: &str = "DELETE FROM {s}.outbox WHERE id = $1";

/// Messages in batches, each on the connection that owns its entity.
pub(super) async fn batched(schema: &Schema, load: &Load) -> Result<Run, AnyError> {
    prepare(schema, load).await?;
    run(schema, load, async |owner| owner.batch().await).await
}

/// Each message by itself: a look, one write, and one after it was sent. `clients` at a time.
pub(super) async fn unbatched(schema: &Schema, load: &Load) -> Result<Run, AnyError> {
    prepare(schema, load).await?;
    run(schema, load, async |owner| owner.one().await).await
}

/// Each message in one transaction as a textbook has it, with a lock on the entity: six round trips.
pub(super) async fn classic(schema: &Schema, load: &Load) -> Result<Run, AnyError> {
    prepare(schema, load).await?;
    run(schema, load, async |owner| owner.classic().await).await
}

async fn prepare(schema: &Schema, load: &Load) -> Result<(), AnyError> {
    let mut connection = schema.connect().await?;
    connection.execute(sqlx::raw_sql(schema.text(TABLES))).await?;
    let keys: Vec<String> = (0..load.shape.entities).map(key_of).collect();
    let state = serde_json::to_vec(&Account::usual())?;
    sqlx::query(schema.text(PRELOAD)).bind(keys).bind(state).execute(&mut connection).await?;
    let analyze = schema.text("VACUUM ANALYZE {s}.account");
    connection.execute(sqlx::raw_sql(analyze)).await?;
    Ok(connection.close().await?)
}

/// One connection and its share of the entities.
struct Owner {
    connection: PgConnection,
    workload: Workload,
    batch: usize,
    texts: [String; 6],
    sent: u64,
    deliveries: u64,
}

async fn run(
    schema: &Schema,
    load: &Load,
    step: impl AsyncFn(&mut Owner) -> Result<(), AnyError>,
) -> Result<Run, AnyError> {
    let share = load.shape.entities / load.clients as u32;
    let mut owners = Vec::with_capacity(load.clients);
    for number in 0..load.clients as u32 {
        let seed = load.shape.seed * 1000 + u64::from(number);
        let workload = Workload::new(share.max(1), seed).from(number * share).repeats(load.shape.repeats);
        let texts = [LOOK, WRITE, SENT, LOOK_ONE, WRITE_ONE, SENT_ONE].map(|text| schema.text(text).0);
        let mut connection = schema.connect().await?;
        connection.execute(sqlx::raw_sql(PLANS)).await?;
        owners.push(Owner { connection, workload, batch: load.shape.batch, texts, sent: 0, deliveries: 0 });
    }
    let until = |end: Instant| {
        let step = &step;
        async move |mut owner: Owner, times: bool| -> Result<(Owner, Vec<f64>), AnyError> {
            let mut took = Vec::new();
            while Instant::now() < end {
                let begun = Instant::now();
                step(&mut owner).await?;
                if times {
                    took.push(begun.elapsed().as_secs_f64());
                }
            }
            Ok((owner, took))
        }
    };
    let warm = until(Instant::now() + load.shape.warm_up());
    let owners = try_join_all(owners.into_iter().map(|owner| warm(owner, false))).await?;
    let before = schema.cost().await?;
    let (owners, done): (Vec<Owner>, Vec<u64>) = owners
        .into_iter()
        .map(|(owner, _)| {
            let done = owner.deliveries;
            (owner, done)
        })
        .unzip();
    let window = Window::open();
    let timed = until(Instant::now() + load.shape.time);
    let one = load.shape.batch == 1;
    let ended = try_join_all(owners.into_iter().map(|owner| timed(owner, one))).await?;
    let deliveries: u64 = ended.iter().map(|(owner, _)| owner.deliveries).sum::<u64>() - done.iter().sum::<u64>();
    let mut sample = window.close(deliveries);
    let after = schema.cost().await?;
    sample.cpu_seconds += after.cpu_seconds - before.cpu_seconds;
    sample.flushes = u64::try_from(after.flushes - before.flushes).ok();
    let mut took: Vec<f64> = ended.into_iter().flat_map(|(_, took)| took).collect();
    (sample.median_seconds, sample.p99_seconds) = (percentile(&mut took, 50), percentile(&mut took, 99));
    let books = audit(schema).await?;
    Ok(Run { sample, books })
}

impl Owner {
    fn query(&self, at: usize) -> sqlx::query::Query<'static, sqlx::Postgres, sqlx::postgres::PgArguments> {
        sqlx::query(sqlx::AssertSqlSafe(self.texts[at].clone()))
    }

    async fn batch(&mut self) -> Result<(), AnyError> {
        let messages: Vec<Incoming> = (0..self.batch).map(|_| self.workload.next()).collect();
        self.deliveries += messages.len() as u64;
        let mut deposits = Vec::with_capacity(messages.len());
        let mut accounts: HashMap<String, (i64, Account, bool)> = HashMap::with_capacity(messages.len());
        for message in &messages {
            let deposit: Deposit = serde_json::from_slice(&message.body)?;
            accounts.entry(deposit.account().to_owned()).or_default();
            deposits.push(deposit);
        }
        let keys: Vec<&str> = accounts.keys().map(String::as_str).collect();
        let ids: Vec<&[u8]> = messages.iter().map(|message| &message.id[..]).collect();
        let rows = self.query(0).bind(keys).bind(&ids).fetch_all(&mut self.connection).await?;
        let mut known: std::collections::HashSet<Vec<u8>> = std::collections::HashSet::new();
        for row in &rows {
            let bytes: &[u8] = row.try_get(2)?;
            match row.try_get::<Option<&str>, _>(0)? {
                Some(key) => {
                    let account = accounts.get_mut(key).ok_or("an account nobody asked for")?;
                    (account.0, account.1) = (row.try_get(1)?, serde_json::from_slice(bytes)?);
                }
                None => drop(known.insert(bytes.to_vec())),
            }
        }
        let (mut handled, mut outbox) = (Vec::new(), Vec::new());
        for (message, deposit) in messages.iter().zip(deposits) {
            if !known.insert(message.id.to_vec()) {
                continue; // A repeat.
            }
            let account = accounts.get_mut(deposit.account()).ok_or("an account is missing")?;
            account.2 = true;
            handled.push(&message.id[..]);
            outbox.push(serde_json::to_vec(&account.1.apply(deposit))?);
        }
        if handled.is_empty() {
            return Ok(());
        }
        let mut changed: Vec<(String, (i64, Account, bool))> = accounts.into_iter().filter(|(_, (.., c))| *c).collect();
        changed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        handled.sort_unstable();
        let keys: Vec<&str> = changed.iter().map(|(key, _)| key.as_str()).collect();
        let versions: Vec<i64> = changed.iter().map(|(_, (version, ..))| *version).collect();
        let states: Result<Vec<Vec<u8>>, _> =
            changed.iter().map(|(_, (_, state, _))| serde_json::to_vec(state)).collect();
        let write = self.query(1).bind(handled).bind(&keys).bind(versions).bind(states?).bind(&outbox);
        let row = write.fetch_one(&mut self.connection).await?;
        if row.try_get::<i64, _>(0)? != keys.len() as i64 {
            return Err("an account was changed by somebody else".into());
        }
        let sent: Vec<i64> = row.try_get(1)?;
        self.sent += sent.len() as u64; // The sending itself is nothing.
        self.query(2).bind(sent).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn one(&mut self) -> Result<(), AnyError> {
        let message = self.workload.next();
        self.deliveries += 1;
        let deposit: Deposit = serde_json::from_slice(&message.body)?;
        let key = deposit.account().to_owned();
        let row = self.query(3).bind(&key).bind(&message.id[..]).fetch_one(&mut self.connection).await?;
        if row.try_get(2)? {
            return Ok(()); // A repeat.
        }
        let (version, mut account): (i64, Account) = (row.try_get(0)?, serde_json::from_slice(row.try_get(1)?)?);
        let body = serde_json::to_vec(&account.apply(deposit))?;
        let state = serde_json::to_vec(&account)?;
        let write = self.query(4).bind(&message.id[..]).bind(key).bind(version).bind(state).bind(body);
        let row = write.fetch_one(&mut self.connection).await?;
        self.sent += 1;
        self.query(5).bind(row.try_get::<i64, _>(0)?).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn classic(&mut self) -> Result<(), AnyError> {
        let message = self.workload.next();
        self.deliveries += 1;
        let deposit: Deposit = serde_json::from_slice(&message.body)?;
        let key = deposit.account().to_owned();
        let schema = self.texts[5].split("FROM ").nth(1).and_then(|rest| rest.split('.').next()).unwrap_or_default();
        let text = |text: &str| sqlx::AssertSqlSafe(text.replace("{s}", schema));
        let lock = text("SELECT version, state FROM {s}.account WHERE key = $1 FOR UPDATE");
        let mark = text("INSERT INTO {s}.dedup VALUES ($1) ON CONFLICT DO NOTHING");
        let save = text("UPDATE {s}.account SET version = version + 1, state = $2 WHERE key = $1");
        let store = text("INSERT INTO {s}.outbox (body) VALUES ($1)");
        let mut transaction = self.connection.begin().await?;
        let row = sqlx::query(lock).bind(&key).fetch_one(&mut *transaction).await?;
        let mut account: Account = serde_json::from_slice(row.try_get(1)?)?;
        if sqlx::query(mark).bind(&message.id[..]).execute(&mut *transaction).await?.rows_affected() == 1 {
            let body = serde_json::to_vec(&account.apply(deposit))?;
            let state = serde_json::to_vec(&account)?;
            sqlx::query(save).bind(&key).bind(state).execute(&mut *transaction).await?;
            sqlx::query(store).bind(body).execute(&mut *transaction).await?;
            self.sent += 1;
        }
        Ok(transaction.commit().await?)
    }
}

/// The ids that took effect are the dedup entries: those of the warm-up count too.
async fn audit(schema: &Schema) -> Result<Books, AnyError> {
    let mut connection = schema.connect().await?;
    let row = sqlx::query(schema.text("SELECT count(*) FROM {s}.dedup")).fetch_one(&mut connection).await?;
    let distinct = u64::try_from(row.try_get::<i64, _>(0)?)?;
    let mut effects = 0;
    for row in sqlx::query(schema.text("SELECT state FROM {s}.account")).fetch_all(&mut connection).await? {
        effects += serde_json::from_slice::<Account>(row.try_get(0)?)?.effects;
    }
    connection.close().await?;
    Ok(Books { distinct, effects, dedup_entries: Some(distinct), ..Books::default() })
}
