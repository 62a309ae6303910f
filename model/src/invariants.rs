//! What must never be seen, and what must be seen at rest: each function is a sentence of the README.
//!
//! They look at the ghost alone, not into the manager: any other way to keep the promise would pass as well. Only
//! [`marked_only_when_sent`] and [`no_gap`] also say *why* it is kept; they fail earlier and name the step.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::{
    entity::Entity,
    ids::{EntityKey, MessageId},
    ports::{DeadLetter, Known, Pending},
};

use crate::{
    Expectation, Fate, Ghost,
    ghost::Stood,
    ledger::{LOWER, Posted, alarm_cause, posted_of},
};

/// What the stores hold when everything is over.
#[derive(Debug, Default)]
pub struct Rest {
    /// Every entity of both endpoints.
    pub entities: Vec<(EntityKey, Entity)>,
    /// What the dedup store says of every message expected.
    pub known: Known,
    /// What the entity store says is pending, of any age.
    pub pending: Vec<Pending>,
    /// Everything set aside.
    pub dead_letters: Vec<DeadLetter>,
    /// How many dedup entries there are, where the store can say.
    pub dedup_entries: Option<usize>,
}

/// Everything that must hold at every moment.
///
/// # Errors
/// The first sentence that is broken.
pub fn always(ghost: &Ghost) -> Result<(), String> {
    effect_at_most_once(ghost)?;
    no_lost_update(ghost)?;
    no_ghost_output(ghost)?;
    output_stable(ghost)?;
    outputs_in_order(ghost)?;
    if ghost.exact { no_gap(ghost) } else { Ok(()) }
}

/// Everything that must hold when all messages are settled, nothing is under way and the sweeper has passed.
///
/// # Errors
/// The first sentence that is broken.
pub fn at_rest(ghost: &Ghost, rest: &Rest) -> Result<(), String> {
    always(ghost)?;
    complete_at_rest(ghost, rest)?;
    no_garbage_at_rest(rest)?;
    entries_agree_at_rest(ghost, rest)?;
    timeouts_exact_at_rest(ghost, rest)?;
    downstream_once_at_rest(ghost, rest)
}

/// "Effects once": in no committed state is a message written down twice, and every commit is one message.
///
/// # Errors
/// Which entity and message.
pub fn effect_at_most_once(ghost: &Ghost) -> Result<(), String> {
    for (key, states) in &ghost.entities {
        for (version, state) in states {
            let mut causes = BTreeSet::new();
            if let Some(twice) = state.lines.iter().find(|line| !causes.insert(&line.cause)) {
                return Err(format!(
                    "{key} at version {version:?}: {} took effect twice: {:?}",
                    twice.cause, state.lines
                ));
            }
            if !state.entity.completed && state.entity.commits != state.lines.len() as u64 {
                let commits = state.entity.commits;
                return Err(format!("{key} at version {version:?}: {commits} commits, but {:?}", state.lines));
            }
        }
    }
    Ok(())
}

/// "No save overwrites what it has not seen": each committed state extends the one before, and what is complete stays so.
///
/// # Errors
/// Which entity and versions.
pub fn no_lost_update(ghost: &Ghost) -> Result<(), String> {
    for (key, states) in &ghost.entities {
        for ((v1, before), (v2, after)) in states.iter().zip(states.iter().skip(1)) {
            let extends = if before.entity.completed {
                after.entity.completed && after.entity.commits == before.entity.commits
            } else {
                after.entity.completed && after.entity.commits > before.entity.commits
                    || after.lines.starts_with(&before.lines)
            };
            if !extends {
                return Err(format!("{key}: version {v2:?} {after:?} does not extend version {v1:?} {before:?}"));
            }
        }
    }
    Ok(())
}

