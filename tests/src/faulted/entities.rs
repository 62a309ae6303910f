//! Writes of entities.

use std::time::{Duration, Instant};

use hapax::{
    entity::{DedupEntry, Entity, Expected},
    ids::EntityKey,
    ports::{Finished, Saved, StoreError, Stored},
};

use super::{
    Ports, is_query,
    marks::{Said, insert_into, marked},
    reads::prepared,
    trouble::Armed,
};
use crate::samples;

/// How long a purge may take to find what is there: by the service's clock that is a second at most.
const PATIENCE: Duration = Duration::from_secs(30);

async fn stored(plain: &Ports, key: &EntityKey) -> Result<Option<Stored>, String> {
    let loaded = plain.entities().load(key, &[]).await;
    loaded.map(|loaded| loaded.stored).map_err(|error| format!("loading: {error:?}"))
}

fn expected(before: Option<&Stored>) -> Expected {
    before.map_or(Expected::Absent, |before| Expected::Version(before.version.clone()))
}

/// Saves an entity of so many bytes, with so many dedup entries; over one of so many bytes, or over none.
pub(super) async fn save(
    faulty: &Ports,
    plain: &Ports,
    armed: &Armed<'_>,
    over: Option<usize>,
    bytes: usize,
    marks: usize,
) -> Result<(), String> {
    let key = samples::key("one");
    let before = match over {
        None => None,
        Some(bytes) => {
            prepared(plain, &key, &samples::entity(samples::state(bytes), &[])).await?;
            stored(plain, &key).await?
        }
    };
    let entity = samples::entity(samples::state(bytes), &[samples::entry(1)]);
    let marks: Vec<DedupEntry> = (0..marks).map(|_| samples::mark()).collect();
    let answer = armed.call(faulty.entities().save(&key, &expected(before.as_ref()), &entity, &marks)).await;
    let (now, marked_now) = (stored(plain, &key).await?, marked_if_any(plain, &key, &marks).await?);
    let is_there = now.as_ref().is_some_and(|now| now.entity == entity);
    if !(is_there && marked_now == marks.len() || now == before && marked_now == 0) {
        return Err(format!("{answer:?}, and a part is there: {marked_now} dedup entries with {}", shown(&now)));
    }
    match Said::of(answer)? {
        Said::Done(Saved::At(version)) if is_there && now.as_ref().is_some_and(|now| now.version == version) => {}
        Said::Done(Saved::Conflict) => return Err("a conflict, though nobody else has saved it".to_owned()),
        Said::Done(saved) => return Err(format!("{saved:?}, and there is {}", shown(&now))),
        Said::Refused(error) if is_there => return Err(format!("{error:?}, and it is there")),
        Said::Refused(_) | Said::Unknown => {}
    }
    // As whoever delivers goes on: what was loaded says whether the attempt is saved.
    if !is_there {
        let again = plain.entities().save(&key, &expected(now.as_ref()), &entity, &marks).await;
        if !matches!(again, Ok(Saved::At(_))) {
            return Err(format!("saved again: {again:?}"));
        }
    }
    match (stored(plain, &key).await?, marked_if_any(plain, &key, &marks).await?) {
        (Some(stored), marked) if stored.entity == entity && marked == marks.len() => Ok(()),
        (stored, marked) => Err(format!("saved again, and there are {marked} dedup entries with {}", shown(&stored))),
    }
}

/// A store that keeps entities alone is not asked for what it does not keep.
async fn marked_if_any(plain: &Ports, key: &EntityKey, marks: &[DedupEntry]) -> Result<usize, String> {
    if marks.is_empty() { Ok(0) } else { marked(plain, key, marks).await }
}

/// Without the bytes of a large state.
fn shown(stored: &Option<Stored>) -> String {
    match stored {
        None => "no entity".to_owned(),
        Some(Stored { version, entity }) => {
            let entries = entity.outbox.len();
            format!("an entity of {} bytes and {entries} entries at {version:?}", entity.size())
        }
    }
}

