//! What is due later than the transport holds messages back: it waits in a schedule, comes at its time and not before, and has
//! its effect once. Time is paused, and that of the schedule in memory with it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Enqueued, Handle, HandlerError, InProcess, Memory, Message, MessageId, Saga,
    Sender,
    codec::Codec,
    endpoint::{EndpointBuilder, Settings},
    entity::Expected,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    metrics::{Event, Metrics},
    ports::{
        Connected, Delays, DispatchError, Dispatcher, Due, EntityStore, ErrorKind, Next, Receipt, Refused, Schedule,
        ScheduleCapabilities, StoreError, Take, Transport, TransportCapabilities, TransportError,
    },
    testing::Harness,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::work::{letters, settings};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
/// What a look into a schedule, or a clock that is rounded, may make late.
const LATE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ask {
    key: String,
    /// Seconds until it rings, and until the note comes.
    rings: u64,
    notes: u64,
    /// What the note says.
    says: String,
}

impl Message for Ask {
    const TYPE: &'static str = "alarm.ask";
}

#[derive(Debug, Serialize, Deserialize)]
struct Ring {
    key: String,
}

impl Message for Ring {
    const TYPE: &'static str = "alarm.ring";
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    key: String,
    says: String,
}

impl Message for Note {
    const TYPE: &'static str = "alarm.note";
}

#[derive(Debug, Serialize, Deserialize)]
struct Quiet {
    key: String,
}

impl Message for Quiet {
    const TYPE: &'static str = "alarm.quiet";
}

/// Rings once, and again with a note; or not at all.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Alarm {
    timeout: Option<String>,
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
struct Heard(Instant, Arc<Mutex<Vec<(String, Duration)>>>);

impl Heard {
    fn new() -> Self {
        Self(Instant::now(), Arc::default())
    }

    fn hear(&self, what: String) {
        self.1.lock().unwrap().push((what, self.0.elapsed()));
    }

    fn all(&self) -> Vec<(String, Duration)> {
        self.1.lock().unwrap().clone()
    }

