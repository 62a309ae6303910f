//! What a user's sentence may look at: what can be seen from outside, in the user's own types.

use std::{
    any::Any,
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use hapax_core::{Message, Saga, codec::FRAME_BYTES, entity::Entity};

use crate::explore::{Sentence, View};

/// What can be seen from outside at one moment: the sagas that are stored, and the messages that have left.
#[derive(Debug)]
pub struct World<'a> {
    view: &'a View<'a>,
}

impl<'a> World<'a> {
    pub(super) const fn new(view: &'a View<'a>) -> Self {
        Self { view }
    }

    /// The state of the saga instance with this correlation value; `None`: there is none, or it is complete.
    ///
    /// # Panics
    /// When what is stored is no `T`.
    #[must_use]
    pub fn state<T: Saga>(&self, key: &str) -> Option<T> {
        let entity = self.entity::<T>(key)?;
        let json = entity.state.get(FRAME_BYTES..).filter(|_| !entity.completed)?;
        let state = serde_json::from_slice(json);
        Some(state.unwrap_or_else(|e| panic!("the state of {} is no {}: {e}", T::NAME, std::any::type_name::<T>())))
    }

    /// Whether the saga instance with this correlation value has been completed.
    #[must_use]
    pub fn is_complete<T: Saga>(&self, key: &str) -> bool {
        self.entity::<T>(key).is_some_and(|entity| entity.completed)
    }

    /// Messages of type `M` that have left, each once.
    ///
    /// # Panics
    /// When the body of one is no `M`.
    #[must_use]
    pub fn sent<M: Message>(&self) -> Vec<M> {
        let all = self.view.sent.iter().map(|sent| &sent.envelope);
        let of_type = all.filter(|envelope| envelope.message_type.as_str() == M::TYPE);
        of_type
            .map(|envelope| {
                let body = serde_json::from_slice(&envelope.body);
                body.unwrap_or_else(|e| panic!("the body of {} is no {}: {e}", M::TYPE, std::any::type_name::<M>()))
            })
            .collect()
    }

    /// How many messages have been set aside as dead letters.
    #[must_use]
    pub fn set_aside(&self) -> usize {
        self.view.letters.len()
    }

    /// Bytes of the largest state.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.view.entities.iter().map(|(_, entity)| entity.state.len()).max().unwrap_or_default()
    }

    fn entity<T: Saga>(&self, key: &str) -> Option<&'a Entity> {
        let of = |of: &&(&hapax_core::ids::EntityKey, &'a Entity)| {
            of.0.scope().saga.as_str() == T::NAME && of.0.key().as_str() == key
        };
        self.view.entities.iter().find(of).map(|(_, entity)| *entity)
    }

    /// All of it, for people.
    fn text(&self) -> String {
        let mut text = String::new();
        for (key, entity) in &self.view.entities {
            let state = match entity.completed {
                true => "complete".into(),
                false => String::from_utf8_lossy(entity.state.get(FRAME_BYTES..).unwrap_or_default()),
            };
            let _ = write!(text, "{} {} is {state}; ", key.scope().saga, key.key());
        }
        let sent = self
            .view
            .sent
            .iter()
            .map(|sent| format!("{} {}", sent.envelope.message_type, String::from_utf8_lossy(&sent.envelope.body)));
        let sent: Vec<String> = sent.collect();
        let _ = match sent.is_empty() {
            true => write!(text, "nothing has left"),
            false => write!(text, "left: {}", sent.join(", ")),
        };
        text
    }
}

/// What a sentence about a [`World`] may answer: a `bool`, a `Result` that says what is wrong, or nothing if it asserts.
pub trait Holds {
    /// `Err` says what is wrong.
    ///
    /// # Errors
    /// When it does not hold.
    fn holds(self) -> Result<(), String>;
}

impl Holds for bool {
    fn holds(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("it is false".into()) }
    }
}

impl Holds for Result<(), String> {
    fn holds(self) -> Result<(), String> {
        self
    }
}

impl Holds for () {
    fn holds(self) -> Result<(), String> {
        Ok(())
    }
}

/// The user's sentence, as the explorer takes it. An assertion that fails in it is an answer, and no end of the check.
pub(super) fn sentence<R: Holds>(says: impl Fn(&World<'_>) -> R + Send + Sync + 'static) -> Sentence {
    Arc::new(move |view| {
        let world = World::new(view);
        let holds = catch_unwind(AssertUnwindSafe(|| says(&world).holds()));
        let holds = holds.unwrap_or_else(|panic| Err(text_of(&*panic).to_owned()));
        holds.map_err(|why| format!("{why}; {}", world.text()))
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}
