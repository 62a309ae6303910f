//! The desk where the shop's dead letters are read: orders whose card number is malformed, which no retry cures, and those whose issuer
//! was in no list after all the deliveries that a rule grants.
//!
//! It does what a person would do at a console. A number in which letters stand for digits, and one of an issuer whose cards go on under
//! another, is mended in the letter, and the letter is retried, under the same id: from then on it is an order like any other. The rest is
//! written off: the order is told why, by a message of its own, and the letter is discarded. hapax records every action before it is done.

use std::{collections::HashSet, time::Duration};

use hapax::{
    Message, MessageId, Sender,
    endpoint::{
        EndpointBuilder, ErrorKind,
        office::{DeadLetterOffice, Filter},
    },
    envelope::Envelope,
    ports::{DeadLetter, StoreError},
};

use crate::{
    Refusal, card_number,
    messages::{PlaceOrder, WriteOff},
    order::GIVEN,
    refusal::again,
    shop::ENDPOINT,
};

/// Who it is in the record of what was done.
pub(crate) const DESK: &str = "desk";
/// Letters that are taken from the pile at a time: few, so that some are done with before a server is killed again.
const LETTERS_AT_ONCE: usize = 20;

/// Somebody who reads the dead letters. The only one: two who retry one letter at the same moment get in each other's way.
pub(crate) struct Desk {
    office: DeadLetterOffice,
    sender: Sender,
    /// How long what fails may be tried again.
    patience: Duration,
    /// Messages that were mended and sent, or written off.
    done: HashSet<MessageId>,
}

/// What is to be done with a letter.
enum Verdict {
    /// It was mended, and cut off before it was sent.
    Retry,
    Mend(PlaceOrder),
    WriteOff(WriteOff),
    /// A copy from before it was mended or written off: a worker that was stopped or killed had it.
    Late,
    /// Nothing that the desk knows how to mend. The books will find it.
    Leave,
}

impl Desk {
    /// Opens the office of `shop`, which is put together as where it runs, and does not run here.
    pub(crate) async fn open(
        shop: impl Fn() -> EndpointBuilder,
        sender: Sender,
        patience: Duration,
    ) -> Result<Self, Refusal> {
        let start = async || {
            shop().start().await.map_err(|e| match e.kind() {
                ErrorKind::Transport => Refusal::caused("the dead letters cannot be reached", &e).passing(),
                _ => Refusal::caused("the dead letters cannot be reached", &e),
            })
        };
        let office = again(patience, start).await?.dead_letter_office(DESK);
        Ok(Self { office, sender, patience, done: HashSet::new() })
    }

    /// Goes through the pile, until nothing is left that it can deal with; answers how many letters it has dealt with. After a failure
    /// another round goes on: what was begun is in the pile, as far as it has come.
    pub(crate) async fn round(&mut self) -> Result<usize, Refusal> {
        let mut all = 0;
        loop {
            match self.deal_with_some().await? {
                0 => return Ok(all),
                some => all += some,
            }
        }
    }

    /// The last round, when nobody is left who could handle what is sent: only late copies are thrown away.
    pub(crate) async fn close(&mut self) -> Result<(), Refusal> {
        again(self.patience, async || {
            let mut left = 0;
            loop {
                let mut late = self.pile(left).await?;
                if late.is_empty() {
                    return Ok(());
                }
                let all = late.len();
                late.retain(|letter| matches!(self.judge(letter), Verdict::Late));
                left += all - late.len();
                self.discard(&late).await?;
            }
        })
        .await
    }

    /// Nothing, if there is nothing to be done about any of them: those that are left stay on top.
    async fn deal_with_some(&mut self) -> Result<usize, Refusal> {
        let mut left = 0;
        loop {
            let pile = self.pile(left).await?;
            let all = pile.len();
            match self.deal_with(pile).await? {
                0 if all == 0 => return Ok(0),
                0 => left += all,
                some => return Ok(some),
            }
        }
    }