    /// Each of these was heard once, at its time.
    #[track_caller]
    fn assert(&self, expected: &[(&str, Duration)], late: Duration) {
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
struct Short {
    hub: InProcess,
    delays: Delays,
    begin: (Timestamp, Instant),
    /// Due times are told by the wall clock, which goes on by what the test takes.
    wall: std::time::Instant,
    away: Arc<AtomicU32>,
    /// Messages with a due time, in the order in which they were sent.
    sent: Arc<Mutex<Vec<MessageId>>>,
}

impl Short {
    fn new(delays: Delays) -> Self {
        let begin = (Timestamp::now(), Instant::now());
        let wall = std::time::Instant::now();
        Self { hub: InProcess::new("short"), delays, begin, wall, away: Arc::default(), sent: Arc::default() }
    }

    /// Its way out takes none of the next so many messages.
    fn is_away(&self, messages: u32) {
        self.away.store(messages, Ordering::Relaxed);
    }

    fn sent(&self) -> Vec<MessageId> {
        self.sent.lock().unwrap().clone()
    }

    async fn send(&self, outgoing: &Outgoing) -> Result<(), DispatchError> {
        if self.away.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            let why = TransportError::new(ErrorKind::Unavailable, "dispatching", "away");
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
struct Troubled {
    kept: Memory,
    /// The next calls of each kind that fail.
    puts: Arc<AtomicU32>,
    takes: Arc<AtomicU32>,
    /// They fail before anything is done: as after a crash.
    dones: Arc<AtomicU32>,
    put: Arc<AtomicU32>,
}

fn fails(left: &AtomicU32, operation: &'static str) -> Result<(), StoreError> {
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

fn alarms(store: &Memory, heard: &Heard) -> EndpointBuilder {
    Endpoint::builder("work")
        .store(store.clone())
        .with(heard.clone())
        .settings(settings())
        .saga::<Alarm>(|alarm| alarm.starts::<Ask>().handles::<Ring>().handles::<Note>().handles::<Quiet>())
}

async fn running(builder: EndpointBuilder) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let endpoint = builder.start().await.unwrap();
    let (stop, stopped) = oneshot::channel();
    (stop, tokio::spawn(async move { endpoint.run_until(stopped).await.unwrap() }))
}

fn ask(key: &str, rings: Duration, notes: Duration) -> Ask {
    Ask { key: key.into(), rings: rings.as_secs(), notes: notes.as_secs(), says: String::new() }
}

fn note() -> Envelope {
    let note = Note { key: "a".into(), says: String::new() };
    Sender::envelope_with(Codec::Json, MessageId::random(), &note).unwrap()
}

async fn send(transport: &Short, message: &impl Message) {
    transport.hub.sender().send("work", message).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_due_comes_at_its_time_and_not_early_on_a_transport_that_holds_nothing_back() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(store.clone())).await;
    // Between two looks into a schedule that is empty: an earlier due time than the next look must be met all the same.
    let begin = Duration::from_secs(65);
    sleep(begin).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    send(&short, &ask("b", Duration::from_secs(3), 30 * HOUR)).await;
    sleep(40 * HOUR).await;
    let expected =
        [("b rings", Duration::from_secs(3)), ("a rings", HOUR), ("a notes", 2 * HOUR), ("b notes", 30 * HOUR)];
    heard.assert(&expected.map(|(what, due)| (what, begin + due)), LATE);
    assert_eq!(letters(&store).await, []);
    assert_eq!(store.next(&EndpointName::parse("work").unwrap()).await.unwrap(), None, "all are done");
}

/// Goal: what the transport holds back itself does not go through the schedule, and nothing is ever given to it that it does not
/// hold. Method: it refuses for good what is due later.
#[tokio::test(start_paused = true)]
async fn a_transport_with_a_limit_is_given_what_it_holds_and_nothing_beyond() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::UpTo(15 * MINUTE)));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(schedule.clone())).await;
    send(&short, &ask("a", 14 * MINUTE, 16 * MINUTE)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!((short.sent().len(), schedule.put.load(Ordering::Relaxed)), (1, 1));
    sleep(8 * MINUTE).await;
    assert_eq!(short.sent().len(), 1);
    // Half of what the transport holds back is left to it.
    sleep(MINUTE).await;
    assert_eq!(short.sent().len(), 2);
    send(&short, &Quiet { key: "a".into() }).await;
    sleep(2 * HOUR).await;
    heard.assert(&[("a notes", 16 * MINUTE)], Duration::from_secs(1));
    assert_eq!(letters(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_timeout_is_not_handled_when_the_schedule_gives_it() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(store.clone())).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    sleep(MINUTE).await;
    send(&short, &Quiet { key: "a".into() }).await;
    sleep(3 * HOUR).await;
    assert_eq!(short.sent().len(), 2, "it was sent, and then");
    heard.assert(&[("a notes", 2 * HOUR)], LATE);
}

#[tokio::test(start_paused = true)]
async fn two_processes_send_what_is_due_once() {
    const KEYS: usize = 600;
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let process = || alarms(&store, &heard).transport(short.clone()).schedule(store.clone());
    let _running = (running(process()).await, running(process()).await);
    for key in 0..KEYS {
        send(&short, &ask(&format!("key-{key}"), HOUR, 2 * HOUR)).await;
    }
    sleep(3 * HOUR).await;
    assert_eq!(heard.all().len(), 2 * KEYS);
    assert_eq!(short.sent().len(), 2 * KEYS, "each was sent once");
}

/// Goal: nobody is harmed by a crash between sending and `done`. Method: `done` fails for the first process, which sends again.
#[tokio::test(start_paused = true)]
async fn what_was_sent_and_not_told_as_done_is_sent_again_under_its_id_and_handled_once() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    schedule.dones.store(1, Ordering::Relaxed);
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(schedule)).await;
    send(&short, &ask("a", HOUR, 9 * HOUR)).await;
    sleep(2 * HOUR).await;
    heard.assert(&[("a rings", HOUR)], LATE);
    let sent = short.sent();
    assert!(sent.len() == 2 && sent[0] == sent[1], "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_process_had_put_is_sent_by_another_after_it_has_died() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let process = || alarms(&store, &heard).transport(short.clone()).schedule(store.clone());
    let (_stop, first) = running(process()).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    sleep(MINUTE).await;
    first.abort();
    sleep(3 * HOUR).await;
    assert_eq!(heard.all(), []);
    let back = heard.0.elapsed();
    let _running = running(process()).await;
    sleep(MINUTE).await;
    heard.assert(&[("a rings", back), ("a notes", back)], LATE);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_away_leaves_what_it_was_to_keep_with_the_sweeper() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    schedule.puts.store(30, Ordering::Relaxed);
    let builder = alarms(&store, &heard).transport(short.clone()).schedule(schedule.clone());
    let _running = running(builder).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    sleep(Duration::from_secs(30)).await;
    assert!(store.entities().iter().any(|(_, entity)| !entity.outbox.is_empty()), "its entry waits");
    assert_eq!(schedule.put.load(Ordering::Relaxed), 0);
    sleep(3 * HOUR).await;
    // The wall clock, by which it is due, has stood still until the schedule had it.
    heard.assert(&[("a rings", HOUR), ("a notes", 2 * HOUR)], 5 * MINUTE);
    assert!(store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
    assert_eq!(letters(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_away_when_a_message_is_due_has_it_when_it_is_back() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let endpoint = alarms(&store, &heard).transport(short.clone()).schedule(store.clone()).start().await.unwrap();
    let handle = endpoint.handle();
    let running = tokio::spawn(endpoint.run_until(std::future::pending::<()>()));
    send(&short, &ask("a", HOUR, 9 * HOUR)).await;
    sleep(MINUTE).await;
    short.is_away(u32::MAX);
    sleep(HOUR + 5 * MINUTE).await;
    assert_eq!(heard.all(), []);
    let health = handle.health();
    assert!(!health.ready() && health.reasons()[0].contains("has been due for"), "{health:?}");
    short.is_away(0);
    sleep(2 * MINUTE).await;
    heard.assert(&[("a rings", HOUR)], 9 * MINUTE);
    assert!(handle.health().ready(), "{:?}", handle.health());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_cannot_be_looked_into_is_told_of_and_looked_into_again() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    let builder = alarms(&store, &heard).transport(short.clone()).schedule(schedule.clone());
    let endpoint = builder.start().await.unwrap();
    let handle = endpoint.handle();
    let running = tokio::spawn(endpoint.run_until(std::future::pending::<()>()));
    send(&short, &ask("a", HOUR, 9 * HOUR)).await;
    sleep(MINUTE).await;
    schedule.takes.store(600, Ordering::Relaxed);
    sleep(5 * MINUTE).await;
    let health = handle.health();
    assert!(!health.ready() && health.reasons()[0].contains("the schedule cannot be reached"), "{health:?}");
    let left = schedule.takes.load(Ordering::Relaxed);
    assert!((280..=320).contains(&left), "asked once a second: {left} of 600 are left");
    sleep(2 * HOUR).await;
    heard.assert(&[("a rings", HOUR)], LATE);
    running.abort();
}

#[derive(Debug, Default)]
struct Overdue(Mutex<Vec<Option<Duration>>>);

impl Metrics for Overdue {
    fn observe(&self, event: Event<'_>) {
        if let Event::Overdue(_, overdue) = event {
            self.0.lock().unwrap().push(overdue);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn for_how_long_the_earliest_message_has_been_due_is_told_at_each_look() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let told = Arc::new(Overdue::default());
    let builder = alarms(&store, &heard).transport(short.clone()).schedule(store.clone()).metrics(told.clone());
    let _running = running(builder).await;
    send(&short, &ask("a", HOUR, 9 * HOUR)).await;
    sleep(MINUTE).await;
    assert!(told.0.lock().unwrap().iter().all(Option::is_none));
    short.is_away(u32::MAX);
    sleep(HOUR + 9 * MINUTE).await;
    let last = told.0.lock().unwrap().last().copied().flatten().unwrap();
    assert!((9 * MINUTE..11 * MINUTE).contains(&last), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_schedule_what_is_due_too_late_is_refused_before_it_is_saved_with_the_remedy() {
    for (delays, told) in [
        (Delays::Never, "in-process does not hold messages back: add .schedule(..) to endpoint work"),
        (Delays::UpTo(15 * MINUTE), "holds messages back for 900s at most: add .schedule(..) to endpoint work"),
    ] {
        let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(delays));
        let _running = running(alarms(&store, &heard).transport(short.clone())).await;
        send(&short, &ask("a", 16 * MINUTE, 17 * MINUTE)).await;
        sleep(MINUTE).await;
        let letters = letters(&store).await;
        assert!(letters.len() == 1 && letters[0].reason.contains(told), "{letters:?}");
        assert!(store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
        assert_eq!(short.sent(), []);
    }
}

/// Goal: what was saved while the endpoint had a schedule, or was enqueued by somebody else, does not come early either. Method: the wall
/// clock decides when it is due, so this test waits in real time.
#[tokio::test]
async fn without_a_schedule_what_was_enqueued_is_held_back_until_it_is_due() {
    const WAIT: Duration = Duration::from_millis(1500);
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let envelope = Envelope { due: Some(Timestamp::now().after(WAIT)), ..note() };
    let destination = Destination::Endpoint("work".parse().unwrap());
    let enqueued = Enqueued::new("front", Outgoing { destination, envelope: Arc::new(envelope) }).unwrap();
    store.save(enqueued.key(), &Expected::Absent, enqueued.entity(), &[]).await.unwrap();
    let settings = Settings { enqueued_interval: Duration::from_millis(100), ..settings() };
    let front = Endpoint::builder("front").store(store.clone()).transport(short.clone()).sends_enqueued();
    let _running = (
        running(front.settings(settings)).await,
        running(alarms(&store, &heard).transport(short.clone()).schedule(store.clone())).await,
    );
    send(&short, &ask("a", HOUR, HOUR)).await;
    while heard.all().is_empty() && heard.0.elapsed() < 10 * WAIT {
        tokio::task::yield_now().await;
    }
    heard.assert(&[("a notes", WAIT)], MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_message_too_large_for_the_schedule_is_refused_before_it_is_saved() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(schedule)).await;
    let large = Ask { says: "a".repeat(10_000), ..ask("a", HOUR, HOUR) };
    send(&short, &large).await;
    sleep(2 * HOUR).await;
    let letters = letters(&store).await;
    assert!(letters.len() == 1 && letters[0].reason.contains("the schedule in memory takes 10000"), "{letters:?}");
    assert_eq!((heard.all(), short.sent()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_holds_everything_back_is_given_everything_and_what_is_left_in_the_schedule_goes_too() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Any));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    let work = EndpointName::parse("work").unwrap();
    let note = Envelope { due: Some(Timestamp::now().after(3 * HOUR)), ..note() };
    let destination = Destination::Endpoint(work.clone());
    schedule.kept.put(&work, &[Outgoing { destination, envelope: Arc::new(note) }]).await.unwrap();
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(schedule.clone())).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    sleep(MINUTE).await;
    assert_eq!((short.sent().len(), schedule.put.load(Ordering::Relaxed)), (3, 0));
    sleep(4 * HOUR).await;
    heard.assert(&[("a rings", HOUR), ("a notes", 2 * HOUR), ("a notes", 3 * HOUR)], LATE);
}

#[tokio::test]
async fn the_harness_lets_timeouts_pass_whatever_schedule_the_endpoint_has() {
    let (store, heard) = (Memory::new(), Heard::new());
    let mut alarm = Harness::start(alarms(&store, &heard).schedule(store.clone())).await.unwrap();
    alarm.send(&ask("a", HOUR, 2 * HOUR)).await.unwrap();
    alarm.advance(HOUR).await.unwrap();
    assert_eq!(heard.all().len(), 1);
    alarm.advance(HOUR).await.unwrap();
    assert_eq!(heard.all().len(), 2);
}
