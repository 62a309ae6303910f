//! Promises about what is too large, and about keys.

use std::sync::Arc;

use super::{
    APART, Builder, CAPABILITIES, Checked, HANDS, Kept, LIMITS_BEFORE_WRITING,
    hand::{Hand, Marks},
};
use crate::{
    entity::{Entity, Expected},
    ids::{EntityKey, Scope},
    ports::ErrorKind,
    testing::{Broken, samples},
};

/// Largest limit that is tried, in bytes: more would measure the machine that runs the suite.
const LIMIT_TRIED_MAX: usize = 64 << 20;

/// Promise 12. *Limits before writing:* what is too large is refused with [`ErrorKind::TooLarge`] and nothing of it is
/// stored.
///
/// An entity of exactly [`StoreCapabilities::entity_bytes_max`](crate::ports::StoreCapabilities::entity_bytes_max) is
/// taken, in state or outbox; one with a byte more is not, and neither is what was to be stored with it.
pub async fn limits_before_writing(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, LIMITS_BEFORE_WRITING).await;
    let bytes_max = hand.store.capabilities().entity_bytes_max;
    if bytes_max > LIMIT_TRIED_MAX {
        return Ok(Kept::NotClaimed("the store's limit is above what the suite tries"));
    }
    let marks = Marks::of(builder, LIMITS_BEFORE_WRITING).await;
    for fill in [fill_state, fill_outbox] {
        let (largest, too_large) = (fill(bytes_max), fill(bytes_max + 1));
        let key = samples::new_key();
        refuse(&hand, &key, &Expected::Absent, &too_large, marks.as_ref()).await?;
        hand.expect_version(&key, None, "after an entity that is too large was refused").await?;

        let version = hand.create(&key, &largest).await?;
        if hand.load_at(&key, &version).await?.entity != largest {
            return Err(hand.broken("the largest entity does not come back as it was saved"));
        }
        refuse(&hand, &key, &Expected::Version(version.clone()), &too_large, marks.as_ref()).await?;
        hand.expect_version(&key, Some(&version), "after an entity that is too large was refused").await?;
    }
    Ok(Kept::Shown)
}

fn fill_state(bytes: usize) -> Entity {
    let empty = Entity::default();
    Entity { state: vec![b'x'; bytes.saturating_sub(empty.size())].into(), ..empty }
}

/// Most of it in several messages of one entry.
fn fill_outbox(bytes: usize) -> Entity {
    const MESSAGES: usize = 3;
    let mut entry = (*samples::entry(1)).clone();
    let to = samples::endpoint();
    let empty = samples::outgoing(&to, samples::envelope("")).envelope.size();
    let body = (bytes / 2 / MESSAGES).saturating_sub(empty);
    entry.outgoing = (0..MESSAGES).map(|_| samples::outgoing(&to, samples::envelope(vec![b'x'; body]))).collect();
    let entity = samples::entity("", &[Arc::new(entry)]);
    Entity { state: vec![b'x'; bytes.saturating_sub(entity.size())].into(), ..entity }
}

async fn refuse(
    hand: &Hand,
    key: &EntityKey,
    expected: &Expected,
    too_large: &Entity,
    marks: Option<&Marks>,
) -> Result<(), Broken> {
    let processed: Vec<_> = marks.iter().map(|_| samples::mark()).collect();
    match hand.store.save(key, expected, too_large, &processed).await {
        Err(e) if e.kind() == ErrorKind::TooLarge => {}
        other => {
            let bytes = too_large.size();
            return Err(hand.broken(format!("the save of {bytes} bytes, one more than the limit, is {other:?}")));
        }
    }
    if let (Some(marks), Some(mark)) = (marks, processed.first()) {
        marks.expect_none(mark, "of an entity that is too large").await?;
    }
    Ok(())
}

/// Promise 15. *Apart:* keys that differ in any byte of endpoint, saga or saga key are different entities (S58).
pub async fn apart(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, APART).await;
    let scope = samples::scope();
    let other_saga = Arc::new(Scope { endpoint: scope.endpoint.clone(), saga: samples::saga("Suite") });
    let other_endpoint = Arc::new(Scope { endpoint: samples::endpoint(), saga: scope.saga.clone() });
    let long = "k".repeat(crate::ids::ID_BYTES_MAX - 1);
    let names = ["key", "Key", "key ", " key", "k%", "k_", "ke", "\u{e9}", "e\u{301}", &format!("{long}1")];
    let names = names.into_iter().map(str::to_owned).chain([format!("{long}2"), "1".into(), "01".into()]);
    let keys = names.map(|name| samples::entity_key(&scope, &name));
    let keys = keys.chain([&other_saga, &other_endpoint].map(|scope| samples::entity_key(scope, "key")));
    let mut stored = Vec::new();
    for (index, key) in keys.enumerate() {
        let entity = samples::entity(index, &[]);
        let saved = hand.save(&key, &Expected::Absent, &entity, &[]).await?;
        let crate::ports::Saved::At(version) = saved else {
            return Err(hand.broken(format!("`{key}` is taken for another key")));
        };
        stored.push((key, version, entity));
    }
    for (key, version, entity) in &stored {
        hand.expect_version(key, Some(version), &format!("for `{key}`, after others were saved")).await?;
        if hand.load_at(key, version).await?.entity != *entity {
            return Err(hand.broken(format!("the entity of `{key}` is another's")));
        }
    }
    Ok(Kept::Shown)
}

/// What the store says it can do is constant, and what it says of keeping both is what it does.
pub async fn capabilities(builder: &dyn Builder) -> Checked {
    let hands = Hand::several(builder, CAPABILITIES, HANDS).await;
    let said = hands[0].store.capabilities();
    let key = samples::new_key();
    for hand in &hands {
        let now = hand.store.capabilities();
        if now != said {
            return Err(hand.broken(format!("one handle says {said:?}, another {now:?}")));
        }
        let knows = hand.load(&key, &[samples::dedup_key()]).await?.known.is_some();
        if knows != said.together {
            return Err(hand.broken(format!("it says that `together` is {}, but `load` does otherwise", said.together)));
        }
    }
    if builder.dedup().await.is_some() != said.together {
        return Err(hands[0].broken("the builder and the store do not agree on whether the store keeps both"));
    }
    Ok(Kept::Shown)
}
