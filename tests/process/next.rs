//! The version of this program that is to come: tables with one more migration, and sagas and messages of another schema.

use hapax::{
    Context, Correlation, Handle, HandlerError, Message, Saga,
    codec::{CodecError, Older},
    stores::sqlite::ride::{self, Schema},
    transports::sqlite_queue::SqliteQueueOptions,
};
use serde::{Deserialize, Serialize};

use crate::{
    sagas::{Note, Notes, Ring, Tally},
    tally::Step,
};

/// A step that today's program may go on with: it keeps `usable_from`.
pub(crate) fn adds() -> &'static Schema {
    let known = ride::store_schema();
    let version = known.latest() + 1;
    let sql = format!(
        "ALTER TABLE hapax_entity ADD COLUMN remark TEXT NOT NULL DEFAULT ''; \
         ALTER TABLE hapax_dedup ADD COLUMN remark TEXT NOT NULL DEFAULT ''; \
         CREATE TABLE hapax_to_come (id INTEGER PRIMARY KEY) STRICT; \
         INSERT INTO hapax_migration (version, name, applied_at) VALUES ({version}, 'adds', 0)"
    );
    with(known, version, sql)
}

/// After it, a step that no older program may go on with.
pub(crate) fn breaks() -> &'static Schema {
    let known = adds();
    let version = known.latest() + 1;
    let sql = format!(
        "INSERT INTO hapax_meta (name, value) VALUES ('usable_from', {version}) \
         ON CONFLICT DO UPDATE SET value = excluded.value; \
         INSERT INTO hapax_migration (version, name, applied_at) VALUES ({version}, 'breaks', 0)"
    );
    with(known, version, sql)
}

/// The same of the queue.
pub(crate) fn queue_adds() -> &'static Schema {
    let known = SqliteQueueOptions::known_schema();
    let version = known.latest() + 1;
    let sql = format!(
        "ALTER TABLE hapax_queue_message ADD COLUMN priority INTEGER NOT NULL DEFAULT 0; \
         INSERT INTO hapax_queue_migration (version, name, applied_at) VALUES ({version}, 'adds', 0)"
    );
    with(known, version, sql)
}

/// `known` and one migration more. It lives as long as the process, as those in the program do.
fn with(known: &Schema, version: i64, sql: String) -> &'static Schema {
    let mut migrations = known.migrations.to_vec();
    migrations.push((version, sql.leak()));
    Box::leak(Box::new(Schema { migrations: migrations.leak(), ..*known }))
}

/// A step that names its author.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepNext {
    step: Step,
    author: String,
}

impl Message for StepNext {
    const TYPE: &'static str = Step::TYPE;
    const SCHEMA: u8 = 2;

    fn upcast(older: Older<'_>) -> Result<Self, CodecError> {
        Ok(Self { step: older.decode()?, author: "unknown".into() })
    }
}

/// The same of a note.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NoteNext {
    note: Note,
    author: String,
}

impl Message for NoteNext {
    const TYPE: &'static str = Note::TYPE;
    const SCHEMA: u8 = 2;

    fn upcast(older: Older<'_>) -> Result<Self, CodecError> {
        Ok(Self { note: older.decode()?, author: "unknown".into() })
    }
}

/// A tally that also counts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct TallyNext {
    handled: Vec<String>,
    count: usize,
}

impl Saga for TallyNext {
    const NAME: &'static str = Tally::NAME;
    const SCHEMA: u8 = 2;

    fn upcast(older: Older<'_>) -> Result<Self, CodecError> {
        let Tally { handled } = older.decode()?;
        Ok(Self { count: handled.len(), handled })
    }
}

impl Handle<StepNext> for TallyNext {
    fn correlate(step: &StepNext) -> Correlation<'_> {
        (&step.step.tally).into()
    }

    async fn handle(&mut self, StepNext { step, author }: StepNext, cx: &mut Context) -> Result<(), HandlerError> {
        for note in step.noted() {
            cx.send_local(NoteNext { note, author: author.clone() })?;
        }
        self.handled.push(step.step);
        self.count += 1;
        Ok(())
    }
}

impl Handle<Ring> for TallyNext {
    fn correlate(ring: &Ring) -> Correlation<'_> {
        (&ring.tally).into()
    }

    async fn handle(&mut self, ring: Ring, _: &mut Context) -> Result<(), HandlerError> {
        self.handled.push(ring.ring);
        self.count += 1;
        Ok(())
    }
}

/// Notes that also count.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NotesNext {
    handled: Vec<String>,
    count: usize,
}

impl Saga for NotesNext {
    const NAME: &'static str = Notes::NAME;
    const SCHEMA: u8 = 2;

    fn upcast(older: Older<'_>) -> Result<Self, CodecError> {
        let Notes { handled } = older.decode()?;
        Ok(Self { count: handled.len(), handled })
    }
}

impl Handle<NoteNext> for NotesNext {
    fn correlate(note: &NoteNext) -> Correlation<'_> {
        (&note.note.tally).into()
    }

    async fn handle(&mut self, note: NoteNext, _: &mut Context) -> Result<(), HandlerError> {
        self.handled.push(note.note.note);
        self.count += 1;
        Ok(())
    }
}
