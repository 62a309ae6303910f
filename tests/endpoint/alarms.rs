//! A saga that rings at its times, a transport that holds back little, and a schedule with troubles.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, MessageId, Saga, Sender,
    codec::Codec,
    endpoint::EndpointBuilder,
    envelope::{Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delays, DispatchError, Dispatcher, Due, ErrorKind, Next, Receipt, Refused, Schedule,
        ScheduleCapabilities, StoreError, Take, Transport, TransportCapabilities, TransportError,
    },
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

use crate::work::settings;

pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// An endpoint to which nothing goes.
pub(super) const GONE: &str = "gone";
/// What a look into a schedule, or a clock that is rounded, may make late.
pub(super) const LATE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) key: String,
    /// Seconds until it rings, and until the note comes.
    pub(super) rings: u64,
    pub(super) notes: u64,
    /// What the note says.
    pub(super) says: String,
}

impl Message for Ask {
    const TYPE: &'static str = "alarm.ask";
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ring {
    pub(super) key: String,
}

impl Message for Ring {
    const TYPE: &'static str = "alarm.ring";
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) key: String,
    pub(super) says: String,
}

impl Message for Note {
    const TYPE: &'static str = "alarm.note";
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Quiet {
    pub(super) key: String,
}

impl Message for Quiet {
    const TYPE: &'static str = "alarm.quiet";
}

/// Rings once, and again with a note; or not at all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Alarm {
    pub(super) timeout: Option<String>,
}

impl Saga for Alarm {
    const NAME: &'static str = "alarm";
}

impl Handle<Ask> for Alarm {
    fn correlate(ask: &Ask) -> Correlation<'_> {
        Correlation::of("key", &ask.key)
    }

    async fn handle(&mut self, ask: Ask, cx: &mut Context) -> Result<(), HandlerError> {
        let ring = cx.timeout(Duration::from_secs(ask.rings), Ring { key: ask.key.clone() })?;
        self.timeout = Some(ring.to_string());
        cx.send_after(Duration::from_secs(ask.notes), "work", Note { key: ask.key, says: ask.says })
    }
}

impl Handle<Ring> for Alarm {
    fn correlate(ring: &Ring) -> Correlation<'_> {
        Correlation::of("key", &ring.key)
    }

    async fn handle(&mut self, ring: Ring, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Heard>()?.hear(format!("{} rings", ring.key));
        Ok(())
    }
}

impl Handle<Note> for Alarm {
    fn correlate(note: &Note) -> Correlation<'_> {
        Correlation::of("key", &note.key)
    }

    async fn handle(&mut self, note: Note, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Heard>()?.hear(format!("{} notes", note.key));
        Ok(())
    }
}

impl Handle<Quiet> for Alarm {
    fn correlate(quiet: &Quiet) -> Correlation<'_> {
        Correlation::of("key", &quiet.key)
    }

    async fn handle(&mut self, _: Quiet, cx: &mut Context) -> Result<(), HandlerError> {
        if let Some(timeout) = self.timeout.take() {
            cx.cancel_timeout(&MessageId::parse(&timeout).map_err(HandlerError::permanent)?);
        }
        Ok(())
    }
}

/// What was handled, and when.
#[derive(Debug, Clone)]
pub(super) struct Heard(pub(super) Instant, pub(super) Arc<Mutex<Vec<(String, Duration)>>>);

impl Heard {
    pub(super) fn new() -> Self {
        Self(Instant::now(), Arc::default())
    }

    pub(super) fn hear(&self, what: String) {
        self.1.lock().unwrap().push((what, self.0.elapsed()));
    }

    pub(super) fn all(&self) -> Vec<(String, Duration)> {
        self.1.lock().unwrap().clone()
    }

    /// Each of these was heard once, at its time.
    #[track_caller]
    pub(super) fn assert(&self, expected: &[(&str, Duration)], late: Duration) {
        let heard = self.all();
        assert_eq!(heard.len(), expected.len(), "{heard:?}");
        for ((what, at), (expected, due)) in heard.iter().zip(expected) {
            assert_eq!(what, expected, "{heard:?}");
            assert!(*at + LATE >= *due && *at <= *due + late, "{what} at {at:?}, due at {due:?}");
        }
    }
}

/// A hub that holds nothing back for longer than it says, in paused time: what is due later is refused for good.
#[derive(Debug, Clone)]
pub(super) struct Short {
    pub(super) hub: InProcess,
    pub(super) delays: Delays,
    pub(super) begin: (Timestamp, Instant),
    /// Due times are told by the wall clock, which goes on by what the test takes.
    pub(super) wall: std::time::Instant,
    pub(super) away: Arc<AtomicU32>,
    /// How often it was tried to send to [`GONE`].
    pub(super) gone: Arc<AtomicU32>,
    /// Messages with a due time, in the order in which they were sent.
    pub(super) sent: Arc<Mutex<Vec<MessageId>>>,
}

