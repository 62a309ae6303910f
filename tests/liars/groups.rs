//! Lies about what became of one call in a commit of several, and about what failed.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::{DedupEntry, Entity, Expected},
    ids::EntityKey,
    ports::{DedupStore, EntityStore, Saved, StoreError},
    testing::entity_store,
};
use tokio::{sync::oneshot, task::yield_now};

use crate::{
    faulty::{Faulty, Told},
    lie::{Lie, Save, entities_keep_all, expect, rejected},
};

rejected! {
    results_matched_by_key_alone_are_rejected:
        entities_break "entity store 8, own result", |memory| Groups::new(memory, Results::ByKey);
    a_conflict_that_spoils_the_group_is_rejected:
        entities_break "entity store 8, own result", |memory| Groups::new(memory, Results::WorstOfAll);
    marks_of_losers_in_a_group_are_rejected:
        entities_break "entity store 6, only with the winner", |memory| Groups::new(memory, Results::MarksOfAll);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_tell_each_its_own_result_are_accepted() {
    let memory = Memory::new();
    entities_keep_all(move || Groups::new(memory.clone(), Results::Own)).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Results {
    /// Honest: each its own.
    Own,
    /// A lie: whoever uses the winner's key is told what the winner is told.
    ByKey,
    /// A lie: one conflict and all are told so, though the others are written.
    WorstOfAll,
    /// A lie: the marks of all are written in one statement.
    MarksOfAll,
}

/// Gathers saves that are asked for at once into groups.
#[derive(Debug)]
struct Groups {
    memory: Memory,
    results: Results,
    queue: Mutex<Vec<Queued>>,
}

#[derive(Debug)]
struct Queued {
    key: EntityKey,
    expected: Expected,
    entity: Entity,
    processed: Vec<DedupEntry>,
    answer: oneshot::Sender<Saved>,
}

impl Groups {
    fn new(memory: Memory, results: Results) -> Self {
        Self { memory, results, queue: Mutex::default() }
    }

    async fn write_group(&self) -> Result<(), StoreError> {
        const GATHERING: usize = 20;
        for _ in 0..GATHERING {
            yield_now().await;
        }
        let group = std::mem::take(&mut *self.queue.lock().unwrap());
        let mut own = Vec::with_capacity(group.len());
        for Queued { key, expected, entity, processed, .. } in &group {
            if self.results == Results::MarksOfAll && group.len() > 1 {
                self.memory.insert(processed).await?;
            }
            own.push(Save { expected, entity, processed }.to(&self.memory, key).await?);
        }
        let won = |key: &EntityKey| group.iter().zip(&own).find(|(q, saved)| q.key == *key && is_won(saved));
        let told: Vec<Saved> = match self.results {
            Results::Own | Results::MarksOfAll => own.clone(),
            Results::ByKey => group.iter().map(|q| won(&q.key).map_or(Saved::Conflict, |(_, at)| at.clone())).collect(),
            Results::WorstOfAll if own.contains(&Saved::Conflict) => vec![Saved::Conflict; own.len()],
            Results::WorstOfAll => own.clone(),
        };
        for (queued, told) in group.into_iter().zip(told) {
            drop(queued.answer.send(told)); // Whoever does not wait any more does not want to know.
        }
        Ok(())
    }
}

const fn is_won(saved: &Saved) -> bool {
    matches!(saved, Saved::At(_))
}

#[async_trait]
impl Lie for Groups {
    fn honest(&self) -> &Memory {
        &self.memory
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        // The limits are the member's own, and nothing of it is written.
        if save.entity.size() > self.capabilities().entity_bytes_max {
            return save.to(&self.memory, key).await;
        }
        let (answer, told) = oneshot::channel();
        let leads = {
            let mut queue = self.queue.lock().unwrap();
            queue.push(Queued {
                key: key.clone(),
                expected: save.expected.clone(),
                entity: save.entity.clone(),
                processed: save.processed.to_vec(),
                answer,
            });
            queue.len() == 1
        };
        if leads {
            self.write_group().await?;
        }
        Ok(told.await.unwrap())
    }
}

/// Good handles, and one that is bad in the way told.
#[derive(Debug)]
struct Bad(Memory, Told);

#[async_trait]
impl entity_store::Builder for Bad {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        Arc::new(self.0.clone())
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.0.clone()))
    }
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        Some(Arc::new(Faulty::new(self.0.clone(), self.1)))
    }
}

const HONEST_ERRORS: &str = "entity store 13, honest errors";

#[tokio::test]
async fn a_lost_answer_told_as_unavailable_is_rejected() {
    expect(HONEST_ERRORS, entity_store::first_broken(&Bad(Memory::new(), Told::Unavailable)).await);
}

#[tokio::test]
async fn an_own_repeated_write_told_as_lost_is_rejected() {
    expect(HONEST_ERRORS, entity_store::first_broken(&Bad(Memory::new(), Told::Lost)).await);
}

#[tokio::test]
async fn a_write_that_comes_after_it_was_refused_is_rejected() {
    expect(HONEST_ERRORS, entity_store::first_broken(&Bad(Memory::new(), Told::Late)).await);
}

#[tokio::test]
async fn an_own_repeated_write_told_as_a_conflict_is_accepted() {
    entity_store::check_all(&Bad(Memory::new(), Told::Conflict)).await.assert();
}
