//! The texts of one writer's statements, with the names of its tables in them.

use std::{collections::HashMap, sync::Arc};

use super::super::{
    names::Names,
    statements::{self, AS_THEY_ARE, DEDUP_ROW, ROW, TAKE_ALL, TAKE_OUTBOX},
};

/// Texts that are the same for the life of a writer.
#[derive(Debug)]
pub(in super::super) struct Texts {
    pub(in super::super) names: Names,
    pub(super) update_one: Arc<str>,
    pub(super) update_one_waiting: Arc<str>,
    pub(in super::super) put_entity: Arc<str>,
    pub(super) put_entity_row: Arc<str>,
    pub(super) take_all_row: Arc<str>,
    pub(super) take_outbox_row: Arc<str>,
    pub(in super::super) hold_generation: Arc<str>,
    pub(super) hold_floor: Arc<str>,
    pub(super) lock_entities: Arc<str>,
    pub(in super::super) now: Arc<str>,
    pub(in super::super) settle: Arc<str>,
    /// Of the table of the newest generation: one entry by itself, many, and one among others.
    dedup: HashMap<i16, [Arc<str>; 3]>,
}

impl Texts {
    pub(super) fn new(names: &Names) -> Self {
        let text = |sql: &str| -> Arc<str> { names.put_into(sql).into() };
        let put = statements::PUT_ENTITIES;
        Self {
            names: names.clone(),
            update_one: text(&statements::update_one()),
            update_one_waiting: text(&statements::update_one_waiting()),
            put_entity: text(put),
            put_entity_row: text(&format!("{put}{ROW}")),
            take_all_row: text(&format!("{put}{ROW}{TAKE_ALL}")),
            take_outbox_row: text(&format!("{put}{ROW}{TAKE_OUTBOX}")),
            hold_generation: text(statements::HOLD_GENERATION),
            hold_floor: text(statements::HOLD_FLOOR),
            lock_entities: text(statements::LOCK_ENTITIES),
            now: text(&statements::now()),
            settle: text(statements::SETTLE),
            dedup: HashMap::new(),
        }
    }

    pub(super) fn dedup(&mut self, slot: i16) -> &[Arc<str>; 3] {
        let names = &self.names;
        self.dedup.entry(slot).or_insert_with(|| {
            let put = statements::put_dedup(slot);
            [statements::insert_one(slot), put.clone(), put + DEDUP_ROW + AS_THEY_ARE]
                .map(|sql| names.put_into(&sql).into())
        })
    }
}