/// "A run that was not saved sends nothing": what was sent stood in a committed outbox, and was made by the run that the
/// committed state tells of.
///
/// # Errors
/// Which outgoing message.
pub fn no_ghost_output(ghost: &Ghost) -> Result<(), String> {
    for sent in &ghost.sent {
        if !ghost.stored.contains_key(&sent.envelope.message_id) {
            return Err(format!("{:+?} was sent, but never stood in a committed outbox", sent.envelope));
        }
    }
    for (key, states) in &ghost.entities {
        for (version, state) in states.iter().filter(|(_, state)| !state.entity.completed) {
            for outgoing in state.entity.outbox.iter().flat_map(|entry| &entry.outgoing) {
                let stood = ghost.stored.get(&outgoing.envelope.message_id);
                let Some(posted) = stood.and_then(|stood| stood.posted.as_ref()) else { continue };
                let told = state.lines.get(posted.number);
                if told.is_none_or(|line| line.cause != posted.cause || line.run != posted.run) {
                    return Err(format!("{key} at version {version:?}: {posted:?} is of a run that was not kept"));
                }
            }
        }
    }
    Ok(())
}

/// "Under ids that never change": all copies of one outgoing message are equal, and a message causes no more different
/// ones than it should.
///
/// # Errors
/// Which outgoing message, or which message causes too many.
pub fn output_stable(ghost: &Ghost) -> Result<(), String> {
    for sent in &ghost.sent {
        if let Some(stood) = ghost.stored.get(&sent.envelope.message_id)
            && stood.envelope != sent.envelope
        {
            return Err(format!(
                "one id, two messages: {:+?} was stored, {:+?} was sent",
                stood.envelope, sent.envelope
            ));
        }
    }
    for expected in &ghost.expected {
        let ids = outputs_of(ghost, &expected.cause);
        if ids.len() > expected.outputs {
            return Err(format!("{} sends {} messages, but {ids:?} were sent", expected.cause, expected.outputs));
        }
    }
    Ok(())
}

/// "Nothing more unless asked for": where order was asked for, outgoing messages of one entity are first sent in the order
/// of its commits.
///
/// # Errors
/// Which outgoing message was overtaken.
pub fn outputs_in_order(ghost: &Ghost) -> Result<(), String> {
    let (mut last, mut sent) = (BTreeMap::new(), BTreeSet::new());
    for outgoing in ghost.sent.iter().filter(|_| ghost.ordered) {
        let id = &outgoing.envelope.message_id;
        let Some(stood) = ghost.stored.get(id).filter(|_| sent.insert(id)) else { continue };
        let last = last.entry(&stood.entity).or_insert(0);
        if stood.commit < *last {
            return Err(format!("{}: {id} of commit {} was overtaken by one of {last}", stood.entity, stood.commit));
        }
        *last = stood.commit;
    }
    Ok(())
}

/// The ids of what has left because of `cause`.
fn outputs_of<'g>(ghost: &'g Ghost, cause: &str) -> Vec<&'g MessageId> {
    let of_cause = |stood: &Stood| stood.posted.as_ref().is_some_and(|posted| posted.cause == cause);
    let stored = ghost.stored.iter().filter(|(_, stood)| of_cause(stood)).map(|(id, _)| id);
    stored.filter(|id| ghost.has_left(id)).collect()
}

/// "Acknowledged last": a message that is acked now has its effect committed and its outgoing messages sent, or safely in
/// the hands of the sweeper; or it was set aside; or its saga is complete.
///
/// # Errors
/// What is missing.
pub fn ack_implies_done(ghost: &Ghost, id: &MessageId) -> Result<(), String> {
    let Some(expected) = ghost.expected.iter().find(|expected| expected.message_ids.contains(id)) else {
        return Ok(()); // Of the lower endpoint, or a timeout: judged at rest.
    };
    if ghost.refused.contains(id) {
        return Ok(());
    }
    let newest = ghost.newest(&expected.entity);
    if newest.is_some_and(|newest| newest.entity.completed) {
        return Ok(());
    }
    if !ghost.has_effect(&expected.entity, &expected.cause) {
        return Err(format!("{} was acked without an effect and without a dead letter", expected.cause));
    }
    let waits = newest.is_some_and(|newest| newest.entity.entry(&expected.dedup).is_some());
    let left = outputs_of(ghost, &expected.cause).len();
    if left < expected.outputs && !waits {
        return Err(format!("{} was acked after {left} of {} messages had left", expected.cause, expected.outputs));
    }
    Ok(())
}

