//! A saga that sets a timeout, and may cancel it.

use std::{sync::Arc, time::Duration};

use hapax_core::{
    Context, Correlation, Handle, HandlerError, Message, Registry, Saga, SagaManager, codec::Codec, envelope::Envelope,
    ids::MessageId, manager::Passes,
};
use serde::{Deserialize, Serialize};

use crate::explore::{MakeManager, Scenario};

/// Sets the alarm.
#[derive(Debug, Serialize, Deserialize)]
pub struct Set {}

/// Cancels it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stop {}

/// The alarm itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ring {}

impl Message for Set {
    const TYPE: &'static str = "alarm.set";
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
    /// It has rung.
    pub rung: bool,
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
        self.rung = true;
        Ok(())
    }
}

fn envelope<M: Message>(id: &str, message: &M) -> Arc<Envelope> {
    let body = serde_json::to_vec(message).expect("it has a JSON form");
    let id = MessageId::parse(id).expect("an id");
    Arc::new(Envelope::new(id, M::TYPE.parse().expect("a type"), body))
}

/// An alarm that is set and, if `stopped`, cancelled sooner or later, by `tasks` workers at most.
///
/// # Panics
/// Never: its names are well formed.
#[must_use]
pub fn scenario(stopped: bool, tasks: usize) -> Scenario {
    let manager: MakeManager = Arc::new(|ports, limits| {
        let registry = Registry::<Alarm>::new().starts::<Set>().starts::<Stop>().handles::<Ring>();
        let endpoint = "upper".parse().expect("a name");
        let manager = SagaManager::new(&endpoint, registry, ports, limits, Codec::Json).expect("a registry");
        Arc::new(manager) as Arc<dyn Passes>
    });
    let mut messages = vec![envelope("set", &Set {})];
    messages.extend(stopped.then(|| envelope("stop", &Stop {})));
    Scenario { tasks, deliveries_max: 1, may_set_aside: Some(Vec::new()), ..Scenario::new(manager, messages) }
}
