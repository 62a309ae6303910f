//! Endpoints, clients, offices and schedules on bad days, within the process.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, PartitionedLog, RequestClient,
    Saga,
    claim::BODY_IN,
    deliver::Recoverability,
    endpoint::{Audit, EndpointBuilder, Settings, office::Filter},
    envelope::{ContentType, Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId},
    ports::{Due, ErrorKind, Next, Receipt, Schedule, ScheduleCapabilities, StoreError, Take},
    requests::RequestError,
    seal::{Deflate, SEALED_BY, Seals},
};
use hapax_model::{Fault, Plan, World, faults::Faulty};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::ear::Ear;

const HOUR: Duration = Duration::from_secs(3600);
const WITHIN: Duration = Duration::from_secs(60);

/// What happens to whoever handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Fate {
    Fine,
    Fails,
    Refuses,
    Panics,
    TakesTooLong,
    /// It answers with another message.
    Other,
    /// It answers with what cannot be read.
    Unreadable,
}

#[derive(Clone, Serialize, Deserialize)]
struct Pay {
    order: String,
    card: String,
    fate: Fate,
}

impl Message for Pay {
    const TYPE: &'static str = "till.pay";
}

#[derive(Serialize, Deserialize)]
struct Paid {
    card: String,
}

impl Message for Paid {
    const TYPE: &'static str = "till.paid";
}

/// As an older program would read it.
#[derive(Debug, Serialize, Deserialize)]
struct OlderPaid {
    card: u32,
}

impl Message for OlderPaid {
    const TYPE: &'static str = Paid::TYPE;
}

#[derive(Serialize, Deserialize)]
struct Lapse {
    order: String,
    card: String,
}

impl Message for Lapse {
    const TYPE: &'static str = "till.lapse";
}

#[derive(Default, Serialize, Deserialize)]
struct Till {
    cards: Vec<String>,
}

impl Saga for Till {
    const NAME: &'static str = "till";
}

impl Handle<Pay> for Till {
    fn correlate(pay: &Pay) -> Correlation<'_> {
        (&pay.order).into()
    }

    async fn handle(&mut self, pay: Pay, cx: &mut Context) -> Result<(), HandlerError> {
        let Pay { order, card, fate } = pay;
        self.cards.push(card.clone());
        cx.publish(Paid { card: card.clone() })?;
        cx.timeout(HOUR, Lapse { order, card: card.clone() })?;
        if cx.incoming().reply_to.is_some() {
            match fate {
                Fate::Other => cx.reply(Lapse { order: String::new(), card })?,
                _ => cx.reply(Paid { card })?,
            }
        }
        match fate {
            Fate::Fails => Err(HandlerError::transient("it fails")),
            Fate::Refuses => Err(HandlerError::permanent("it is refused")),
            Fate::Panics => panic!("it panics"),
            Fate::TakesTooLong => std::future::pending().await,
            Fate::Fine | Fate::Other | Fate::Unreadable => Ok(()),
        }
    }
}

impl Handle<Lapse> for Till {
    fn correlate(lapse: &Lapse) -> Correlation<'_> {
        (&lapse.order).into()
    }

    async fn handle(&mut self, _: Lapse, cx: &mut Context) -> Result<(), HandlerError> {
        cx.complete();
        Ok(())
    }
}

fn settings() -> Settings {
    let rest = Duration::from_secs(1);
    Settings {
        deadline: Duration::from_secs(10),
        recoverability: Recoverability { retry_delay: rest, retry_delay_max: rest, ..Recoverability::default() },
        ..Settings::default()
    }
}

fn till() -> EndpointBuilder {
    let till = Endpoint::builder("till").settings(settings()).audit(Audit::default());
    till.saga::<Till>(|till| till.starts::<Pay>().handles::<Lapse>())
}

/// With the secret in a header of the user's own.
fn envelope(ear: &Ear, body: impl Into<Vec<u8>>) -> Envelope {
    let mut envelope = Envelope::new(MessageId::random(), Pay::TYPE.parse().unwrap(), body.into());
    envelope.headers.set("card", &ear.secret).unwrap();
    envelope
}

fn pay(ear: &Ear, order: &str, fate: Fate) -> Pay {
    Pay { order: order.to_owned(), card: ear.secret.clone(), fate }
}

fn good(ear: &Ear, order: &str, fate: Fate) -> Envelope {
    envelope(ear, serde_json::to_vec(&pay(ear, order, fate)).unwrap())
}