/// "When all are sent, the message is entered": whatever the dedup store has been told is over has been dispatched. That is
/// why a seen message may be dropped.
///
/// # Errors
/// Which message was marked too early.
pub fn marked_only_when_sent(ghost: &Ghost) -> Result<(), String> {
    for (dedup, attempt) in &ghost.marks {
        let outgoing = ghost.entries.get(attempt).into_iter().flat_map(|entry| &entry.outgoing);
        if let Some(unsent) = outgoing.map(|o| &o.envelope.message_id).find(|id| !ghost.has_left(id)) {
            return Err(format!("{dedup} was marked before {unsent} was dispatched"));
        }
        let expected = ghost.expected.iter().find(|expected| expected.dedup == *dedup);
        if let Some(expected) = expected
            && outputs_of(ghost, &expected.cause).len() < expected.outputs
        {
            return Err(format!("{} was marked before everything it sends was dispatched", expected.cause));
        }
    }
    Ok(())
}

/// "Finds either the entry or the mark": an entry leaves the outbox only when its own attempt is marked.
///
/// # Errors
/// Which entry was lost.
pub fn no_gap(ghost: &Ghost) -> Result<(), String> {
    for (key, states) in &ghost.entities {
        for ((_, before), (version, after)) in states.iter().zip(states.iter().skip(1)) {
            let gone = |attempt| !after.entity.outbox.iter().any(|entry| entry.attempt == attempt);
            for entry in before.entity.outbox.iter().filter(|entry| gone(entry.attempt)) {
                if !ghost.marks.contains(&(entry.key, entry.attempt)) {
                    return Err(format!("{key} at version {version:?}: {entry:?} is gone, and not marked"));
                }
            }
        }
    }
    Ok(())
}

/// "Nothing is lost in silence": every message has its effect, everything it sends has left, and it is marked; or it was
/// set aside.
///
/// # Errors
/// What is missing.
pub fn complete_at_rest(ghost: &Ghost, rest: &Rest) -> Result<(), String> {
    for expected in &ghost.expected {
        let Expectation { cause, entity, .. } = expected;
        let letter = rest
            .dead_letters
            .iter()
            .find(|letter| letter.destination.is_none() && expected.message_ids.contains(&letter.envelope.message_id));
        let completed = ghost.newest(entity).is_some_and(|newest| newest.entity.completed);
        let marked = rest.known.entry(&expected.dedup).is_some();
        let effect = ghost.has_effect(entity, cause) || (completed && marked);
        match expected.fate {
            Fate::DeadLetter if effect => {
                return Err(format!("{cause} has an effect, although its handler refused it"));
            }
            Fate::DeadLetter if letter.is_none() => return Err(format!("{cause} was refused and is nowhere")),
            Fate::DeadLetter => continue,
            Fate::Effect if !effect && completed && letter.is_some() => continue,
            Fate::Effect if !effect => return Err(format!("{cause} has no effect; dead letter: {letter:?}")),
            Fate::Effect => {}
        }
        if !marked {
            return Err(format!("{cause} has its effect and no dedup entry"));
        }
        let left = outputs_of(ghost, cause);
        if left.len() != expected.outputs {
            return Err(format!("{cause} sends {} messages, but what has left is {left:?}", expected.outputs));
        }
        let parked = left.iter().filter(|id| ghost.parked.contains(id));
        for id in parked {
            if !rest.dead_letters.iter().any(|letter| letter.envelope.message_id == **id) {
                return Err(format!("{id} can never be sent and is not among the dead letters"));
            }
        }
    }
    Ok(())
}

