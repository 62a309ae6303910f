//! How often something is tried again that met others in a way the server does not allow: for the stores on servers, and for
//! the queues there.
//!
//! For this project's own crates; not part of the stable interface.

/// Races that may be lost, one after the other. Each time the server has rolled it back, and one of those it met has gone on,
/// so that even of ten that meet all the time each gets through.
pub const RACES_MAX: usize = 10;

/// Others' locks that are waited for, each for as long as the server waits. A row that somebody keeps is met once or twice;
/// with more it is the table, or one who will not let go, and every further try would take as long.
pub const LOCKS_MAX: usize = 3;

/// How often something is asked or written again because the generations of dedup entries were others than was known. They
/// change every few days, but a sweeper of a short retention beside a starved process can change them between a look and what
/// follows it, several times in a row: five tries were not enough for a test on a busy machine. Each costs two round trips.
pub const ROTATIONS_MAX: usize = 20;

/// Those that were lost so far.
#[derive(Debug, Default)]
pub struct Races {
    lost: usize,
    waits: usize,
}

impl Races {
    /// Whether it may be tried again after one more. `waited`: it was lost by waiting for a lock in vain.
    pub fn allow(&mut self, waited: bool) -> bool {
        self.lost += 1;
        self.waits += usize::from(waited);
        self.lost <= RACES_MAX && self.waits < LOCKS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::{LOCKS_MAX, RACES_MAX, Races};

    fn allowed(waited: impl Fn(usize) -> bool) -> usize {
        let mut races = Races::default();
        (0..).take_while(|at| races.allow(waited(*at))).count()
    }

    #[test]
    fn what_waits_in_vain_is_tried_a_few_times_and_what_only_lost_more_often() {
        assert_eq!(allowed(|_| false), RACES_MAX);
        assert_eq!(allowed(|_| true), LOCKS_MAX - 1);
        assert_eq!(allowed(|at| at >= 5), 5 + LOCKS_MAX - 1);
    }
}
