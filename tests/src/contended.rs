//! Does a store under contention lose a save, count one twice, or keep the mark of one that lost? Many tasks at one entity tell.

use std::sync::Arc;

use hapax::{
    entity::{DedupEntry, Entity, Expected},
    ids::{DedupKey, EntityKey, Scope},
    ports::{ErrorKind, Saved, StoreError},
};

use crate::{Backend, samples::mark};

/// Lets `tasks` tasks at a time add one to one entity, through `hands` by turns, until each has won `wins` times. Where the
/// store keeps both, every other save carries a mark. A store may be too busy for a call, and is asked again then.
///
/// # Errors
/// A save is lost or counted twice, a mark of a loser is there, one of a winner is not, or a call fails.
///
/// # Panics
/// When a task does.
pub async fn contended<B: Backend>(hands: &[B], tasks: usize, wins: usize) -> Result<(), String> {
    let scope = Scope {
        endpoint: format!("contended-{:016x}", fastrand::u64(..)).parse().expect("a valid name"),
        saga: "counter".parse().expect("a valid name"),
    };
    let key = EntityKey::new(Arc::new(scope), "one".parse().expect("a valid key"));
    let all: Vec<_> =
        hands.iter().cycle().take(tasks).map(|hand| tokio::spawn(count(hand.clone(), key.clone(), wins))).collect();
    let (mut won, mut lost) = (Vec::new(), Vec::new());
    for task in all {
        let marks = task.await.expect("a task that ends")?;
        won.extend(marks.won);
        lost.extend(marks.lost);
    }
    println!("{} wins, {} of them with a mark; {} marks of losers", tasks * wins, won.len(), lost.len());
    let hand = hands.first().ok_or("no handle was given")?;
    let stored = hand.load(&key, &[]).await.map_err(failed)?.stored.ok_or("there is no entity")?;
    if stored.entity.commits != (tasks * wins) as u64 {
        return Err(format!("after {} wins it counts {}", tasks * wins, stored.entity.commits));
    }
    for (marks, is_there) in [(won, true), (lost, false)] {
        let known = hand.contains(&marks).await.map_err(failed)?;
        if let Some(wrong) = marks.iter().find(|mark| known.entry(mark).is_some() != is_there) {
            return Err(format!("that a mark is there is {}, and should be {is_there}: {wrong}", !is_there));
        }
    }
    Ok(())
}

/// The marks that one task has tried to save.
#[derive(Debug, Default)]
struct Marks {
    won: Vec<DedupKey>,
    lost: Vec<DedupKey>,
}

async fn count<B: Backend>(hand: B, key: EntityKey, wins: usize) -> Result<Marks, String> {
    let mut marks = Marks::default();
    let mut won = 0;
    while won < wins {
        let Some((expected, commits)) = busy(hand.load(&key, &[]).await)?.map(|loaded| match loaded.stored {
            Some(stored) => (Expected::Version(stored.version), stored.entity.commits),
            None => (Expected::Absent, 0),
        }) else {
            continue;
        };
        let next = Entity { state: b"counted".to_vec().into(), commits: commits + 1, ..Entity::default() };
        let riding: Vec<DedupEntry> =
            (hand.capabilities().together && fastrand::bool()).then(mark).into_iter().collect();
        let keys = riding.iter().map(|mark| mark.key);
        match busy(hand.save(&key, &expected, &next, &riding).await)? {
            Some(Saved::At(_)) => {
                won += 1;
                marks.won.extend(keys);
            }
            Some(Saved::Conflict) | None => marks.lost.extend(keys),
        }
    }
    Ok(marks)
}

/// `None` for a call that was refused since the store is busy, and has done nothing.
fn busy<T>(answer: Result<T, StoreError>) -> Result<Option<T>, String> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: StoreError) -> String {
    format!("{error:?}")
}
