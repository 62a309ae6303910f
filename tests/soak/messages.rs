//! What goes through the endpoints, and what they keep of it. An entity's state alone tells what it has handled and in which order; each message
//! that leaves tells at which place its cause was handled.

use std::time::Duration;

use hapax::{Context, Correlation, Handle, HandlerError, Message, Saga};
use serde::{Deserialize, Serialize};

pub(crate) const FRONT: &str = "front";
pub(crate) const BACK: &str = "back";
/// No endpoint of hapax: what comes here is looked at as it comes.
pub(crate) const SINK: &str = "sink";

/// One in so many is held back on its way to the second endpoint, for this long.
const HELD_BACK: u32 = 10;
pub(crate) const HELD_BACK_FOR: Duration = Duration::from_millis(400);
/// One in so many can never be handled, and must be found among the dead letters.
const RUINED: u32 = 499;
/// So that some key comes to it soon.
const KEYS_APART: u32 = 31;
/// One in so many is sent twice.
pub(crate) const DOUBLED: u32 = 20;

/// One message of the load: one in the row of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) key: u32,
    pub(crate) number: u32,
}

impl Step {
    pub(crate) const fn is_ruined(self) -> bool {
        (self.key * KEYS_APART + self.number) % RUINED == RUINED - 1
    }

    const fn is_held_back(self) -> bool {
        (self.key + self.number).is_multiple_of(HELD_BACK)
    }

    pub(crate) const fn is_doubled(self) -> bool {
        (self.key + self.number) % DOUBLED == 7
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Add(pub(crate) Step);

impl Message for Add {
    const TYPE: &'static str = "soak.add";
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(crate) step: Step,
    /// How many steps of the key the first endpoint had handled by then, this one included.
    pub(crate) place: u32,
    /// Of the next version alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) remark: String,
}

impl Message for Added {
    const TYPE: &'static str = "soak.added";
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) step: Step,
    /// At each endpoint.
    pub(crate) places: [u32; 2],
}

impl Message for Told {
    const TYPE: &'static str = "soak.told";
}

/// The numbers that an entity has handled, in that order: runs of consecutive ones by their first and last, so that it stays small.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handled {
    runs: Vec<(u32, u32)>,
    count: u32,
}

impl Handled {
    /// Answers the place.
    fn push(&mut self, number: u32) -> u32 {
        match self.runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => self.runs.push((number, number)),
        }
        self.count += 1;
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|(first, last)| *first..=*last)
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }
}

/// Which version of the program a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    Today,
    /// Its messages and states have a field more.
    Next,
}

/// What handlers have to know of their worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) version: Version,
    /// Whether anything here keeps a message until it is due.
    pub(crate) holds_back: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub(crate) handled: Handled,
    /// Of the next version alone: who is of today does not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
}

impl Saga for Ledger {
    const NAME: &'static str = "ledger";
}

impl Ledger {
    fn remark(&mut self, cx: &Context) -> Result<String, HandlerError> {
        let is_next = cx.get::<Setting>()?.version == Version::Next;
        self.remark = is_next.then(|| format!("at {}", self.handled.count));
        Ok(self.remark.clone().unwrap_or_default())
    }
}

impl Handle<Add> for Ledger {
    fn correlate(add: &Add) -> Correlation<'_> {
        add.0.key.into()
    }

    async fn handle(&mut self, Add(step): Add, cx: &mut Context) -> Result<(), HandlerError> {
        if step.is_ruined() {
            return Err(HandlerError::permanent("this step cannot be handled"));
        }
        let place = self.handled.push(step.number);
        let added = Added { step, place, remark: self.remark(cx)? };
        let holds_back = cx.get::<Setting>()?.holds_back;
        if holds_back && step.is_held_back() { cx.send_after(HELD_BACK_FOR, BACK, added) } else { cx.send(BACK, added) }
    }
}

impl Handle<Added> for Ledger {
    fn correlate(added: &Added) -> Correlation<'_> {
        added.step.key.into()
    }

    async fn handle(&mut self, added: Added, cx: &mut Context) -> Result<(), HandlerError> {
        let place = self.handled.push(added.step.number);
        self.remark(cx)?;
        cx.send(SINK, Told { step: added.step, places: [added.place, place] })
    }
}
