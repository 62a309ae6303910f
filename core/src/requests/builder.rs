//! How a client is put together. What is missing or could not work is found at `start`, before anything is asked.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::watch;

use super::{RequestClient, Shared, answers::Answers, waiting::Waiting};
use crate::{
    codec::Codec,
    endpoint::{Error, ErrorKind, check_timers},
    ids::EndpointName,
    ports::{DeadLetters, Transport},
    seal::Seals,
    trace::{Spans, Traces},
};

/// Bounds and waits of a client. Every field has a default with its reason.
#[derive(Debug, Clone, Copy)]
pub struct RequestSettings {
    /// Requests that wait at a time, at most; beyond it they are refused, not queued. Default 1024, as many as an endpoint holds by
    /// default: more would wait there. Each is in memory as long as it waits.
    pub waiting_max: usize,
    /// How long to wait for an answer before the request is sent again; doubled for each further time, and shortened at random by up
    /// to half, so that many do not come at once. Default 500 ms: twice what a durable queue in a file takes at most to find a message
    /// of another process. A request that is sent again while it is handled costs the endpoint a look, and perhaps a second answer.
    pub ask_again_delay: Duration,
    /// Longest such wait. Default 10 s: so long an answer that was lost is missed at most.
    pub ask_again_delay_max: Duration,
}

impl Default for RequestSettings {
    fn default() -> Self {
        Self {
            waiting_max: 1024,
            ask_again_delay: Duration::from_millis(500),
            ask_again_delay_max: Duration::from_secs(10),
        }
    }
}

impl RequestSettings {
    /// The wait after a request was sent so many `times`.
    pub(super) fn rest(&self, times: u32) -> Duration {
        const DOUBLINGS_MAX: u32 = 20;
        /// Without any wait the transport would be asked without end.
        const REST_MIN: Duration = Duration::from_millis(1);
        let doublings = times.saturating_sub(1).min(DOUBLINGS_MAX);
        let whole = self.ask_again_delay.saturating_mul(1 << doublings).min(self.ask_again_delay_max);
        whole.mul_f64(1.0 - fastrand::f64() / 2.0).max(REST_MIN)
    }
}

/// Puts a client together.
#[must_use]
pub struct RequestClientBuilder {
    name: String,
    transport: Option<Arc<dyn Transport>>,
    dead_letters: Option<Arc<dyn DeadLetters>>,
    settings: RequestSettings,
    codec: Codec,
    seals: Seals,
    traces: Option<Arc<dyn Traces>>,
}

impl RequestClientBuilder {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            transport: None,
            dead_letters: None,
            settings: RequestSettings::default(),
            codec: Codec::default(),
            seals: Seals::default(),
            traces: None,
        }
    }

    /// Where requests go and answers come from: the one that the endpoints use.
    pub fn transport(mut self, transport: impl Transport + 'static) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Where the endpoints that are asked set aside what they cannot handle: their store, as a rule. The client looks there each time
    /// before it asks again, so that a request that was set aside fails with [`SetAside`](super::RequestError::SetAside) or
    /// [`KeyReused`](super::RequestError::KeyReused) and not at its deadline. Without it, it does not learn of that.
    ///
    /// What it finds is as late as [`ask_again_delay`](RequestSettings::ask_again_delay). A letter that was there before this request
    /// was asked, by the clocks of endpoint and client, is believed at the deadline only: the request may be at work again.
    pub fn dead_letters(mut self, dead_letters: impl DeadLetters + 'static) -> Self {
        self.dead_letters = Some(Arc::new(dead_letters));
        self
    }

    /// Bounds and waits.
    pub fn settings(mut self, settings: RequestSettings) -> Self {
        self.settings = settings;
        self
    }

    /// How requests are encoded. The same request in another codec is another body, which is refused under the same key.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// With what requests are sealed, and answers opened. A request that is asked again under its key may be sealed anew.
    pub fn seals(mut self, seals: impl Into<Seals>) -> Self {
        self.seals = seals.into();
        self
    }

    /// Who joins its spans to the traces of others, as those of an [endpoint](crate::endpoint::EndpointBuilder::traces): a request that has
    /// no trace context of its own carries that of its sending.
    pub fn traces(mut self, traces: impl Traces + 'static) -> Self {
        self.traces = Some(Arc::new(traces));
        self
    }

    /// Connects, and receives answers in a task of its own until the client is stopped or dropped.
    ///
    /// # Errors
    /// [`Error`] that names what is missing, and the remedy, or says that the transport cannot be reached.
    pub async fn start(self) -> Result<RequestClient, Error> {
        let misconfigured = |why: String| Error::new(ErrorKind::Misconfigured, why);
        let name = EndpointName::parse(self.name.as_str()).map_err(|e| misconfigured(e.to_string()))?;
        let transport = self
            .transport
            .ok_or_else(|| misconfigured(format!("client {name} has no transport; add .transport(..)")))?;
        if self.settings.waiting_max == 0 {
            return Err(misconfigured(format!("client {name}: waiting_max is 0, so nothing could be asked; raise it")));
        }
        self.seals.check().map_err(|why| misconfigured(format!("client {name}: {why}")))?;
        check_timers().map_err(|why| misconfigured(format!("client {name}: {why}")))?;
        let connected = transport.connect(&name, &[]).await.map_err(|e| {
            let to = transport.capabilities().name;
            Error::new(ErrorKind::Transport, format!("client {name} cannot connect to {to}")).caused_by(e)
        })?;
        let waiting = Arc::new(Waiting::new(self.settings.waiting_max));
        let (stop, stopped) = watch::channel(false);
        let answers =
            Answers { name: name.clone(), receiver: connected.receiver, waiting: waiting.clone(), stop: stopped };
        let task = tokio::spawn(answers.run());
        Ok(RequestClient(Arc::new(Shared {
            name,
            dispatcher: connected.dispatcher,
            dead_letters: self.dead_letters,
            codec: self.codec,
            seals: self.seals,
            spans: Spans::new(transport.capabilities().name, self.traces),
            settings: self.settings,
            waiting,
            stop,
            task: Mutex::new(Some(task)),
        })))
    }
}

impl fmt::Debug for RequestClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestClientBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