/// Finishes two entries. `again`: one is over already. `overtaken`: the entity was saved since it was loaded.
pub(super) async fn finish(
    faulty: &Ports,
    plain: &Ports,
    armed: &Armed<'_>,
    again: bool,
    overtaken: bool,
) -> Result<(), String> {
    let (key, entries) = (samples::key("one"), [samples::entry(1), samples::entry(1)]);
    let waiting = samples::entity(samples::state(0), &entries);
    let clean = Entity { outbox: Vec::new(), ..waiting.clone() };
    let version = prepared(plain, &key, &waiting).await?;
    let marks = entries.map(|entry| entry.to_dedup_entry());
    if again {
        insert_into(plain, &key, &marks[..1]).await?;
    }
    if overtaken {
        let next = Entity { commits: 2, ..waiting.clone() };
        let saved = plain.entities().save(&key, &Expected::Version(version.clone()), &next, &[]).await;
        if !matches!(saved, Ok(Saved::At(_))) {
            return Err(format!("preparing: {saved:?}"));
        }
    }
    let before = stored(plain, &key).await?;
    let answer = armed.call(faulty.entities().finish(&key, &marks, Some((&version, &clean)))).await;
    let (now, over) = (stored(plain, &key).await?, marked(plain, &key, &marks).await?);
    let is_clean = now.as_ref().is_some_and(|now| now.entity.outbox.is_empty());
    if is_clean && (over < marks.len() || overtaken) || !is_clean && now != before {
        return Err(format!("{answer:?}, and {over} of {} are over with {}", marks.len(), shown(&now)));
    }
    let wrong = |said: &str| Err(format!("{said}, and {over} of {} are over with {}", marks.len(), shown(&now)));
    match Said::of(answer)? {
        Said::Done(None) => return wrong("no answer"),
        Said::Done(Some(finished)) if over < marks.len() => return wrong(&format!("{finished:?}")),
        Said::Done(Some(Finished::Cleaned(version)))
            if !is_clean || now.as_ref().map(|now| &now.version) != version.as_ref() =>
        {
            return wrong(&format!("cleaned {version:?}"));
        }
        Said::Refused(error) if is_clean || over > usize::from(again) => return wrong(&format!("{error:?}")),
        Said::Done(Some(_)) | Said::Refused(_) | Said::Unknown => {}
    }
    // As whoever sweeps goes on, with what is there now.
    if let Some(now) = now {
        let clean = Entity { outbox: Vec::new(), ..now.entity };
        let again = plain.entities().finish(&key, &marks, Some((&now.version, &clean))).await;
        if !matches!(again, Ok(Some(Finished::Cleaned(Some(_))))) {
            return Err(format!("finished again: {again:?}"));
        }
    }
    match (stored(plain, &key).await?, marked(plain, &key, &marks).await?) {
        (Some(stored), 2) if stored.entity.outbox.is_empty() => Ok(()),
        (stored, over) => Err(format!("finished again, and {over} are over with {}", shown(&stored))),
    }
}

pub(super) async fn finish_marks(faulty: &Ports, plain: &Ports, armed: &Armed<'_>) -> Result<(), String> {
    let key = samples::key("one");
    let marks = [(); 3].map(|()| samples::mark());
    let finished = |answer: Result<Option<Finished>, StoreError>| match Said::of(answer)? {
        Said::Done(Some(Finished::Cleaned(None))) => Ok(Said::Done(())),
        Said::Done(other) => Err(format!("{other:?}, with nothing to be cleaned up")),
        Said::Unknown => Ok(Said::Unknown),
        Said::Refused(error) => Ok(Said::Refused(error)),
    };
    let said = finished(armed.call(faulty.entities().finish(&key, &marks, None)).await)?;
    match (said, marked(plain, &key, &marks).await?) {
        (Said::Done(()), over @ ..3) => return Err(format!("done, and {over} of 3 are over")),
        (Said::Refused(error), over @ 1..) => return Err(format!("{error:?}, and {over} of 3 are over")),
        _ => {}
    }
    let again = finished(plain.entities().finish(&key, &marks, None).await)?;
    match (again, marked(plain, &key, &marks).await?) {
        (Said::Done(()), 3) => Ok(()),
        (said, over) => Err(format!("finished again: {said:?}, and {over} of 3 are over")),
    }
}

pub(super) async fn purge(faulty: &Ports, plain: &Ports, armed: &Armed<'_>, bytes: usize) -> Result<(), String> {
    let key = samples::key("one");
    let (scope, tombstone) =
        (key.scope().clone(), Entity { completed: true, ..samples::entity(samples::state(bytes), &[]) });
    // By the handle that purges: by another's idea of the service's clock it may not be old enough for a second.
    while stored(plain, &key).await?.is_none() {
        let _ = faulty.entities().save(&key, &Expected::Absent, &tombstone, &[]).await; // Looked at above.
    }
    let said = Said::of(armed.call(faulty.entities().purge(&scope, Duration::ZERO, 10)).await)?;
    let is_there = stored(plain, &key).await?.is_some();
    match said {
        Said::Done(purged) if purged > 1 || purged == 1 && is_there => {
            return Err(format!("{purged} are purged, and it is there: {is_there}"));
        }
        // What a purge has removed is gone, whatever becomes of it when it looks for more.
        Said::Refused(error) if !is_there && !armed.met().iter().any(|kind| is_query(kind)) => {
            return Err(format!("{error:?}, and it is gone"));
        }
        _ => {}
    }
    let begun = Instant::now();
    while stored(plain, &key).await?.is_some() {
        let purged = plain.entities().purge(&scope, Duration::ZERO, 10).await;
        purged.map_err(|error| format!("purged again: {error:?}"))?;
        if begun.elapsed() > PATIENCE {
            return Err("purged again and again, and it is there".to_owned());
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}
