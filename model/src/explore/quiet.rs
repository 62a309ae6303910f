//! One message after the other, and nothing goes wrong.

use std::collections::BTreeMap;

use hapax_core::{
    entity::{DedupEntry, Entity, Version},
    ids::AttemptId,
    manager::Limits,
    ports::{Finished, Granted, Known, Receipt, Saved, Settled, Stored},
};

use super::{
    calls::{Op, Reply, Save},
    scenario::Scenario,
    space::ports,
    trie::{Running, poll},
    wire::{Wire, lock},
};

/// A store that always answers, and well.
#[derive(Default)]
struct Store {
    /// By the entity's key, as text.
    rows: BTreeMap<String, (i64, Entity)>,
    marks: Vec<DedupEntry>,
    attempts: u128,
}

/// Handles the messages of `scenario` in their order, each once, and gives the bytes of the largest state after each.
///
/// # Errors
/// As for [`explore`](super::explore).
pub(crate) fn one_by_one(scenario: &Scenario) -> Result<Vec<usize>, String> {
    let mut store = Store::default();
    let mut sizes = Vec::with_capacity(scenario.messages.len());
    for message in &scenario.messages {
        let wire = Wire::of(scenario);
        let manager = (scenario.manager)(ports(&wire), Limits::default());
        let (key, incoming) = manager.route(message, Receipt::number(0), 1).map_err(|e| e.to_string())?;
        let mut task: Running = Box::pin(async move {
            drop(manager.pass(&key, &mut [incoming], &[]).await);
        });
        loop {
            poll(&mut task, &wire)?;
            let open = lock(&wire.line()).open().next().map(|(at, op)| (at, op.clone()));
            let Some((at, op)) = open else { break };
            let reply = store.answer(&op, scenario.together);
            lock(&wire.line()).answer(at, reply);
        }
        sizes.push(store.rows.values().map(|(_, entity)| entity.state.len()).max().unwrap_or_default());
    }
    Ok(sizes)
}

impl Store {
    fn answer(&mut self, op: &Op, together: bool) -> Reply {
        match op {
            Op::Now => Reply::Now,
            Op::Monotonic => Reply::InTime(true),
            Op::Attempt => {
                self.attempts += 1;
                Reply::Attempt(AttemptId::from_bytes(self.attempts.to_be_bytes()))
            }
            Op::Pause { .. } => Reply::Granted(Granted::Stop),
            Op::Load { key, .. } => {
                let stored = self
                    .rows
                    .get(&key.to_string())
                    .map(|(version, entity)| Stored { version: Version::number(*version), entity: entity.clone() });
                Reply::Loaded(stored, together.then(|| self.known()))
            }
            Op::Contains(_) => Reply::Known(self.known()),
            Op::Recall(_) => Reply::Known(Known::default()),
            Op::Save(Save { key, entity, processed, .. }) => {
                self.marks.extend_from_slice(processed);
                Reply::Saved(Saved::At(self.store(key.to_string(), entity)))
            }
            Op::Finish { key, done, clean_up } => {
                self.marks.extend_from_slice(done);
                let version = clean_up.as_ref().map(|(_, entity)| self.store(key.to_string(), entity));
                Reply::Finished(Some(Finished::Cleaned(version)))
            }
            Op::Version(key) => {
                Reply::Version(self.rows.get(&key.to_string()).map(|(version, _)| Version::number(*version)))
            }
            Op::Insert(entries) => {
                self.marks.extend_from_slice(entries);
                Reply::Done
            }
            Op::Dispatch(outgoing) => Reply::Dispatched(vec![Ok(()); outgoing.len()]),
            Op::SetAside(_) => Reply::Done,
            Op::Settle(..) => Reply::Settled(Settled::Done),
        }
    }

    fn known(&self) -> Known {
        Known::new(self.marks.clone())
    }

    fn store(&mut self, key: String, entity: &Entity) -> Version {
        let row = self.rows.entry(key).or_default();
        *row = (row.0 + 1, entity.clone());
        Version::number(row.0)
    }
}
