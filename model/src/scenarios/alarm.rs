//! A saga that sets a timeout, and may cancel it.

use std::{sync::Arc, time::Duration};

use hapax_core::{
    Context, Correlation, Handle, HandlerError, Message, Registry, Saga, SagaManager,
    codec::{Codec, FRAME_BYTES},
    entity::Entity,
    envelope::Envelope,
    ids::MessageId,
    manager::Passes,
};
use serde::{Deserialize, Serialize};

use crate::explore::{MakeManager, Scenario, Sentence};

/// Sets the alarm.
#[derive(Debug, Serialize, Deserialize)]
pub struct Set {}

/// Sets the alarm, and cancels it in the same run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Waver {}

/// Sets two alarms.
#[derive(Debug, Serialize, Deserialize)]
pub struct SetTwo {}

/// Cancels it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stop {}

/// The alarm itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ring {}

impl Message for Set {
    const TYPE: &'static str = "alarm.set";
}

impl Message for Waver {
    const TYPE: &'static str = "alarm.waver";
}

impl Message for SetTwo {
    const TYPE: &'static str = "alarm.set_two";
}

impl Message for Stop {
    const TYPE: &'static str = "alarm.stop";
}

impl Message for Ring {
    const TYPE: &'static str = "alarm.ring";
}

/// Its state.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Alarm {
    /// Id of the timeout that was set.
    pub set: Option<String>,
    /// How often it has rung.
    pub rung: u8,
    /// It was cancelled.
    pub stopped: bool,
}

impl Saga for Alarm {
    const NAME: &'static str = "alarm";
}

impl Handle<Set> for Alarm {
    fn correlate(_: &Set) -> Correlation<'_> {
        Correlation::of("alarm", "a")
    }

    async fn handle(&mut self, _: Set, cx: &mut Context) -> Result<(), HandlerError> {
        if !self.stopped {
            self.set = Some(cx.timeout(Duration::from_secs(60), Ring {})?.to_string());
        }
        Ok(())
    }
}

impl Handle<Waver> for Alarm {
    fn correlate(_: &Waver) -> Correlation<'_> {
        Correlation::of("alarm", "a")
    }

    async fn handle(&mut self, _: Waver, cx: &mut Context) -> Result<(), HandlerError> {
        let id = cx.timeout(Duration::from_secs(60), Ring {})?;
        cx.cancel_timeout(&id);
        Ok(())
    }
}

impl Handle<SetTwo> for Alarm {
    fn correlate(_: &SetTwo) -> Correlation<'_> {
        Correlation::of("alarm", "a")
    }

    async fn handle(&mut self, _: SetTwo, cx: &mut Context) -> Result<(), HandlerError> {
        for seconds in [60, 120] {
            cx.timeout(Duration::from_secs(seconds), Ring {})?;
        }
        Ok(())
    }
}

impl Handle<Stop> for Alarm {
    fn correlate(_: &Stop) -> Correlation<'_> {
        Correlation::of("alarm", "a")
    }

    async fn handle(&mut self, _: Stop, cx: &mut Context) -> Result<(), HandlerError> {
        self.stopped = true;
        if let Some(id) = &self.set {
            cx.cancel_timeout(&MessageId::parse(id).map_err(HandlerError::permanent)?);
        }
        Ok(())
    }
}

impl Handle<Ring> for Alarm {
    fn correlate(_: &Ring) -> Correlation<'_> {
        Correlation::of("alarm", "a")
    }

    async fn handle(&mut self, _: Ring, _: &mut Context) -> Result<(), HandlerError> {
        self.rung += 1;
        Ok(())
    }
}

fn envelope<M: Message>(id: &str, message: &M) -> Arc<Envelope> {
    let body = serde_json::to_vec(message).expect("it has a JSON form");
    let id = MessageId::parse(id).expect("an id");
    Arc::new(Envelope::new(id, M::TYPE.parse().expect("a type"), body))
}

fn scenario_of(registry: fn() -> Registry<Alarm>, messages: Vec<Arc<Envelope>>, tasks: usize) -> Scenario {
    let manager: MakeManager = Arc::new(move |ports, limits| {
        let endpoint = "upper".parse().expect("a name");
        let manager = SagaManager::new(&endpoint, registry(), ports, limits, Codec::Json).expect("a registry");
        Arc::new(manager) as Arc<dyn Passes>
    });
    Scenario { tasks, attempts_max: 1, may_set_aside: Some(Vec::new()), ..Scenario::new(manager, messages) }
}

/// An alarm that is set and, if `stopped`, cancelled sooner or later, by `tasks` workers at most.
///
/// # Panics
/// Never: its names are well formed.
#[must_use]
pub fn scenario(stopped: bool, tasks: usize) -> Scenario {
    let mut messages = vec![envelope("set", &Set {})];
    messages.extend(stopped.then(|| envelope("stop", &Stop {})));
    scenario_of(|| Registry::new().starts::<Set>().starts::<Stop>().handles::<Ring>(), messages, tasks)
}

/// An alarm that is set and cancelled, where what cancels it may not start the saga: it waits for what sets it.
///
/// # Panics
/// Never: its names are well formed.
#[must_use]
pub fn early(tasks: usize) -> Scenario {
    let messages = vec![envelope("set", &Set {}), envelope("stop", &Stop {})];
    scenario_of(|| Registry::new().starts::<Set>().handles::<Stop>().handles::<Ring>(), messages, tasks)
}

/// How often the alarm of each entity has rung.
fn rung(entity: &Entity) -> Option<u8> {
    let json = entity.state.get(FRAME_BYTES..)?;
    serde_json::from_slice::<Alarm>(json).ok().map(|alarm| alarm.rung)
}

/// An alarm that is set and cancelled in one run, and never rings.
///
/// # Panics
/// Never: its names are well formed.
#[must_use]
pub fn at_once(tasks: usize) -> Scenario {
    let messages = vec![envelope("waver", &Waver {})];
    let never: Sentence = Arc::new(|view| match view.entities.iter().find_map(|(_, entity)| rung(entity)) {
        Some(1..) => Err("it rings, and its timeout was cancelled in the run that had set it".into()),
        _ => Ok(()),
    });
    Scenario {
        always: vec![("timeout_only_while_live", never)],
        ..scenario_of(|| Registry::new().starts::<Waver>().handles::<Ring>(), messages, tasks)
    }
}

/// Two alarms that are set in one run, and both ring.
///
/// # Panics
/// Never: its names are well formed.
#[must_use]
pub fn both(tasks: usize) -> Scenario {
    let messages = vec![envelope("set_two", &SetTwo {})];
    let twice: Sentence = Arc::new(|view| match view.entities.iter().find_map(|(_, entity)| rung(entity)) {
        Some(2) => Ok(()),
        other => Err(format!("of two timeouts, so many have rung: {other:?}")),
    });
    Scenario {
        at_rest: vec![("complete_at_rest", twice)],
        ..scenario_of(|| Registry::new().starts::<SetTwo>().handles::<Ring>(), messages, tasks)
    }
}