    async fn deal_with(&mut self, pile: Vec<DeadLetter>) -> Result<usize, Refusal> {
        let (mut mended, mut hopeless) = (Vec::new(), Vec::new());
        for letter in pile {
            match self.judge(&letter) {
                Verdict::Leave => {}
                Verdict::Late => hopeless.push(letter),
                Verdict::Retry => mended.push(letter),
                Verdict::Mend(order) => mended.push(self.mend(&letter, &order).await?),
                Verdict::WriteOff(off) => {
                    // First the order learns of it. Sent again it is the same message, and is told once.
                    let id = MessageId::parse(&format!("write-off-{}", off.letter));
                    let id = id.map_err(|e| Refusal::new(e.to_string()))?;
                    self.sender.send_as(id, ENDPOINT, &off).await.map_err(|e| Refusal::of_send(&e))?;
                    hopeless.push(letter);
                }
            }
        }
        self.retry(&mended).await?;
        self.discard(&hopeless).await?;
        Ok(mended.len() + hopeless.len())
    }

    /// From the top, without those that are left.
    async fn pile(&self, left: usize) -> Result<Vec<DeadLetter>, Refusal> {
        self.office.list(&Filter::default(), left, LETTERS_AT_ONCE).await.map_err(|e| failed(&e))
    }

    fn judge(&self, letter: &DeadLetter) -> Verdict {
        let envelope = &letter.envelope;
        let order = serde_json::from_slice::<PlaceOrder>(&envelope.body);
        let (PlaceOrder::TYPE, Ok(order)) = (envelope.message_type.as_str(), order) else { return Verdict::Leave };
        let is_done = self.done.contains(&envelope.message_id);
        let number = order.card_number.as_deref().unwrap_or_default();
        let (why, meant) = match (card_number::check(number), card_number::find_issuer(number)) {
            (Ok(()), Ok(())) if is_done => return Verdict::Leave,
            (Ok(()), Ok(())) => return Verdict::Retry,
            _ if is_done => return Verdict::Late,
            (Err(malformed), _) => (malformed.to_string(), card_number::mend(number)),
            (Ok(()), Err(unknown)) => (unknown.to_string(), card_number::reissued(number)),
        };
        match meant {
            Some(meant) => Verdict::Mend(PlaceOrder { card_number: Some(meant), ..order }),
            None => {
                let letter = envelope.message_id.to_string();
                Verdict::WriteOff(WriteOff { order: order.order, letter, reason: why })
            }
        }
    }

    async fn mend(&self, letter: &DeadLetter, order: &PlaceOrder) -> Result<DeadLetter, Refusal> {
        let body = serde_json::to_vec(order).map_err(|e| Refusal::new(e.to_string()))?;
        let mut headers = letter.envelope.headers.clone();
        headers.set(GIVEN, &letter.attempts.to_string()).map_err(|e| Refusal::new(e.to_string()))?;
        let edit = |envelope: &mut Envelope| (envelope.body, envelope.headers) = (body.into(), headers);
        self.office.edit(letter, edit).await.map_err(|e| failed(&e))
    }

    async fn retry(&mut self, letters: &[DeadLetter]) -> Result<(), Refusal> {
        let outcome = self.office.retry(letters).await.map_err(|e| failed(&e))?;
        // What could not be sent is in the pile again.
        let left: HashSet<&MessageId> = outcome.reasons.iter().map(|left| &left.message_id).collect();
        let sent = letters.iter().map(|letter| &letter.envelope.message_id).filter(|id| !left.contains(id));
        self.done.extend(sent.cloned());
        Ok(())
    }

    async fn discard(&mut self, letters: &[DeadLetter]) -> Result<(), Refusal> {
        self.office.discard(letters).await.map_err(|e| failed(&e))?;
        self.done.extend(letters.iter().map(|letter| letter.envelope.message_id.clone()));
        Ok(())
    }
}

