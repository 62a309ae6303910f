//! What may be what kills the process: handled one at a time, with nothing beside it that its crash would charge too far.
//!
//! A broker counts a message as given when it hands it over. So a crash charges all that is held, and after some crashes nobody could tell
//! the message that kills from those that were beside it. A handler that fails ends a message after as many deliveries as its
//! rule grants; what has been given more often than any rule grants was held by processes that died, or lost its lease. Of such
//! messages one is held at a time: those that came with it go back uncounted before it begins, and nothing more is received before
//! it has ended. The innocent ones come to their end this way, one by one, and only the one that kills is charged until it is poison.
//!
//! What is given less often goes on beside it. A crash charges it, but not further than to be such a message itself.

use super::Settings;
use crate::ports::Delivery;

/// So many others in a row, received one at a time, and many are received again: there may be more of them close behind.
const CALM: usize = 32;
/// The part of all its deliveries that are left to a message for being given alone, at least.
const ALONE_SHARE: u32 = 3;

/// How often a message may be given and be none of them. With only one delivery allowed there is nobody to suspect: what was beside the first crash
/// is poison.
pub(super) fn suspect_above(settings: &Settings) -> u32 {
    let recoverability = &settings.recoverability;
    let alone = (recoverability.poison_above / ALONE_SHARE).max(1);
    recoverability.most_attempts().min(recoverability.poison_above.saturating_sub(alone)).max(1)
}

/// Those of an endpoint.
#[derive(Default)]
pub(super) struct Suspects {
    /// Begins when what came with it is back.
    pub(super) next: Option<Delivery>,
    /// One has come without its body, which is being fetched.
    pub(super) fetching: bool,
    /// Lanes in which one is handled.
    pub(super) lanes: usize,
    /// Others to come until many are received at a time.
    calm: usize,
}

impl Suspects {
    /// Nothing may be received beside it.
    pub(super) const fn at_work(&self) -> bool {
        self.next.is_some() || self.fetching || self.lanes > 0
    }

    /// The next message may be one.
    pub(super) const fn are_about(&self) -> bool {
        self.calm > 0
    }

    /// Takes them out of what was received, which goes on; answers those that cannot have their turn now.
    pub(super) fn part(&mut self, deliveries: &mut Vec<Delivery>, above: u32) -> Vec<Delivery> {
        if deliveries.iter().all(|delivery| delivery.attempts <= above) {
            self.calm = self.calm.saturating_sub(deliveries.len());
            return Vec::new();
        }
        self.calm = CALM;
        let (mut suspects, others) =
            std::mem::take(deliveries).into_iter().partition(|delivery| delivery.attempts > above);
        *deliveries = others;
        if !self.at_work() {
            self.next = Some(Vec::remove(&mut suspects, 0));
        }
        suspects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::Recoverability;

    #[test]
    fn nobody_is_suspected_of_what_a_failing_handler_explains_and_some_deliveries_are_left_to_be_alone() {
        let above = |attempts_max, poison_above| {
            let recoverability = Recoverability { attempts_max, poison_above, ..Recoverability::default() };
            suspect_above(&Settings { recoverability, ..Settings::default() })
        };
        assert_eq!(suspect_above(&Settings::default()), 5);
        assert_eq!([above(5, u32::MAX), above(10, 10), above(3, 3), above(1, 2), above(1, 1)], [5, 7, 2, 1, 1]);
    }
}
