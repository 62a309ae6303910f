//! A hundred messages at a time: one look, one commit for all states and outboxes, one for all marks and clean-ups, each
//! statement over arrays.
//!
//! What goes along as bytes is one blob with offsets in the array, which spares escaping and hexadecimal digits.

use std::{
    collections::{HashMap, HashSet},
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use sqlx::{Row, SqliteConnection};

use super::{
    database,
    single::{changes, outbox_entry},
};
use crate::{
    AnyError,
    books::Books,
    measure::Window,
    run::{Run, Shape},
    workload::{Account, Deposit, Incoming, Workload},
};

/// One row: JSON of the states by position in the array of keys, and JSON of the positions of the ids that are known. A
/// row for each of them would cost a hand-over between threads each.
const LOOK: &str = "
    SELECT (SELECT '[' || coalesce(group_concat('[' || j.key || ',' || e.version || ',' || e.state || ']'), '') || ']'
            FROM json_each(?1) j JOIN entity e ON e.key = j.value),
           (SELECT '[' || coalesce(group_concat(j.key), '') || ']'
            FROM json_each(?2) j JOIN dedup d ON d.id = substr(?3, j.value, 16))";
/// Commit 1 of 2. Rows of the states: key, version, offset, length; of the outbox: offset, length. A state that lost a
/// race rolls everything back: its outbox may not be null.
const SAVE: &str = "
    BEGIN IMMEDIATE;
    UPDATE entity SET version = entity.version + 1, state = CAST(substr(?2, j.o, j.n) AS TEXT)
    FROM (SELECT value ->> 0 k, value ->> 1 v, value ->> 2 o, value ->> 3 n FROM json_each(?1)) j
    WHERE entity.key = j.k AND entity.version = j.v;
    INSERT OR ROLLBACK INTO outbox (id, entry)
    SELECT ?5 + j.key, CASE WHEN changes() = ?4 THEN substr(?2, j.value ->> 0, j.value ->> 1) END FROM json_each(?3) j;
    COMMIT";
/// Commit 2 of 2.
const FINISH: &str = "
    BEGIN IMMEDIATE;
    INSERT OR ROLLBACK INTO dedup SELECT substr(?2, value, 16) FROM json_each(?1);
    DELETE FROM outbox WHERE id >= ?3;
    COMMIT";

struct Loop {
    connection: SqliteConnection,
    random: fastrand::Rng,
    batch: usize,
    /// `[1, 17, 33, ..]`: where ids begin in a blob of them.
    offsets: String,
    commits: u64,
    sent: u64,
}

/// An account that a batch has changed.
struct Touched {
    key: String,
    version: i64,
    account: Account,
    changed: bool,
}

pub(super) async fn run(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    let mut workload = Workload::new(shape.entities, shape.seed);
    let mut this = Loop {
        connection: database::create(path, shape.entities).await?,
        random: fastrand::Rng::with_seed(shape.seed),
        batch: shape.batch,
        offsets: String::new(),
        commits: 0,
        sent: 0,
    };
    this.repeat(&mut workload, shape.warm_up()).await?;
    let before = this.commits;
    let window = Window::open();
    let deliveries = this.repeat(&mut workload, shape.time).await?;
    let mut sample = window.close(deliveries);
    sample.commits = Some(this.commits - before);
    let books = Books { distinct: workload.distinct, sent: this.sent, sent_each: 1, ..Books::default() };
    Ok(Run { sample, books: database::audit(this.connection, books).await? })
}

impl Loop {
    async fn repeat(&mut self, workload: &mut Workload, time: Duration) -> Result<u64, AnyError> {
        self.offsets = serde_json::to_string(&(0..self.batch).map(|n| 1 + 16 * n).collect::<Vec<_>>())?;
        let end = Instant::now() + time;
        let mut deliveries = 0;
        while Instant::now() < end {
            let messages: Vec<Incoming> = (0..self.batch).map(|_| workload.next()).collect();
            self.handle(&messages).await?;
            deliveries += self.batch as u64;
        }
        Ok(deliveries)
    }

    async fn handle(&mut self, messages: &[Incoming]) -> Result<(), AnyError> {
        let mut deposits = Vec::with_capacity(messages.len());
        let mut places: HashMap<String, usize> = HashMap::with_capacity(messages.len());
        let mut keys = Vec::with_capacity(messages.len());
        for message in messages {
            let deposit: Deposit = serde_json::from_slice(&message.body)?;
            let place = *places.entry(deposit.account().to_owned()).or_insert_with_key(|key| {
                keys.push(key.clone());
                keys.len() - 1
            });
            deposits.push((place, deposit));
        }
        let (mut touched, known) = self.look(keys, messages).await?;
        let mut handled = HashSet::with_capacity(messages.len());
        let mut outbox = Vec::with_capacity(messages.len());
        for (index, (message, (place, deposit))) in messages.iter().zip(deposits).enumerate() {
            if known[index] || !handled.insert(message.id) {
                continue; // A repeat.
            }
            let touched = touched[place].as_mut().ok_or("an account is missing")?;
            let changed = touched.account.apply(deposit);
            touched.changed = true;
            outbox.push(outbox_entry(message, &mut self.random, &changed)?);
        }
        let mut touched: Vec<Touched> = touched.into_iter().flatten().filter(|touched| touched.changed).collect();
        if touched.is_empty() {
            return Ok(()); // Nothing but repeats.
        }
        touched.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let first = self.sent;
        self.save(&touched, &outbox).await?;
        self.sent += outbox.len() as u64;
        black_box(outbox); // A null send.
        self.finish(handled, first).await
    }

    /// The accounts in the order of `keys`, and which of `messages` are known.
    async fn look(
        &mut self,
        keys: Vec<String>,
        messages: &[Incoming],
    ) -> Result<(Vec<Option<Touched>>, Vec<bool>), AnyError> {
        let ids: Vec<u8> = messages.iter().flat_map(|message| message.id).collect();
        let look = sqlx::query(LOOK).bind(serde_json::to_string(&keys)?).bind(self.offsets.as_str()).bind(ids);
        let row = look.fetch_optional(&mut self.connection).await?.ok_or("a look without a row")?;
        let mut keys: Vec<Option<String>> = keys.into_iter().map(Some).collect();
        let mut accounts: Vec<Option<Touched>> = keys.iter().map(|_| None).collect();
        for (place, version, account) in serde_json::from_str::<Vec<(usize, i64, Account)>>(row.try_get(0)?)? {
            let key = keys[place].take().ok_or("an account came twice")?;
            accounts[place] = Some(Touched { key, version, account, changed: false });
        }
        let mut known = vec![false; messages.len()];
        for index in serde_json::from_str::<Vec<usize>>(row.try_get(1)?)? {
            known[index] = true;
        }
        Ok((accounts, known))
    }

    async fn save(&mut self, touched: &[Touched], outbox: &[Vec<u8>]) -> Result<(), AnyError> {
        const USUAL_BYTES: usize = 512;
        let mut blob = Vec::with_capacity(touched.len() * USUAL_BYTES);
        let mut states = Vec::with_capacity(touched.len());
        for Touched { key, version, account, .. } in touched {
            let at = blob.len();
            serde_json::to_writer(&mut blob, account)?;
            states.push((key, version, at + 1, blob.len() - at));
        }
        let mut entries = Vec::with_capacity(outbox.len());
        for entry in outbox {
            entries.push((blob.len() + 1, entry.len()));
            blob.extend_from_slice(entry);
        }
        let save = sqlx::query(SAVE)
            .bind(serde_json::to_string(&states)?)
            .bind(blob)
            .bind(serde_json::to_string(&entries)?)
            .bind(i64::try_from(touched.len())?)
            .bind(i64::try_from(self.sent)?);
        let changes = changes(&mut self.connection, save).await?;
        self.commits += 1;
        let expected = [touched.len() as u64, outbox.len() as u64];
        if changes[1..3] == expected { Ok(()) } else { Err("a save lost a race without rivals".into()) }
    }

    async fn finish(&mut self, handled: HashSet<[u8; 16]>, first: u64) -> Result<(), AnyError> {
        let mut ids: Vec<[u8; 16]> = handled.into_iter().collect();
        ids.sort_unstable();
        let offsets: Vec<usize> = (0..ids.len()).map(|n| 1 + 16 * n).collect();
        let finish = sqlx::query(FINISH)
            .bind(serde_json::to_string(&offsets)?)
            .bind(ids.as_flattened())
            .bind(i64::try_from(first)?);
        let changes = changes(&mut self.connection, finish).await?;
        self.commits += 1;
        if changes[1..3] == [ids.len() as u64; 2] {
            Ok(())
        } else {
            Err("an outbox was cleared by somebody else".into())
        }
    }
}