fn failed(error: &StoreError) -> Refusal {
    Refusal::of_store("the dead letters cannot be dealt with", error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{path::PathBuf, sync::Arc};

    use hapax::{
        InProcess, Sqlite,
        check::External,
        endpoint::office::Deed,
        ids::TypeName,
        ports::{DeadLetters, Page},
        time::Timestamp,
    };

    use super::*;
    use crate::{
        card_service::CardService,
        door::Door,
        messages::{Card, Line},
        shop,
        watch::Watch,
    };

    fn letter(order: &str, number: &str) -> DeadLetter {
        let lines = vec![Line { article: "mug".into(), quantity: 1, price_cents: 890 }];
        let card_number = Some(number.to_owned());
        let place = PlaceOrder { order: order.into(), customer: "Zoë".into(), card: Card::Good, card_number, lines };
        let message_type = TypeName::parse(PlaceOrder::TYPE).unwrap();
        let id = MessageId::parse(&format!("place-{order}")).unwrap();
        DeadLetter {
            envelope: Arc::new(Envelope::new(id, message_type, serde_json::to_vec(&place).unwrap())),
            endpoint: ENDPOINT.parse().unwrap(),
            saga: Some("order".parse().unwrap()),
            destination: None,
            reason: "malformed".into(),
            attempts: 1,
            time: Timestamp::now(),
        }
    }

    struct File(PathBuf);

    impl Drop for File {
        fn drop(&mut self) {
            for end in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{end}", self.0.display()));
            }
        }
    }

    /// A worker that was stopped still had the message as it came before it was mended: what it makes of it is a letter again, of a
    /// message that is over.
    #[tokio::test]
    async fn a_late_copy_of_what_is_mended_or_written_off_is_thrown_away_and_not_sent_again() {
        let file = File(std::env::temp_dir().join(format!("hapax-orders-desk-{}", uuid::Uuid::new_v4().simple())));
        let store = Sqlite::open(&file.0).await.unwrap();
        let (queue, cards) = (InProcess::new(ENDPOINT), CardService::told(External::new("card company")));
        let (door, watch) = (Door::new(1), Arc::new(Watch::default()));
        let shop = || shop::endpoint(store.clone(), None, queue.clone(), &cards, &door, &watch);
        let mut desk = Desk::open(shop, queue.sender(), Duration::ZERO).await.unwrap();

        let came = [letter("mend", "4111 1111 1111 11l1"), letter("none", "4111 1111 1111 1112")];
        for _ in 0..3 {
            for letter in &came {
                store.add(letter).await.unwrap();
            }
            assert_eq!(desk.round().await.unwrap(), 2);
            let page = Page { skip: 0, limit: 10, message_id: None };
            assert_eq!(store.list(&ENDPOINT.parse().unwrap(), &page).await.unwrap(), []);
        }
        store.add(&came[0]).await.unwrap();
        desk.close().await.unwrap();
        assert_eq!(desk.round().await.unwrap(), 0);

        let actions = desk.office.actions().await.unwrap();
        let of = |deed| actions.iter().filter(|action| action.deed == deed).count();
        assert_eq!((of(Deed::Edited), of(Deed::Retried)), (1, 1), "{actions:?}");
        assert!(actions.iter().all(|action| action.by == DESK), "{actions:?}");

        // What is in good order and has failed all the same is tried once more, and then left for the books.
        store.add(&letter("good", "4111 1111 1111 1111")).await.unwrap();
        assert_eq!(desk.round().await.unwrap(), 1);
        store.add(&letter("good", "4111 1111 1111 1111")).await.unwrap();
        assert_eq!(desk.round().await.unwrap(), 0);
        desk.close().await.unwrap();
        assert_eq!(desk.office.list(&Filter::default(), 0, 10).await.unwrap().len(), 1);
        store.close().await;
    }
}
