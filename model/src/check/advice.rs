//! What to do about what is broken.

use super::hush::PANICKED;

pub(super) const SET_ASIDE: &str = "nothing_is_set_aside";
pub(super) const STATE_BYTES: &str = "state_bytes_max";
pub(super) const RUNS_DIFFER: &str = "runs_do_not_differ";
pub(super) const REPLAYABLE: &str = "it_can_be_replayed";
pub(super) const CHECKABLE: &str = "it_can_be_checked";
pub(super) const ALL_SEEN: &str = "everything_is_seen";
pub(super) const COUNTABLE: &str = "there_are_few_messages";

/// For a handler that sends very many messages at once.
pub(super) const CROWD: &str = "let it send fewer in the check: a shorter list in the message, say. What holds for three \
                                holds for a thousand.";
/// For a message that a saga cannot read, though it has sent it.
pub(super) const UNREADABLE: &str = "what a saga sends to its own endpoint, or publishes, and handles itself comes back to \
                                     it. Mend the message or its `correlate`. If it is meant to be set aside, say \
                                     .may_set_aside().";

/// Advice for a broken sentence, after `steps`; `own`: one of the user's.
pub(super) fn on(claim: &str, seen: &str, steps: &[String], own: bool) -> &'static str {
    let panicked = steps.iter().any(|step| step.contains("the handler panicked"));
    match claim {
        _ if own && seen.contains("on a `None` value") => {
            "a sentence is asked in every world, also in those in which the first message has not been handled yet and \
             those in which the saga is complete: world.state(..) is None then. Say what holds there too: \
             .is_none_or(|state| ..)."
        }
        _ if own => {
            "messages may come in any order, more than once, and to several workers: find the step after which the \
             sentence no longer holds, and let the handler decide by its state what the message means there (or keep what \
             came too early in the state). If the order is not the handler's business, weaken the sentence."
        }
        "called_outside_once" => {
            "a handler may run more than once for one message, of which one run is saved. Put the call behind an outgoing \
             message (cx.send) to a handler of its own, and hand the service cx.idempotency_key(\"..\"), which is the same \
             at each run."
        }
        SET_ASIDE if panicked => {
            "the handler panics. A panic is an error like others: the message comes again, and is set aside when that does \
             not help. Mend it; if the message came before one that it needs, return a transient error or keep it in the \
             state; if it can never be handled, return HandlerError::permanent(..) and say .may_set_aside(). A timer, a \
             socket or a spawned task panics where there is no runtime, and in a check there is none: hide it behind a \
             service (Saga::needs, cx.get) and give the check a fake of it that is ready at once (.with(..))."
        }
        SET_ASIDE => {
            "a message became a dead letter; the step says why. If it came before one that it needs, let it start the saga \
             too (.starts::<M>()), or keep what came early in the state; if only time can mend it, return a transient \
             error. If it is meant to be set aside, say .may_set_aside()."
        }
        STATE_BYTES => {
            "state is loaded and saved with each message. Keep sums instead of lists, drop what is over, or complete the \
             saga (cx.complete())."
        }
        RUNS_DIFFER => {
            "a handler must make the same of the same message and state. Take the time from cx.now(), ids from \
             cx.idempotency_key(\"..\") or the message; use BTreeMap and BTreeSet, not HashMap and HashSet, in state and \
             messages; keep nothing in memory between runs."
        }
        CHECKABLE if seen.contains("no port") => {
            "the handler awaits something that the check cannot answer: a timer, a socket, a channel, a lock. Hide it \
             behind a service (Saga::needs, cx.get) and give the check a fake of it that is ready at once (.with(..))."
        }
        CHECKABLE if seen.contains("has given way") => {
            "the handler waits for something by asking again and again (a loop around yield_now, a flag, a clock), which \
             never comes here: nothing happens beside the handler. Hide it behind a service (Saga::needs, cx.get) and give \
             the check a fake of it that is ready at once (.with(..))."
        }
        CHECKABLE if seen.starts_with(PANICKED) => {
            "a panic in a handler or a sentence would be told as a story; this one came from elsewhere: a Drop, a Default or \
             a Serialize of a state or a service, say. If none of yours can panic, please report it with the check."
        }
        CHECKABLE if seen.contains("fit a mask") => {
            "too many workers hold the same message at the same time to be kept apart: take fewer workers, duplicates or \
             expiries."
        }
        ALL_SEEN => {
            "take fewer messages, workers or faults: two messages and one fault of each kind show most mistakes. With time \
             and memory (about 200 bytes for a world), allow more by .worlds_max(..). If a part is enough, say \
             .may_end_early()."
        }
        COUNTABLE => {
            "take fewer messages. If a saga sends to itself for ever (a reminder that sets the next one), give it an end in \
             the check: a number in the message or the state, or a service (.with(..)) that says when it is enough."
        }
        REPLAYABLE => {
            "the handlers do something else now, or the check has other messages or faults: run it without .replay(..)."
        }
        CHECKABLE => "mend what is said above; the check has not begun.",
        "every_run_ends" => {
            "workers can go on for ever without coming any further. Does a handler fail each time, whatever it is given?"
        }
        "ack_implies_done" | "complete_at_rest" => {
            "a message was acknowledged without an effect. If a rule of the saga drops it (Missing::Drop, \
             Completed::Drop), say .may_drop()."
        }
        _ => {
            "this is a promise of hapax's own, which no handler should be able to break: please report it with the story."
        }
    }
}