/// "Clean-up": no outbox entry is left once the sweeper has passed, so sagas do not grow.
///
/// # Errors
/// Which entity has entries.
pub fn no_garbage_at_rest(rest: &Rest) -> Result<(), String> {
    if let Some((key, entity)) = rest.entities.iter().find(|(_, entity)| !entity.outbox.is_empty()) {
        return Err(format!("{key} still has {:?}", entity.outbox));
    }
    match rest.pending.first() {
        Some(pending) => Err(format!("{pending:?} is still listed as pending")),
        None => Ok(()),
    }
}

/// One dedup entry for each commit, no more and no less.
///
/// # Errors
/// The two numbers.
pub fn entries_agree_at_rest(ghost: &Ghost, rest: &Rest) -> Result<(), String> {
    let commits: u64 = rest.entities.iter().map(|(_, entity)| entity.commits).sum();
    let marked = ghost.expected.iter().filter(|expected| rest.known.entry(&expected.dedup).is_some()).count() as u64;
    match rest.dedup_entries {
        Some(entries) if entries as u64 != commits => Err(format!("{commits} commits, but {entries} dedup entries")),
        _ if marked > commits => Err(format!("{commits} commits, but {marked} messages are marked")),
        _ => Ok(()),
    }
}

/// "A timeout that its saga has cancelled is never handled": of a saga that is not complete, every timeout was handled or
/// cancelled, and never handled after it had been cancelled.
///
/// # Errors
/// Which timeout.
pub fn timeouts_exact_at_rest(ghost: &Ghost, rest: &Rest) -> Result<(), String> {
    let mut alarms: BTreeMap<String, (MessageId, Posted)> = BTreeMap::new();
    for sent in ghost.sent.iter().filter(|sent| sent.envelope.timeout) {
        if let Some(posted) = posted_of(&sent.envelope)? {
            alarms.insert(posted.cause.clone(), (sent.envelope.message_id.clone(), posted));
        }
    }
    for (cause, (id, posted)) in alarms {
        let of_ledger = |key: &EntityKey| key.key().as_str() == posted.ledger && key.scope().endpoint.as_str() != LOWER;
        let Some((key, entity)) = rest.entities.iter().find(|(key, _)| of_ledger(key)) else { continue };
        if entity.completed {
            continue;
        }
        let lines = ghost.newest(key).map_or(&[][..], |newest| &newest.lines);
        let fired = lines.iter().position(|line| line.cause == alarm_cause(&cause));
        let cancelled = lines.iter().position(|line| line.cancelled.as_deref() == Some(id.to_string().as_str()));
        if fired.is_some() == cancelled.is_some() {
            return Err(format!(
                "{key}: the timeout of {cause} was handled at {fired:?} and cancelled at {cancelled:?}"
            ));
        }
        if entity.timeouts.iter().any(|timeout| timeout.message_id == id) {
            return Err(format!("{key}: still waits for the timeout of {cause}"));
        }
    }
    Ok(())
}

/// "So that a receiver which deduplicates handles it once": what the upper endpoint sends, perhaps repeatedly, is in the
/// books of the lower one once each.
///
/// # Errors
/// What differs.
pub fn downstream_once_at_rest(ghost: &Ghost, rest: &Rest) -> Result<(), String> {
    let mut sent = BTreeSet::new();
    for outgoing in &ghost.sent {
        let to_lower = outgoing.destination.to_string() == format!("endpoint:{LOWER}");
        if to_lower && let Some(posted) = posted_of(&outgoing.envelope)? {
            sent.insert(format!("{}#{}", posted.cause, posted.index));
        }
    }
    let mut booked = BTreeSet::new();
    for (key, _) in rest.entities.iter().filter(|(key, _)| key.scope().endpoint.as_str() == LOWER) {
        let lines = ghost.newest(key).map_or(&[][..], |newest| &newest.lines);
        booked.extend(lines.iter().map(|line| line.cause.clone()));
    }
    if sent == booked {
        return Ok(());
    }
    let (missing, extra): (Vec<_>, Vec<_>) = (sent.difference(&booked).collect(), booked.difference(&sent).collect());
    Err(format!("sent and not booked downstream: {missing:?}; booked and never sent: {extra:?}"))
}