/// What no handler is given: bodies, seals and claims that say nothing, and bodies of another shape.
fn damaged(ear: &Ear) -> Vec<Envelope> {
    let secret = &ear.secret;
    let mut all: Vec<Envelope> = [
        secret.clone(),
        format!(r#"{{"order":7,"card":"{secret}","fate":"Fine"}}"#),
        format!(r#"{{"order":"1","card":{{"{secret}":1}},"fate":"Fine"}}"#),
        format!(r#"{{"order":"1","card":"","fate":"{secret}"}}"#),
        format!(r#"{{"{secret}":"1","card":"","fate":"Fine"}}"#),
        format!(r#"{{"order":"1","card":"{secret}"#),
        format!(r#""{secret}""#),
    ]
    .map(|body| envelope(ear, body))
    .into();
    for (header, value) in
        [(SEALED_BY, "deflate"), (SEALED_BY, "nobody;key"), (BODY_IN, "memory"), (BODY_IN, "elsewhere")]
    {
        let mut envelope = good(ear, "1", Fate::Fine);
        envelope.headers.set(header, value).unwrap_or_default();
        all.push(envelope);
    }
    for claim in [
        format!(r#"{{"body":"a-0","bytes":"{secret}","sha256":""}}"#),
        format!(r#"{{"body":"{secret} ","bytes":1,"sha256":""}}"#),
    ] {
        let mut envelope = envelope(ear, claim);
        envelope.headers.set(BODY_IN, "memory").unwrap_or_default();
        all.push(envelope);
    }
    all.push(Envelope { schema: 99, ..good(ear, "1", Fate::Fine) });
    all.push(Envelope { message_type: "till.unknown".parse().unwrap(), ..good(ear, "1", Fate::Fine) });
    all.push(Envelope { content_type: ContentType::parse("text/plain").unwrap(), ..good(ear, "1", Fate::Fine) });
    all
}

fn to_till() -> Destination {
    Destination::Endpoint("till".parse().unwrap())
}

/// Goal: whatever becomes of messages, and whatever a person does about it. Method: stores that fail, handlers that fail in each way, bodies
/// that cannot be read; then an office in which each thing is done.
#[tokio::test(start_paused = true)]
async fn nothing_that_is_in_a_message_is_told_by_an_endpoint_or_its_office() {
    let (ear, hub) = (Ear::new(), InProcess::new("untold"));
    let budgets = [Fault::Refused, Fault::UnknownApplied, Fault::UnknownNotApplied, Fault::OwnConflict];
    let budgets = budgets.into_iter().map(|fault| (fault, 20)).collect();
    let world = World::new(Plan { seed: 7, per_mille: 50, budgets, yields: true, ..Plan::default() });
    let store = Faulty::new(Memory::new(), world);
    let built = || {
        let till = till()
            .store(store.clone())
            .bodies((**store.inner()).clone(), 10)
            .seals(Seals::sealed_by(Deflate::default()));
        till.transport(hub.clone())
    };
    let started = built().start().await.unwrap();
    let (handle, office) = (started.handle(), started.dead_letter_office("alice"));
    let running = tokio::spawn(started.run_until(std::future::pending::<()>()));
    let fates = [Fate::Fine, Fate::Fails, Fate::Refuses, Fate::Panics, Fate::TakesTooLong];
    for (number, fate) in fates.into_iter().cycle().take(20).enumerate() {
        let sealed = hub.sender().seals(Seals::sealed_by(Deflate::default()));
        ear.fails(sealed.send("till", &pay(&ear, &format!("order-{number}"), fate)).await);
        let copied = good(&ear, &format!("copied-{number}"), fate);
        for _ in 0..2 {
            ear.fails(hub.sender().send_envelope(to_till(), copied.clone()).await);
        }
        // Another body under its id.
        let other = Envelope { message_id: copied.message_id.clone(), ..good(&ear, "other", Fate::Fine) };
        ear.fails(hub.sender().send_envelope(to_till(), other).await);
    }
    for envelope in damaged(&ear) {
        ear.fails(hub.sender().send_envelope(to_till(), envelope).await);
    }
    let huge = envelope(&ear, ear.secret.repeat(1 << 20));
    assert!(ear.fails(hub.sender().send_envelope(to_till(), huge).await), "it is too large");
    sleep(2 * HOUR).await;
    ear.shown(&(&handle, handle.health(), handle.audit()));
    ear.fails(handle.audit_once().await);

    let letters = office.list(&Filter::default(), 0, 100).await.unwrap();
    assert!(letters.len() > fates.len() + 10, "{} letters", letters.len());
    ear.shown(&(&letters, &office));
    letters.iter().for_each(|letter| ear.said(&letter.reason));
    for (number, letter) in letters.iter().enumerate() {
        let _ = office.body(letter).await.inspect_err(|error| ear.error(error));
        ear.fails(office.edit(letter, |envelope| envelope.message_id = MessageId::random()).await);
        match number % 4 {
            0 => drop(ear.fails(office.discard(std::slice::from_ref(letter)).await)),
            1 => {
                let body = format!(r#"{{"order":{number},"card":"{}"}}"#, ear.secret);
                ear.fails(office.edit(letter, |envelope| envelope.body = body.into()).await);
                assert!(ear.fails(office.edit(letter, |_| {}).await), "it is another letter");
            }
            _ => drop(ear.fails(office.retry(std::slice::from_ref(letter)).await)),
        }
    }
    sleep(HOUR).await;
    ear.fails(office.retry_all(&Filter::default()).await);
    sleep(HOUR).await;
    ear.fails(office.actions().await);
    ear.fails(office.discard_all(&Filter::default()).await);
    running.abort();
    assert!(ear.count("dead letter") > 10 && ear.count("dead letters") > 10, "little was told");
    ear.assert_untold();
}

/// Goal: whoever asks is told why there is no answer, and nothing that is in request or answer.
#[tokio::test(start_paused = true)]
async fn nothing_that_is_asked_or_answered_is_told_by_a_client() {
    let (ear, hub, store) = (Ear::new(), InProcess::new("asked"), Memory::new());
    let running = tokio::spawn(
        till()
            .store(store.clone())
            .transport(hub.clone())
            .start()
            .await
            .unwrap()
            .run_until(std::future::pending::<()>()),
    );
    let client = RequestClient::builder("front").transport(hub.clone()).dead_letters(store).start().await.unwrap();
    ear.shown(&client);
    let mut failed = 0;
    for fate in [Fate::Fine, Fate::Other, Fate::Fails, Fate::Refuses, Fate::Panics, Fate::TakesTooLong] {
        let asked: Result<Paid, _> = client.request("till", &pay(&ear, &format!("{fate:?}"), fate), WITHIN).await;
        failed += usize::from(asked.is_err_and(|error| ear.fails(Err::<(), _>(error))));
    }
    assert_eq!(failed, 5);
    let unreadable: Result<OlderPaid, _> = client.request("till", &pay(&ear, "asked", Fate::Unreadable), WITHIN).await;
    assert!(matches!(unreadable, Err(RequestError::Unreadable(_))), "{unreadable:?}");
    ear.fails(unreadable);
    let key = || "key".parse().unwrap();
    let first: Result<Paid, _> = client.request_with_key(key(), "till", &pay(&ear, "asked", Fate::Fine), WITHIN).await;
    assert!(first.is_ok());
    let reused: Result<Paid, _> =
        client.request_with_key(key(), "till", &pay(&ear, "asked", Fate::Other), WITHIN).await;
    assert!(reused.is_err_and(|error| ear.fails(Err::<(), _>(error))), "the key is used");
    let nowhere: Result<Paid, _> = client.request("nowhere", &pay(&ear, "asked", Fate::Fine), WITHIN).await;
    assert!(nowhere.is_err_and(|error| ear.fails(Err::<(), _>(error))), "nobody is there");
    // What nobody waits for, and what is no answer.
    let front = Destination::Endpoint("front".parse().unwrap());
    for mut envelope in damaged(&ear) {
        envelope.correlation_id = Some("unasked".parse().unwrap());
        ear.fails(hub.sender().send_envelope(front.clone(), envelope).await);
    }
    sleep(WITHIN).await;
    client.stop().await;
    running.abort();
    ear.assert_untold();
}

/// A schedule that fails half of the time.
#[derive(Debug)]
struct Away(Memory, AtomicU32);

impl Away {
    fn answers(&self, operation: &'static str) -> Result<(), StoreError> {
        match self.1.fetch_add(1, Ordering::Relaxed) % 4 {
            0 => Err(StoreError::new(ErrorKind::Unavailable, operation, "it is away")),
            2 => Err(StoreError::new(ErrorKind::UnknownOutcome, operation, "it does not answer")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Schedule for Away {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        self.0.schedule_capabilities()
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        self.answers("putting")?;
        self.0.put(endpoint, messages).await
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        self.0.cancel(endpoint, ids).await
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        self.answers("taking")?;
        self.0.take_due(endpoint, take).await
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        self.answers("ending")?;
        self.0.done(endpoint, receipts).await
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        self.0.next(endpoint).await
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_due_later_is_told_of_by_a_schedule_or_without_one() {
    let (ear, log, store) = (Ear::new(), PartitionedLog::new("later"), Memory::new());
    let built = || till().store(store.clone()).transport(log.clone());
    // Without one it is refused.
    let refusing = built().start().await.unwrap();
    let running = tokio::spawn(refusing.run_until(std::future::pending::<()>()));
    ear.fails(log.sender().send_envelope(to_till(), good(&ear, "refused", Fate::Fine)).await);
    sleep(HOUR).await;
    running.abort();
    assert!(ear.count("add .schedule(..)") > 0, "it has said why");
    let started = built().schedule(Away(store.clone(), AtomicU32::new(0))).start().await.unwrap();
    let handle = started.handle();
    let running = tokio::spawn(started.run_until(std::future::pending::<()>()));
    for order in 0..10 {
        ear.fails(log.sender().send_envelope(to_till(), good(&ear, &format!("order-{order}"), Fate::Fine)).await);
    }
    for _ in 0..30 {
        sleep(Duration::from_secs(300)).await;
        ear.shown(&handle.health());
    }
    running.abort();
    let take = Take { within: HOUR, max: 10, bytes_max: 1 << 20, lease: HOUR };
    ear.fails(store.take_due(&"till".parse().unwrap(), take).await);
    let lapsed = store.entities().iter().filter(|(_, till)| till.completed).count();
    assert_eq!(lapsed, 10);
    assert!(ear.count("a look into the schedule failed") > 0, "it was away");
    ear.assert_untold();
}
