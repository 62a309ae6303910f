//! How a check is said: what comes, what may go wrong, what must hold. What cannot be checked is refused before anything is gone through.

use std::{fmt, sync::Arc};

use hapax_core::{
    Handler, Message, Needs, Registry, Saga, Stateless,
    envelope::{Destination, Envelope},
    ids::{MessageId, TypeName},
    manager::{Passes, Ports},
    stateless,
};

use super::{
    outcome::Checked,
    plan::{self, Plan},
    run,
    sagas::{Sagas, Several, Subject, clash},
    watch::{Shared, watched},
    world::{Holds, World, sentence},
};
use crate::explore::{Budgets, MakeManager, Sentence};

/// The endpoint that the handlers under check are at, if nobody says otherwise.
const ENDPOINT: &str = "check";
/// Where replies go.
const REPLIES: &str = "replies";
/// Messages of the beginning at most. More of them make more worlds than anybody waits for.
const MESSAGES_MAX: usize = 8;

type Give<T> = Arc<dyn Fn(<T as Subject>::Managers) -> <T as Subject>::Managers + Send + Sync>;

/// A handler, its messages, what may go wrong, and what must hold all the same. See the [module](crate::check).
#[must_use = "a check does nothing before it is run"]
pub struct Check<T: Subject> {
    registries: T::Registries,
    endpoint: String,
    needs: Vec<Needs>,
    services: Vec<Give<T>>,
    /// What was said where it cannot be heard.
    misplaced: Option<&'static str>,
    pub(super) messages: Vec<Result<Arc<Envelope>, String>>,
    pub(super) after: Vec<(u8, TypeName)>,
    pub(super) workers: usize,
    pub(super) plan: Plan,
    pub(super) always: Vec<(&'static str, Sentence)>,
    pub(super) at_rest: Vec<(&'static str, Sentence)>,
    pub(super) may_drop: bool,
    pub(super) may_set_aside: bool,
    pub(super) worlds_max: usize,
    pub(super) may_end_early: bool,
    pub(super) state_bytes_max: Option<usize>,
    pub(super) together: bool,
}

impl Check<Stateless> {
    /// A check of a handler without state.
    pub fn handler<M: Message, H: Handler<M>>(handler: H) -> Self {
        Self::new(stateless(handler), vec![<H as Handler<M>>::needs()])
    }
}

impl<T: Saga> Check<T> {
    /// A check of the saga of `registry`: the very registry that an endpoint is given.
    pub fn saga(registry: Registry<T>) -> Self {
        Self::new(registry, vec![T::needs()])
    }
}

impl<T: Subject> Check<T> {
    /// Another saga of the same endpoint: what one sends to the endpoint, or publishes, and the other handles comes to it.
    /// To be said before [`with`](Self::with).
    pub fn and<U: Saga>(self, registry: Registry<U>) -> Check<Several<T, U>> {
        self.beside::<U>(registry, U::needs())
    }

    /// The same with a handler without state.
    pub fn and_handler<M: Message, H: Handler<M>>(self, handler: H) -> Check<Several<T, Stateless>> {
        self.beside::<Stateless>(stateless(handler), <H as Handler<M>>::needs())
    }

    fn beside<U: Saga>(self, registry: Registry<U>, needs: Needs) -> Check<Several<T, U>> {
        let misplaced = (!self.services.is_empty()).then_some("say .and(..) before .with(..)");
        let Self { registries, endpoint, needs: mut all, messages, after, workers, plan, always, at_rest, .. } = self;
        let Self { may_drop, may_set_aside, worlds_max, may_end_early, state_bytes_max, together, .. } = self;
        all.push(needs);
        Check {
            registries: (registries, registry),
            endpoint,
            needs: all,
            services: Vec::new(),
            misplaced: self.misplaced.or(misplaced),
            messages,
            after,
            workers,
            plan,
            always,
            at_rest,
            may_drop,
            may_set_aside,
            worlds_max,
            may_end_early,
            state_bytes_max,
            together,
        }
    }

    /// The endpoint's name, for sagas that send to it by its name. Default `check`; `send_local` and timeouts find it
    /// whatever it is called.
    pub fn endpoint(mut self, name: &str) -> Self {
        name.clone_into(&mut self.endpoint);
        self
    }

    fn new(registries: T::Registries, needs: Vec<Needs>) -> Self {
        Self {
            registries,
            endpoint: ENDPOINT.into(),
            needs,
            services: Vec::new(),
            misplaced: None,
            messages: Vec::new(),
            after: Vec::new(),
            workers: 2,
            plan: Plan::Quick,
            always: Vec::new(),
            at_rest: Vec::new(),
            may_drop: false,
            may_set_aside: false,
            worlds_max: plan::WORLDS_MAX,
            may_end_early: false,
            state_bytes_max: None,
            together: true,
        }
    }

    /// One more message. Each is queued once at the beginning, and may be taken at any moment after that, so in any
    /// order. Eight at most; two or three show most mistakes. Two that are equal are two messages; for copies of one there
    /// is [`duplicates`](Self::duplicates).
    pub fn message<M: Message>(mut self, message: M) -> Self {
        let number = self.messages.len();
        self.messages.push(envelope(number, &message));
        self
    }

    /// More messages of one type.
    pub fn messages<M: Message>(self, messages: impl IntoIterator<Item = M>) -> Self {
        messages.into_iter().fold(self, Self::message)
    }

    /// One more message, which the first message of type `Cause` causes: it is queued when that one has left. An answer of
    /// another saga, say.
    pub fn after<Cause: Message, M: Message>(mut self, message: M) -> Self {
        let number = self.messages.len();
        let cause = TypeName::parse(Cause::TYPE).map_err(|e| e.to_string());
        self.after.extend(u8::try_from(number).ok().zip(cause.clone().ok()));
        self.messages.push(cause.and_then(|_| envelope(number, &message)));
        self
    }

    /// A service that handlers [`get`](hapax_core::Context::get). All runs of all workers share it, and it must answer
    /// the same to the same: a fake without a memory, with an [`External`](super::External) for what it would do.
    pub fn with<C: Send + Sync + 'static>(mut self, service: C) -> Self {
        let service = Arc::new(service);
        self.services.push(Arc::new(move |managers| T::with(managers, &service)));
        self
    }

    /// So many workers at most at one time. Default 2, which is what a lost race takes; four at most.
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// One thing may go wrong in each run: a crash, an unknown outcome or a copy. The default; below a second for two
    /// messages.
    pub const fn quick(mut self) -> Self {
        self.plan = Plan::Quick;
        self
    }

    /// Several kinds of faults in one run, among them slow writes and lost leases. About a second for two messages of one
    /// saga instance where the explorer is optimised, and twenty where it is not; three messages are more than the
    /// [worlds](Self::worlds_max) that a check goes through without being told to.
    pub const fn thorough(mut self) -> Self {
        self.plan = Plan::Thorough;
        self
    }

    /// So many workers may stop for good, between any two calls of a port or within one. This and the following replace
    /// the presets: all that is asked for may go wrong in one run. Seven of a kind at most.
    pub fn crashes(mut self, crashes: u8) -> Self {
        self.plan.own().crashes = crashes;
        self
    }

    /// So many calls may be carried out and fail all the same, so that the caller cannot tell.
    pub fn unknown(mut self, unknown: u8) -> Self {
        self.plan.own().unknown = unknown;
        self
    }

    /// So many calls may fail without being carried out.
    pub fn refused(mut self, refused: u8) -> Self {
        self.plan.own().refused = refused;
        self
    }

    /// So many messages may be sent again by their producer.
    pub fn duplicates(mut self, duplicates: u8) -> Self {
        self.plan.own().duplicates = duplicates;
        self
    }

    /// So often the sweeper may pass while workers work. At rest it passes in any case.
    pub fn sweeps(mut self, sweeps: u8) -> Self {
        self.plan.own().sweeps = sweeps;
        self
    }

    /// What may go wrong, with the rarer kinds.
    pub const fn faults(mut self, faults: Budgets) -> Self {
        self.plan = Plan::Own(faults);
        self
    }

    /// The dedup entries are in a store of their own, so that nothing is saved together with them.
    pub const fn two_stores(mut self) -> Self {
        self.together = false;
        self
    }

    /// `says` holds in every world. It may answer a `bool` or a `Result<(), String>`, or assert.
    pub fn always<R: Holds>(
        mut self,
        name: &'static str,
        says: impl Fn(&World<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        self.always.push((name, sentence(says)));
        self
    }

    /// `says` holds when everything is over: no message waits, no worker works, the outbox is empty.
    pub fn at_rest<R: Holds>(
        mut self,
        name: &'static str,
        says: impl Fn(&World<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        self.at_rest.push((name, sentence(says)));
        self
    }

    /// A rule of the saga may drop messages. Without this, one that is acknowledged without an effect is a failure.
    pub const fn may_drop(mut self) -> Self {
        self.may_drop = true;
        self
    }

    /// Messages may end as dead letters. Without this, one that does is a failure.
    pub const fn may_set_aside(mut self) -> Self {
        self.may_set_aside = true;
        self
    }

    /// No state becomes larger than `bytes`, in any world nor when the messages come again and again under new ids.
    pub const fn state_bytes_max(mut self, bytes: usize) -> Self {
        self.state_bytes_max = Some(bytes);
        self
    }

    /// So many worlds at most in each exploration. Default one million, about 200 MB. A check that meets more ends there,
    /// which is a failure: it has not seen everything.
    pub const fn worlds_max(mut self, worlds: usize) -> Self {
        self.worlds_max = worlds;
        self
    }

    /// A check that meets too many worlds may end without having seen all of them. It says so, as a warning.
    pub const fn may_end_early(mut self) -> Self {
        self.may_end_early = true;
        self
    }

    /// Goes through everything that can happen and prints what was seen.
    ///
    /// # Panics
    /// With the story, when something is broken; when there is nothing to check; and when there is more than can be gone
    /// through.
    #[track_caller]
    pub fn run(self) {
        let checked = self.report();
        checked.holds();
        println!("{checked}");
    }

    /// As [`run`](Self::run), and gives what was seen.
    #[must_use = "a failure is told in it: see `failure`, or say .holds()"]
    pub fn report(self) -> Checked {
        run::run(self)
    }

    /// Goes the way of a replay line once more, without looking anywhere else: a story that is kept as a test, if
    /// [`holds`](Checked::holds) comes after it. The check must have the faults that stand before the line.
    #[must_use = "a failure is told in it: see `failure`, or say .holds()"]
    pub fn replay(self, line: &str) -> Checked {
        run::replay(self, line)
    }

    /// Why it cannot be run.
    pub(super) fn refusal(&self) -> Option<String> {
        let managers = match self.managers(&crate::explore::ports_of_nothing()) {
            Ok(managers) => {
                let missing = self.needs.iter().find_map(|needs| T::missing(&managers, needs));
                let missing = missing.map(|name| format!("the handler needs a {name}: add .with(..)"));
                missing.or_else(|| clash(&T::all(managers)))
            }
            Err(why) => Some(why),
        };
        let managers = self.misplaced.map(str::to_owned).or(managers);
        let message = self.messages.iter().find_map(|message| message.as_ref().err().cloned());
        let count = match self.messages.len() {
            0 => Some("there is no message: add .message(..)".to_owned()),
            1..=MESSAGES_MAX => None,
            more => Some(format!(
                "{more} messages are too many: {MESSAGES_MAX} at most; two or three show most mistakes, and what has \
                 nothing to do with each other belongs into checks of its own"
            )),
        };
        let trial = self.plan.trials(self.workers).iter().find_map(plan::refusal);
        managers.or(message).or(count).or(trial)
    }

    fn managers(&self, ports: &Ports) -> Result<T::Managers, String> {
        let endpoint = self.endpoint.parse().map_err(|e| format!("{e}"))?;
        let managers = T::managers(&self.registries, &endpoint, ports)?;
        Ok(self.services.iter().fold(managers, |managers, give| give(managers)))
    }

    /// Makes managers, again and again; `messages` are those of the beginning, and `notes` is told what is seen.
    pub(super) fn make(self, messages: &Arc<Vec<Arc<Envelope>>>, notes: &Shared) -> MakeManager {
        let (messages, notes) = (messages.clone(), notes.clone());
        Arc::new(move |ports, _| {
            let ports = Ports { stores: watched(&ports.stores, &messages, &notes), ..ports };
            let managers = self.managers(&ports).expect("they could be made before");
            Arc::new(Sagas::new(T::all(managers), &notes, self.may_set_aside)) as Arc<dyn Passes>
        })
    }
}

impl<T: Subject> fmt::Debug for Check<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("registries", &self.registries)
            .field("messages", &self.messages.len())
            .field("workers", &self.workers)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// `message` as it travels, under an id that tells its number.
fn envelope<M: Message>(number: usize, message: &M) -> Result<Arc<Envelope>, String> {
    let body = serde_json::to_vec(message).map_err(|e| format!("{} cannot be written as JSON: {e}", M::TYPE))?;
    let message_type = M::TYPE.parse().map_err(|e| format!("{}: {e}", M::TYPE))?;
    let mut envelope = Envelope::new(id(&format!("m{number}")), message_type, body);
    envelope.schema = M::SCHEMA;
    envelope.reply_to = Some(Destination::Endpoint(REPLIES.parse().expect("a well-formed name")));
    Ok(Arc::new(envelope))
}

pub(super) fn id(text: &str) -> MessageId {
    MessageId::parse(text).expect("a well-formed id")
}