impl Short {
    pub(super) fn new(delays: Delays) -> Self {
        let begin = (Timestamp::now(), Instant::now());
        let wall = std::time::Instant::now();
        Self {
            hub: InProcess::new("short"),
            delays,
            begin,
            wall,
            away: Arc::default(),
            gone: Arc::default(),
            sent: Arc::default(),
        }
    }

    /// Its way out takes none of the next so many messages.
    pub(super) fn is_away(&self, messages: u32) {
        self.away.store(messages, Ordering::Relaxed);
    }

    pub(super) fn sent(&self) -> Vec<MessageId> {
        self.sent.lock().unwrap().clone()
    }

    pub(super) async fn send(&self, outgoing: &Outgoing) -> Result<(), DispatchError> {
        if self.away.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            let why = TransportError::new(ErrorKind::Unavailable, "dispatching", "away");
            return Err(DispatchError::Transient(why));
        }
        if outgoing.destination.to_string().ends_with(GONE) {
            self.gone.fetch_add(1, Ordering::Relaxed);
            let why = TransportError::new(ErrorKind::Unavailable, "dispatching", "gone");
            return Err(DispatchError::Transient(why));
        }
        let mut envelope = (*outgoing.envelope).clone();
        if let Some(due) = envelope.due {
            let now = self.begin.0.after(self.begin.1.elapsed());
            let wait = due.since(now.after(LATE + self.wall.elapsed()));
            if !self.delays.hold(wait) {
                let why = TransportError::new(ErrorKind::TooLarge, "dispatching", format!("due in {wait:?}"));
                return Err(DispatchError::Permanent(why));
            }
            self.sent.lock().unwrap().push(envelope.message_id.clone());
            // The hub counts from the wall clock, which stands still meanwhile.
            envelope.due = (!wait.is_zero()).then(|| Timestamp::now().after(due.since(now)));
        }
        let outgoing = Outgoing { envelope: Arc::new(envelope), ..outgoing.clone() };
        self.hub.dispatch(&[outgoing]).await.pop().unwrap()
    }
}

#[async_trait]
impl Transport for Short {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { delays: self.delays, ..self.hub.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.hub.connect(endpoint, types).await?;
        Ok(Connected { dispatcher: Arc::new(self.clone()), ..connected })
    }
}

#[async_trait]
impl Dispatcher for Short {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results = Vec::new();
        for outgoing in outgoing {
            results.push(self.send(outgoing).await);
        }
        results
    }
}

/// A schedule in memory with troubles.
#[derive(Debug, Clone, Default)]
pub(super) struct Troubled {
    pub(super) kept: Memory,
    /// The next calls of each kind that fail.
    pub(super) puts: Arc<AtomicU32>,
    pub(super) takes: Arc<AtomicU32>,
    /// They fail before anything is done: as after a crash.
    pub(super) dones: Arc<AtomicU32>,
    pub(super) put: Arc<AtomicU32>,
}

pub(super) fn fails(left: &AtomicU32, operation: &'static str) -> Result<(), StoreError> {
    match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
        Ok(_) => Err(StoreError::new(ErrorKind::UnknownOutcome, operation, "away")),
        Err(_) => Ok(()),
    }
}

#[async_trait]
impl Schedule for Troubled {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        ScheduleCapabilities { message_bytes_max: 10_000, ..self.kept.schedule_capabilities() }
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        fails(&self.puts, "putting")?;
        self.put.fetch_add(messages.len() as u32, Ordering::Relaxed);
        self.kept.put(endpoint, messages).await
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        self.kept.cancel(endpoint, ids).await
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        fails(&self.takes, "taking")?;
        self.kept.take_due(endpoint, take).await
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        fails(&self.dones, "telling")?;
        self.kept.done(endpoint, receipts).await
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        self.kept.next(endpoint).await
    }
}

pub(super) fn alarms(store: &Memory, heard: &Heard) -> EndpointBuilder {
    Endpoint::builder("work")
        .store(store.clone())
        .with(heard.clone())
        .settings(settings())
        .saga::<Alarm>(|alarm| alarm.starts::<Ask>().handles::<Ring>().handles::<Note>().handles::<Quiet>())
}

pub(super) async fn running(builder: EndpointBuilder) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let endpoint = builder.start().await.unwrap();
    let (stop, stopped) = oneshot::channel();
    (stop, tokio::spawn(async move { endpoint.run_until(stopped).await.unwrap() }))
}

pub(super) fn ask(key: &str, rings: Duration, notes: Duration) -> Ask {
    Ask { key: key.into(), rings: rings.as_secs(), notes: notes.as_secs(), says: String::new() }
}

pub(super) fn note() -> Envelope {
    let note = Note { key: "a".into(), says: String::new() };
    Sender::envelope_with(Codec::Json, MessageId::random(), &note).unwrap()
}

pub(super) async fn send(transport: &Short, message: &impl Message) {
    transport.hub.sender().send("work", message).await.unwrap();
}
