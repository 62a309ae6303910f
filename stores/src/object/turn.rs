//! Whose turn it is to evict. Turns are numbered; the highest number has it, until it is over.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{
    clock::{is_older, millis, stamp},
    error::Failure,
    names::Names,
    objects::{Created, Objects},
};

/// How long a turn lasts that was not ended. Default 5 minutes: whoever has it begins no removal after half, and one that was under
/// way then has until [`GIVEN_UP`] to end.
const TURN: Duration = Duration::from_secs(5 * 60);
/// When a removal is given up. Default 4 minutes: before others may take the next turn, though the service's clocks be a minute apart.
const GIVEN_UP: Duration = Duration::from_secs(4 * 60);

/// The turn, taken.
#[derive(Debug)]
pub(super) struct Turn {
    number: u64,
    begun: Instant,
}

impl Turn {
    /// Takes the next turn, unless another is under way at `now`.
    pub(super) async fn take(objects: &Objects, names: &Names, now: i64) -> Result<Option<Self>, Failure> {
        let begun = Instant::now();
        let listed = objects.list(&names.turns()).await?;
        let turns = || listed.iter().filter_map(|meta| Some((Names::to_turn(&meta.location)?, stamp(meta))));
        let highest = turns().map(|((number, _), _)| number).max();
        let under_way = turns().any(|((number, _), since)| {
            let ended = turns().any(|(turn, _)| turn == (number, true));
            Some(number) == highest && !ended && !is_older(since, now, millis(TURN))
        });
        let number = highest.unwrap_or(0).saturating_add(1);
        if under_way || objects.create(&names.turn(number, false), Vec::new()).await? == Created::Refused {
            return Ok(None);
        }
        // While this one was looking, others may have taken later turns and removed the lower numbers, this one among them. The
        // highest is never removed.
        let listed = objects.list(&names.turns()).await?;
        let mut lower = Vec::new();
        for meta in listed {
            match Names::to_turn(&meta.location) {
                Some((other, _)) if other > number => {
                    objects.delete(vec![names.turn(number, false)]).await?;
                    return Ok(None);
                }
                Some((other, _)) if other < number => lower.push(meta.location),
                _ => {}
            }
        }
        objects.delete(lower).await?;
        Ok(Some(Self { number, begun }))
    }

    /// Whether no more is to be begun in it.
    pub(super) fn is_over(&self) -> bool {
        self.begun.elapsed() > TURN / 2
    }

    /// Gives up what is not done shortly before others may take the next turn.
    pub(super) async fn within<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        timeout_at(self.begun + GIVEN_UP, work).await.unwrap_or(Err(Failure::TooLate))
    }

    /// Lets others have theirs. If it fails, they wait.
    pub(super) async fn end(self, objects: &Objects, names: &Names) {
        if let Err(failure) = objects.create(&names.turn(self.number, true), Vec::new()).await {
            tracing::debug!(?failure, "a turn to evict dedup entries was not ended and is waited for");
        }
    }
}
