//! Dead letters that cannot be read hide no other: in stores, and in queues, which keep theirs in the same way.
//!
//! For transports of this project; not part of the stable interface.

use hapax_core::ports::{Page, StoreError};

/// Those of `letters` that can be read: one that cannot must not hide the others. Perhaps another version of this program can. With `tells` it is
/// told of: where their page was asked for, and not where they are looked at in the place of one before.
pub fn readable<T>(letters: impl Iterator<Item = Result<T, StoreError>>, tells: bool) -> Vec<T> {
    let tell = |error: &StoreError| {
        if tells {
            tracing::warn!(%error, "a dead letter is left out of the list: a person has to repair or delete it");
        }
    };
    letters.filter_map(|letter| letter.inspect_err(tell).ok()).collect()
}

/// Whether a page of so many `rows`, of which so many can be read, would be taken for the last and is not.
#[must_use]
pub const fn hides_others(readable: usize, rows: usize, page: &Page) -> bool {
    readable == 0 && rows > 0 && rows >= page.limit
}

#[cfg(test)]
mod tests {
    use hapax_core::ports::{ErrorKind, Page, StoreError};

    use super::{hides_others, readable};

    #[test]
    fn what_cannot_be_read_hides_no_other() {
        let damaged = || StoreError::new(ErrorKind::Malformed, "listing dead letters", "it is damaged");
        assert_eq!(readable([Ok(1), Err(damaged()), Ok(3)].into_iter(), true), [1, 3]);
        let page = Page::first(2);
        let hides = [(0, 2), (1, 2), (0, 1), (0, 0)].map(|(readable, rows)| hides_others(readable, rows, &page));
        assert_eq!(hides, [true, false, false, false]);
    }
}
