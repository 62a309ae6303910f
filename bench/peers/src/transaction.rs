use sqlx::{PgConnection, PgPool, Row, postgres::PgPoolOptions};
use uuid::Uuid;

use crate::{Account, AnyError, Books, Changed, Deposit, Order};

const TABLES: &str = "
    CREATE TABLE account (key text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL, state bytea NOT NULL)
        WITH (fillfactor = 70);
    CREATE TABLE dedup (id uuid PRIMARY KEY);
    CREATE TABLE outgoing (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL);";

/// Connections for every worker and for the peer's own needs, and the tables with an account for each key.
///
/// # Errors
/// Of the driver.
pub async fn open(order: &Order) -> Result<PgPool, AnyError> {
    const OWN: u32 = 8;
    let pool = PgPoolOptions::new().max_connections(crate::WORKERS as u32 + OWN).connect(&order.database).await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;
    let fill = "INSERT INTO account SELECT key, 1, $2 FROM unnest($1::text[]) AS key";
    sqlx::query(fill).bind(order.keys()).bind(serde_json::to_vec(&Account::usual())?).execute(&pool).await?;
    sqlx::raw_sql("VACUUM ANALYZE account").execute(&pool).await?;
    Ok(pool)
}

/// Whether `id` was not known; it is from now on.
///
/// # Errors
/// Of the driver.
pub async fn mark(connection: &mut PgConnection, id: Uuid) -> Result<bool, AnyError> {
    let mark = sqlx::query("INSERT INTO dedup VALUES ($1) ON CONFLICT DO NOTHING").bind(id);
    Ok(mark.execute(connection).await?.rows_affected() == 1)
}

/// Changes the state under a lock and gives what is to be sent.
///
/// # Errors
/// Of the driver, or there is no such account.
pub async fn change(connection: &mut PgConnection, deposit: &Deposit) -> Result<Changed, AnyError> {
    let lock = sqlx::query("SELECT state FROM account WHERE key = $1 FOR UPDATE").bind(&deposit.account);
    let row = lock.fetch_one(&mut *connection).await?;
    let mut account: Account = serde_json::from_slice(row.try_get(0)?)?;
    let changed = account.apply(deposit);
    let save = sqlx::query("UPDATE account SET version = version + 1, state = $2 WHERE key = $1");
    save.bind(&deposit.account).bind(serde_json::to_vec(&account)?).execute(connection).await?;
    Ok(changed)
}

/// Stores what is to be sent, for a peer that has no place for it.
///
/// # Errors
/// Of the driver.
pub async fn keep(connection: &mut PgConnection, changed: &Changed) -> Result<(), AnyError> {
    let keep = sqlx::query("INSERT INTO outgoing (body) VALUES ($1)").bind(serde_json::to_vec(changed)?);
    keep.execute(connection).await?;
    Ok(())
}

/// The whole of it: five statements and the commit.
///
/// # Errors
/// Of the driver.
pub async fn handle(pool: &PgPool, id: Uuid, deposit: &Deposit) -> Result<(), AnyError> {
    let mut transaction = pool.begin().await?;
    if mark(&mut transaction, id).await? {
        let changed = change(&mut transaction, deposit).await?;
        keep(&mut transaction, &changed).await?;
    }
    Ok(transaction.commit().await?)
}

/// The number that `query` gives.
///
/// # Errors
/// Of the driver.
pub async fn count(pool: &PgPool, query: &'static str) -> Result<i64, AnyError> {
    Ok(sqlx::query(query).fetch_one(pool).await?.try_get(0)?)
}

/// What the database holds in the end; `entries` and `outgoing` count what is known and what was to be sent.
///
/// # Errors
/// Of the driver.
pub async fn audit(
    pool: &PgPool,
    distinct: u64,
    entries: &'static str,
    outgoing: &'static str,
) -> Result<Books, AnyError> {
    let (mut versions, mut effects) = (0, 0);
    for row in sqlx::query("SELECT version, state FROM account").fetch_all(pool).await? {
        versions += u64::try_from(row.try_get::<i64, _>(0)? - 1)?;
        effects += serde_json::from_slice::<Account>(row.try_get(1)?)?.effects;
    }
    let (entries, outgoing) = (count(pool, entries).await?.try_into()?, count(pool, outgoing).await?.try_into()?);
    Ok(Books { distinct, effects, versions: Some(versions), entries: Some(entries), outgoing })
}
