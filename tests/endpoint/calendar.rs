//! Messages and timeouts that are due at a time of the calendar, and not so much later.

use std::time::Duration;

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Memory, Message, MessageId, Saga, testing::Harness,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_secs(3600);

/// Milliseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Invite {
    guest: String,
    rings: u64,
    notes: u64,
}

impl Message for Invite {
    const TYPE: &'static str = "calendar.invite";
}

#[derive(Serialize, Deserialize)]
struct Ring {
    guest: String,
}

impl Message for Ring {
    const TYPE: &'static str = "calendar.ring";
}

#[derive(Serialize, Deserialize)]
struct Note {
    guest: String,
}

impl Message for Note {
    const TYPE: &'static str = "calendar.note";
}

/// When what came.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Guest {
    rang: Vec<u64>,
    noted: Vec<u64>,
    timeout: Option<String>,
}

impl Saga for Guest {
    const NAME: &'static str = "guest";
}

impl Handle<Invite> for Guest {
    fn correlate(invite: &Invite) -> Correlation<'_> {
        (&invite.guest).into()
    }
    async fn handle(&mut self, invite: Invite, cx: &mut Context) -> Result<(), HandlerError> {
        let Invite { guest, rings, notes } = invite;
        if let Some(timeout) = self.timeout.take() {
            cx.cancel_timeout(&MessageId::parse(&timeout).map_err(HandlerError::permanent)?);
        }
        self.timeout = Some(cx.timeout_at(Timestamp::from_millis(rings), Ring { guest: guest.clone() })?.to_string());
        cx.send_at(Timestamp::from_millis(notes), "hotel", Note { guest })
    }
}

impl Handle<Ring> for Guest {
    fn correlate(ring: &Ring) -> Correlation<'_> {
        (&ring.guest).into()
    }
    async fn handle(&mut self, _: Ring, cx: &mut Context) -> Result<(), HandlerError> {
        self.rang.push(cx.now().as_millis());
        Ok(())
    }
}

impl Handle<Note> for Guest {
    fn correlate(note: &Note) -> Correlation<'_> {
        (&note.guest).into()
    }
    async fn handle(&mut self, _: Note, cx: &mut Context) -> Result<(), HandlerError> {
        self.noted.push(cx.now().as_millis());
        Ok(())
    }
}

async fn hotel() -> Harness {
    let hotel = Endpoint::builder("hotel").store(Memory::default());
    let hotel = hotel.saga::<Guest>(|guest| guest.starts::<Invite>().handles::<Ring>().handles::<Note>());
    Harness::start(hotel).await.unwrap()
}

fn invite(rings: Timestamp, notes: Timestamp) -> Invite {
    Invite { guest: "7".into(), rings: rings.as_millis(), notes: notes.as_millis() }
}

#[tokio::test]
async fn what_is_due_at_a_time_comes_then_however_late_its_message_was_handled() {
    let mut hotel = hotel().await;
    let (rings, notes) = (hotel.now().after(3 * HOUR), hotel.now().after(5 * HOUR));
    hotel.advance(2 * HOUR).await.unwrap();
    hotel.send(&invite(rings, notes)).await.unwrap();
    hotel.advance(HOUR - Duration::from_millis(1)).await.unwrap();
    assert!(hotel.state::<Guest>("7").await.unwrap().unwrap().rang.is_empty());
    hotel.advance(Duration::from_millis(1)).await.unwrap();
    let guest = hotel.state::<Guest>("7").await.unwrap().unwrap();
    assert_eq!((guest.rang, guest.noted), (vec![rings.as_millis()], vec![]));
    hotel.advance(2 * HOUR).await.unwrap();
    assert_eq!(hotel.state::<Guest>("7").await.unwrap().unwrap().noted, [notes.as_millis()]);
    hotel.advance(24 * HOUR).await.unwrap();
    let guest = hotel.state::<Guest>("7").await.unwrap().unwrap();
    assert_eq!((guest.rang.len(), guest.noted.len()), (1, 1));
}

#[tokio::test]
async fn what_was_due_before_comes_at_once() {
    let mut hotel = hotel().await;
    let begun = hotel.now();
    hotel.advance(HOUR).await.unwrap();
    hotel.send(&invite(begun, Timestamp::from_millis(0))).await.unwrap();
    let now = hotel.now().as_millis();
    let guest = hotel.state::<Guest>("7").await.unwrap().unwrap();
    assert_eq!((guest.rang, guest.noted), (vec![now], vec![now]));
    assert!(hotel.waiting().is_empty() && hotel.dead_letters().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_timeout_at_a_time_is_cancelled_exactly() {
    let mut hotel = hotel().await;
    let (first, second) = (hotel.now().after(HOUR), hotel.now().after(2 * HOUR));
    hotel.send(&invite(first, first)).await.unwrap();
    hotel.send(&invite(second, second)).await.unwrap();
    hotel.redeliver().await.unwrap();
    hotel.advance(24 * HOUR).await.unwrap();
    let guest = hotel.state::<Guest>("7").await.unwrap().unwrap();
    assert_eq!(guest.rang, [second.as_millis()]);
    assert_eq!(guest.noted, [first.as_millis(), second.as_millis()]);
}
