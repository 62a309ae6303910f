//! When a message that fails is given up: a value that one can read.

use std::{any::type_name, error::Error, fmt, time::Duration};

use super::Tries;
use crate::{handler_error::HandlerError, ports::Cause};

/// What is tried again, how often, and when a message is given up: all of it, and it prints itself in words.
///
/// The order of events for a handler that keeps failing: retries [in place](Self::in_place), then the message is given back and comes again
/// after a rest, up to [`attempts_max`](Self::attempts_max) times, then it is dead-lettered. A message that was given back may be
/// overtaken by later ones of its entity. Lost races, unknown outcomes and stores that are away have budgets of their own and never count.
/// What a handler calls [permanent](HandlerError::permanent) is dead-lettered at once. What kills the process is counted before its handler
/// runs, and is [poison](Self::poison_above) in the end.
///
/// It is about handlers. A message that cannot be read, or that names no saga instance, takes from it only how often it is given: it rests five
/// seconds in between, for another version of the program may take it, and is set aside in the end.
///
/// ```
/// use std::time::Duration;
/// use hapax_core::deliver::{Last, Recoverability, Rule};
/// # #[derive(Debug, thiserror::Error)] #[error("")] struct CardDeclined;
/// # #[derive(Debug, thiserror::Error)] #[error("")] struct RateLimited;
/// # #[derive(Debug, thiserror::Error)] #[error("")] struct AlreadyShipped;
///
/// let recoverability = Recoverability { attempts_max: 8, ..Recoverability::default() }
///     // No repeat will cure it.
///     .on::<CardDeclined>(Rule::AT_ONCE)
///     // A repeat at once would only make it worse.
///     .on::<RateLimited>(Rule {
///         in_place: false,
///         attempts_max: 10,
///         retry_delay: Duration::from_secs(30),
///         ..Rule::default()
///     })
///     // It does not matter any more.
///     .on::<AlreadyShipped>(Rule { last: Last::Drop, ..Rule::AT_ONCE });
/// // One sentence a line: "A handler that fails: tried again in place 2 times, ..."
/// println!("{recoverability}");
/// ```
#[derive(Debug, Clone)]
pub struct Recoverability {
    /// After the handler failed, before the message is given back. Default 2 tries from 10 ms to 100 ms: what passes at once, the rest
    /// is left to later deliveries.
    pub in_place: Tries,
    /// A message whose handler fails is dead-lettered when it has been given this often. Default 5. At most
    /// [`poison_above`](Self::poison_above), else the endpoint does not start.
    pub attempts_max: u32,
    /// Rest before the second delivery; doubled for each further one. Default 1 s.
    pub retry_delay: Duration,
    /// Longest rest. Default 5 min.
    pub retry_delay_max: Duration,
    /// For errors of certain types, in place of the first four; the first that is about an error holds. See [`on`](Self::on).
    pub rules: Vec<On>,
    /// A message given more often than this is poison, whatever became of it, and is dead-lettered without being handled (S66): it may be
    /// what kills the process. Default 10: room for crashes and restarts that were not its fault. An endpoint handles a message alone that
    /// has been given more often than failing handlers explain, at the latest in the last third.
    pub poison_above: u32,
    /// After a lost race or an unknown outcome. Default 50 tries from 1 ms to 100 ms: races are short, and losing one is not a failure.
    /// Then the message is given back, uncounted.
    pub conflict: Tries,
    /// After dispatching or marking failed. Default 8 tries from 10 ms to 1 s; then the sweeper has it.
    pub unsent: Tries,
    /// While a store cannot be reached. Default 20 tries from 50 ms to 5 s: giving the message back would not help.
    pub unavailable: Tries,
}

impl Default for Recoverability {
    fn default() -> Self {
        let ms = Duration::from_millis;
        let Rule { attempts_max, retry_delay, retry_delay_max, .. } = Rule::default();
        Self {
            in_place: Tries::new(2, ms(10), ms(100)),
            attempts_max,
            retry_delay,
            retry_delay_max,
            rules: Vec::new(),
            poison_above: 10,
            conflict: Tries::new(50, ms(1), ms(100)),
            unsent: Tries::new(8, ms(10), ms(1000)),
            unavailable: Tries::new(20, ms(50), ms(5000)),
        }
    }
}

/// What is done about a handler's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Whether it is tried again [in place](Recoverability::in_place) first. Default true.
    pub in_place: bool,
    /// As [`Recoverability::attempts_max`]. Default 5.
    pub attempts_max: u32,
    /// As [`Recoverability::retry_delay`]. Default 1 s.
    pub retry_delay: Duration,
    /// As [`Recoverability::retry_delay_max`]. Default 5 min.
    pub retry_delay_max: Duration,
    /// How it ends. Default: dead-lettered.
    pub last: Last,
}

/// How a message ends that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Last {
    /// It is set aside for a person.
    #[default]
    DeadLetter,
    /// It is acknowledged, counted, and forgotten. It has had no effect; a copy of it is handled as if it was the first.
    Drop,
}

impl Rule {
    /// Given up at the first failure.
    pub const AT_ONCE: Self = Self {
        in_place: false,
        attempts_max: 1,
        retry_delay: Duration::from_secs(1),
        retry_delay_max: Duration::from_secs(300),
        last: Last::DeadLetter,
    };

    pub(super) fn rest(&self, attempts: u32) -> Duration {
        const DOUBLINGS_MAX: u32 = 20;
        let doublings = attempts.saturating_sub(1).min(DOUBLINGS_MAX);
        self.retry_delay.saturating_mul(1 << doublings).min(self.retry_delay_max)
    }
}

