//! What the loops in batches share: one look for many messages, and what handling them changes, as arrays.
//!
//! What goes along as bytes is one blob with offsets in the array, which spares escaping and hexadecimal digits.

use std::collections::{HashMap, HashSet};

use sqlx::{Row, SqliteConnection};

use super::single::outbox_entry;
use crate::{
    AnyError,
    workload::{Account, Deposit, Incoming},
};

/// One row: JSON of the states by position in the array of keys, and JSON of the positions of the ids that are known. A
/// row for each of them would cost a hand-over between threads each.
const LOOK: &str = "
    SELECT (SELECT '[' || coalesce(group_concat('[' || j.key || ',' || e.version || ',' || e.state || ']'), '') || ']'
            FROM json_each(?1) j JOIN entity e ON e.key = j.value),
           (SELECT '[' || coalesce(group_concat(j.key), '') || ']'
            FROM json_each(?2) j JOIN dedup d ON d.id = substr(?3, j.value, 16))";

/// What a batch changes.
#[derive(Default)]
pub(super) struct Batch {
    /// Accounts that have changed, in the order of keys.
    touched: Vec<Touched>,
    /// What is to be sent.
    pub(super) outbox: Vec<Vec<u8>>,
    /// Ids of the messages that had an effect.
    pub(super) handled: Vec<[u8; 16]>,
}

/// An account of a batch.
struct Touched {
    key: String,
    version: i64,
    account: Account,
    changed: bool,
}

/// The arrays of a batch.
pub(super) struct Arrays {
    /// Key, version, offset and length of each state.
    pub(super) states: String,
    pub(super) blob: Vec<u8>,
    /// Offset and length of each outbox entry.
    pub(super) entries: String,
    /// How many states.
    pub(super) touched: i64,
}

/// `[1, 17, 33, ..]`: where ids begin in a blob of `count` of them.
pub(super) fn offsets(count: usize) -> Result<String, AnyError> {
    Ok(serde_json::to_string(&(0..count).map(|n| 1 + 16 * n).collect::<Vec<_>>())?)
}

impl Batch {
    /// Looks, and handles what is new.
    pub(super) async fn of(
        messages: &[Incoming],
        connection: &mut SqliteConnection,
        random: &mut fastrand::Rng,
    ) -> Result<Self, AnyError> {
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
        let (mut touched, known) = look(keys, messages, connection).await?;
        let mut handled = HashSet::with_capacity(messages.len());
        let mut outbox = Vec::with_capacity(messages.len());
        for (index, (message, (place, deposit))) in messages.iter().zip(deposits).enumerate() {
            if known[index] || !handled.insert(message.id) {
                continue; // A repeat.
            }
            let touched = touched[place].as_mut().ok_or("an account is missing")?;
            let changed = touched.account.apply(deposit);
            touched.changed = true;
            outbox.push(outbox_entry(message, random, &changed)?);
        }
        let mut touched: Vec<Touched> = touched.into_iter().flatten().filter(|touched| touched.changed).collect();
        touched.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut handled: Vec<[u8; 16]> = handled.into_iter().collect();
        handled.sort_unstable();
        Ok(Self { touched, outbox, handled })
    }

    /// States and outbox entries.
    pub(super) fn arrays(&self) -> Result<Arrays, AnyError> {
        const USUAL_BYTES: usize = 512;
        let mut blob = Vec::with_capacity(self.touched.len() * USUAL_BYTES);
        let mut states = Vec::with_capacity(self.touched.len());
        for Touched { key, version, account, .. } in &self.touched {
            let at = blob.len();
            serde_json::to_writer(&mut blob, account)?;
            states.push((key, version, at + 1, blob.len() - at));
        }
        let mut entries = Vec::with_capacity(self.outbox.len());
        for entry in &self.outbox {
            entries.push((blob.len() + 1, entry.len()));
            blob.extend_from_slice(entry);
        }
        let (states, entries) = (serde_json::to_string(&states)?, serde_json::to_string(&entries)?);
        Ok(Arrays { states, blob, entries, touched: i64::try_from(self.touched.len())? })
    }
}

/// The accounts in the order of `keys`, and which of `messages` are known.
async fn look(
    keys: Vec<String>,
    messages: &[Incoming],
    connection: &mut SqliteConnection,
) -> Result<(Vec<Option<Touched>>, Vec<bool>), AnyError> {
    let ids: Vec<u8> = messages.iter().flat_map(|message| message.id).collect();
    let look = sqlx::query(LOOK).bind(serde_json::to_string(&keys)?).bind(offsets(messages.len())?).bind(ids);
    let row = look.fetch_optional(connection).await?.ok_or("a look without a row")?;
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