impl Default for Rule {
    fn default() -> Self {
        Self { in_place: true, attempts_max: 5, ..Self::AT_ONCE }
    }
}

/// A [`Rule`] for one type of errors.
#[derive(Clone, Copy)]
pub struct On {
    error: &'static str,
    is_one: fn(&(dyn Error + 'static)) -> bool,
    rule: Rule,
}

impl On {
    /// Name of the error's type.
    #[must_use]
    pub const fn error(&self) -> &'static str {
        self.error
    }

    /// What is done about it.
    #[must_use]
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Whether `error` is one of these, or was caused by one.
    fn is_about(&self, error: &HandlerError) -> bool {
        let mut cause = Some(error.source());
        while let Some(error) = cause {
            if (self.is_one)(error) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl fmt::Debug for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.error)?;
        self.rule.fmt(f)
    }
}

impl Recoverability {
    /// The same with a rule for errors of type `E`, wherever in the chain of causes one is. It comes after those that are there. What a
    /// handler calls permanent is dead-lettered at once all the same.
    ///
    /// `Rule::default()` has the defaults of this value, not what you have set in it.
    #[must_use]
    pub fn on<E: Error + 'static>(mut self, rule: Rule) -> Self {
        self.rules.push(On { error: type_name::<E>(), is_one: |error| error.is::<E>(), rule });
        self
    }

    /// The same with a rule for errors of which `is_one` says so, wherever in the chain of causes one is: for one variant of an enum, or
    /// for what an error holds that only forwards it (`#[error(transparent)]`), which hides its type. `name` is for people.
    #[must_use]
    pub fn on_if(mut self, name: &'static str, is_one: fn(&(dyn Error + 'static)) -> bool, rule: Rule) -> Self {
        self.rules.push(On { error: name, is_one, rule });
        self
    }

    /// What is done about `error`, and for errors of which type that is said.
    pub(crate) fn rule(&self, error: &HandlerError) -> (Rule, Option<&'static str>) {
        match self.rules.iter().find(|on| on.is_about(error)) {
            Some(on) => (on.rule, Some(on.error)),
            None => (self.usual(), None),
        }
    }

    /// How often it is tried again in place after `cause`, and after what waits.
    #[must_use]
    pub const fn budget(&self, cause: Cause) -> &Tries {
        match cause {
            Cause::Conflict => &self.conflict,
            Cause::Failure => &self.in_place,
            Cause::Unsent => &self.unsent,
            Cause::Unavailable => &self.unavailable,
        }
    }

    pub(super) fn usual(&self) -> Rule {
        let Self { attempts_max, retry_delay, retry_delay_max, .. } = *self;
        Rule { attempts_max, retry_delay, retry_delay_max, ..Rule::default() }
    }

    /// The longest that a message may rest in all, from its first failure to its last delivery.
    pub(crate) fn longest(&self) -> Duration {
        let all = self.rules.iter().map(|on| on.rule).chain([self.usual()]);
        let rests = |rule: Rule| {
            // From some delivery on all rests are the longest.
            let doubled = rule.attempts_max.saturating_sub(1).min(32);
            let more = rule.attempts_max.saturating_sub(1) - doubled;
            let begun = (1..=doubled).fold(Duration::ZERO, |sum, attempts| sum.saturating_add(rule.rest(attempts)));
            begun.saturating_add(rule.retry_delay_max.saturating_mul(more))
        };
        all.map(rests).max().unwrap_or_default()
    }

    /// Most attempts that any rule grants.
    pub(crate) fn most_attempts(&self) -> u32 {
        self.rules.iter().map(|on| on.rule.attempts_max).fold(self.attempts_max, u32::max)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[test]
    fn the_first_rule_about_any_error_of_the_chain_holds() {
        let often = Rule { attempts_max: 9, ..Rule::default() };
        let recoverability = Recoverability::default().on::<Inner>(often).on::<Outer>(Rule::AT_ONCE);
        let found = |error: HandlerError| recoverability.rule(&error).0;
        assert_eq!(found(Outer(Inner).into()), often);
        assert_eq!(found(Inner.into()), often);
        assert_eq!(found(HandlerError::transient("text")), Rule::default());
        assert_eq!(recoverability.most_attempts(), 9);
        assert!(recoverability.rules[0].error().ends_with("::Inner"));
        let shown = format!("{recoverability:?}");
        assert!(shown.contains("Inner: Rule { in_place: true, attempts_max: 9"), "{shown}");
    }

    #[test]
    fn rests_are_doubled_up_to_the_longest() {
        let rests: Vec<u64> =
            [1, 2, 3, 9, 10, u32::MAX].map(|attempts| Rule::default().rest(attempts).as_secs()).into();
        assert_eq!(rests, [1, 2, 4, 256, 300, 300]);
        assert_eq!(Recoverability::default().longest(), Duration::from_secs(1 + 2 + 4 + 8));
        let days = Duration::from_secs(24 * 3600);
        let slow = Rule { attempts_max: 1001, retry_delay: days, retry_delay_max: days, ..Rule::default() };
        let is_text = |error: &(dyn Error + 'static)| error.to_string() == "slow";
        let recoverability = Recoverability::default().on_if("slow", is_text, slow);
        assert_eq!(recoverability.longest(), 1000 * days);
        assert_eq!(recoverability.rule(&HandlerError::transient("slow")), (slow, Some("slow")));
    }
}
