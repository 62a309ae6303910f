//! What a person does with the messages that an endpoint has set aside: look, edit, retry, discard.
//!
//! A retried message goes to its endpoint's queue as any other, under its own id, so whatever of it has taken effect before is
//! recognised. It is taken by the saga that could not handle it and by no other.
//!
//! Between the queue and the letters there is no transaction, and a message that fails again at once must not lose the letter that is
//! just being removed. So a letter is first held in a place of its own, then taken from where it was, then sent, then let go: a crash
//! in between leaves it to be listed and retried again, and a message that fails meanwhile is a letter anew.

mod actions;
mod body;
mod filter;
mod pages;
mod retry;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, sync::Arc, time::Duration};

pub use actions::{Action, Deed};
use actions::{Actions, Call};
use body::{needs_the_same, unclaim};
pub use filter::Filter;
use pages::Pages;
pub use retry::{Left, Retried};
use sha2::{Digest, Sha256};

use crate::{
    claim::Spill,
    envelope::{Destination, Envelope},
    ids::{EndpointName, Fingerprint, MessageId, SagaName, hex},
    manager::Passes,
    ports::{Clock, DeadLetter, DeadLetters, Dispatcher, EntityStore, ErrorKind, Page, StoreError},
};

/// Letters that are looked at, retried or discarded together.
const AT_ONCE: usize = 100;
/// Letters of one message at most: one for each saga and each body. More would be somebody's mistake.
const OF_A_MESSAGE_MAX: usize = 1000;
/// What the place is called in which letters are held while they are retried, with the endpoint's name.
const HELD: &str = "hapax.held/";

/// The dead letters of one endpoint, and what can be done with them. Every action is recorded, with who did it, before it is done.
///
/// Let one person at a time work on the same letters: where two retry a letter at the same moment, and the second dies between two
/// steps while the message fails again, that letter may be gone. Where one gives a letter up while another retries it, both may be told that
/// they have done it: then its message was sent.
///
/// ```
/// # use hapax_core::endpoint::{EndpointBuilder, office::Filter};
/// # async fn run(shop: EndpointBuilder) -> Result<(), Box<dyn std::error::Error>> {
/// // The endpoint as it is put together for production. It need not run here.
/// let office = shop.start().await?.dead_letter_office("alice");
/// for letter in office.list(&Filter::default(), 0, 50).await? {
///     println!("{} {}: {}", letter.envelope.message_id, letter.envelope.message_type, letter.reason);
/// }
/// // The cause is mended:
/// let retried = office.retry_all(&Filter { reason: Some("no such item".into()), ..Filter::default() }).await?;
/// println!("{} retried, {} left", retried.done, retried.left);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DeadLetterOffice {
    endpoint: EndpointName,
    held: EndpointName,
    by: String,
    letters: Arc<dyn DeadLetters>,
    dispatcher: Arc<dyn Dispatcher>,
    clock: Arc<dyn Clock>,
    managers: Option<Arc<[Arc<dyn Passes>]>>,
    actions: Actions,
    spill: Option<Arc<Spill>>,
    retention: Duration,
}

/// What an endpoint has that its letters are about.
pub(super) struct Cabinet {
    pub(super) endpoint: EndpointName,
    pub(super) letters: Arc<dyn DeadLetters>,
    /// Where the record is kept.
    pub(super) entities: Arc<dyn EntityStore>,
    pub(super) dispatcher: Arc<dyn Dispatcher>,
    pub(super) clock: Arc<dyn Clock>,
    /// Who can tell which entity a letter is for; `None` where the endpoint itself is not there.
    pub(super) managers: Option<Arc<[Arc<dyn Passes>]>>,
    pub(super) spill: Option<Arc<Spill>>,
    pub(super) retention: Duration,
}

impl DeadLetterOffice {
    /// In which nobody works yet.
    pub(super) fn new(cabinet: Cabinet) -> Self {
        let Cabinet { endpoint, letters, entities, dispatcher, clock, managers, spill, retention } = cabinet;
        let actions = Actions::new(endpoint.clone(), entities);
        Self {
            held: held(&endpoint),
            by: String::new(),
            endpoint,
            letters,
            dispatcher,
            clock,
            managers,
            actions,
            spill,
            retention,
        }
    }

    /// Of an endpoint that is not there: nobody can tell which entity a letter is for.
    pub(crate) fn outside(
        endpoint: &EndpointName,
        (letters, entities): (Arc<dyn DeadLetters>, Arc<dyn EntityStore>),
        (dispatcher, clock): (Arc<dyn Dispatcher>, Arc<dyn Clock>),
        retention: Duration,
        by: String,
    ) -> Self {
        let endpoint = endpoint.clone();
        let (managers, spill) = (None, None);
        Self::new(Cabinet { endpoint, letters, entities, dispatcher, clock, managers, spill, retention }).of(by)
    }

    /// The same, in which `by` works.
    pub(super) fn of(&self, by: String) -> Self {
        Self { by, ..self.clone() }
    }

    /// Whose letters they are.
    pub(super) const fn endpoint(&self) -> &EndpointName {
        &self.endpoint
    }

    /// Letters that `filter` wants: those whose retry was cut short first, then the others, oldest first. Skips `skip` of them and
    /// shows `limit` at most. A filter looks at every letter up to there.
    ///
    /// # Errors
    /// Those of the place where they are kept.
    pub async fn list(&self, filter: &Filter, skip: usize, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.list_as(filter, skip, limit, |letter| letter).await
    }

    /// The same, with what `shown` leaves of each: bodies are large, and whoever does not need them holds those of one page of the place at a
    /// time.
    pub(crate) async fn list_as<T>(
        &self,
        filter: &Filter,
        skip: usize,
        limit: usize,
        shown: fn(DeadLetter) -> T,
    ) -> Result<Vec<T>, StoreError> {
        // Also of those that are skipped: a letter may be in both places, and is one; and where others take some away or add some, what was given
        // may come again.
        let (mut found, mut met, mut skipped) = (Vec::new(), HashSet::new(), 0);
        for place in [&self.held, &self.endpoint] {
            let mut pages = Pages::of(&*self.letters, place, filter.message_id.as_ref());
            while found.len() < limit {
                let letters = pages.turn().await?;
                if letters.is_empty() {
                    break;
                }
                for letter in letters.into_iter().map(|letter| self.of_the_endpoint(letter)) {
                    if !filter.wants(&letter) || !met.insert(Same::as_of(&letter)) {
                        continue;
                    }
                    if skipped < skip {
                        skipped += 1;
                    } else if found.len() < limit {
                        found.push(shown(letter));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Where letters are while they are retried.
    pub(crate) const fn held(&self) -> &EndpointName {
        &self.held
    }

    /// How many letters are held and not where they were, since their retry was cut short or goes on: of the first hundred.
    pub(crate) async fn held_alone(&self) -> Result<usize, StoreError> {
        let mut alone = 0;
        let held = self.letters.list(&self.held, &Page::first(AT_ONCE)).await?;
        for letter in held.into_iter().map(|letter| self.of_the_endpoint(letter)) {
            let message_id = Some(letter.envelope.message_id.clone());
            let page = Page { message_id, ..Page::first(OF_A_MESSAGE_MAX) };
            let there = self.letters.list(&self.endpoint, &page).await?;
            alone += usize::from(!there.iter().any(|other| other.is_same(&letter)));
        }
        Ok(alone)
    }

    /// All letters about one message.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub async fn show(&self, message: &MessageId) -> Result<Vec<DeadLetter>, StoreError> {
        let filter = Filter { message_id: Some(message.clone()), ..Filter::default() };
        self.list(&filter, 0, OF_A_MESSAGE_MAX).await
    }

    /// Changes the message of a letter: body, type, headers and whatever else does not say which message it is. The letter that is
    /// there afterwards is given back. A body that was sealed is so here; who has the keys [opens](crate::seal::Seals::open) it and
    /// [seals](crate::seal::Seals::seal) it again. A body that is elsewhere is here a [claim](crate::claim::Claim): a body that is put in
    /// its place travels with the message, and the other is let go of.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when message id or idempotency key was changed, the header of a claim was removed and the claim was
    /// not, or the letter is not there any more. Others are
    /// those of the store; after one both letters may be there, and one of them is to be discarded before all are retried.
    pub async fn edit(&self, letter: &DeadLetter, edit: impl FnOnce(&mut Envelope)) -> Result<DeadLetter, StoreError> {
        const OPERATION: &str = "editing a dead letter";
        let mut envelope = (*letter.envelope).clone();
        edit(&mut envelope);
        let (old, new) = (&letter.envelope, &envelope);
        if (&old.message_id, &old.idempotency_key) != (&new.message_id, &new.idempotency_key) {
            let why =
                "message id and idempotency key say which message it is, and must stay: send another message instead";
            return Err(StoreError::new(ErrorKind::Misconfigured, OPERATION, why));
        }
        unclaim(old, &mut envelope).map_err(|why| StoreError::new(ErrorKind::Misconfigured, OPERATION, why))?;
        if !self.is_there(letter).await? {
            let why = "it is not there any more: somebody has retried, edited or discarded it";
            return Err(StoreError::new(ErrorKind::Misconfigured, OPERATION, why));
        }
        let edited = DeadLetter { envelope: Arc::new(envelope), ..letter.clone() };
        self.record(&mut Call::new(Deed::Edited), std::slice::from_ref(letter)).await?;
        if edited.is_same(letter) {
            // Only what makes no other letter of it was changed, such as a header: the old one must go first.
            self.letters.add(&self.in_hand(&edited)).await?;
            self.letters.discard(std::slice::from_ref(letter)).await?;
            self.letters.add(&edited).await?;
            self.letters.discard(&[self.in_hand(&edited)]).await?;
        } else {
            self.letters.add(&edited).await?;
            self.letters.discard(&[letter.clone(), self.in_hand(letter)]).await?;
            if !needs_the_same(&letter.envelope, &edited.envelope) {
                self.let_go(std::slice::from_ref(letter)).await?;
            }
        }
        Ok(edited)
    }

    /// Removes `letters`: their messages are given up. How many were there, each counted once, in however many places it was.
    ///
    /// # Errors
    /// Those of the place where they are kept; some may be gone by then.
    pub async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut met = HashSet::new();
        let letters: Vec<_> = letters.iter().filter(|letter| met.insert(Same::as_of(letter))).cloned().collect();
        self.discard_some(&letters, &mut Call::new(Deed::Discarded)).await
    }

    async fn discard_some(&self, letters: &[DeadLetter], call: &mut Call) -> Result<usize, StoreError> {
        let mut gone = 0;
        for letters in letters.chunks(AT_ONCE) {
            self.record(call, letters).await?;
            // A place tells how many it had, and not which: one that may be in both, while it is retried, is taken alone.
            let held = if letters.len() > 1 { self.held_now().await? } else { HashSet::new() };
            let (in_both, others): (Vec<_>, Vec<_>) =
                letters.iter().cloned().partition(|letter| held.contains(&Same::as_of(letter)));
            gone += self.take(&others).await?;
            for letter in &in_both {
                gone += self.take(std::slice::from_ref(letter)).await?;
            }
            self.let_go(letters).await?;
        }
        Ok(gone)
    }

    /// Takes `letters` out of both places. How many there were: right where none, or no other, is in both.
    async fn take(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        if letters.is_empty() {
            return Ok(0);
        }
        let held: Vec<_> = letters.iter().map(|letter| self.in_hand(letter)).collect();
        let there = self.letters.discard(letters).await?;
        Ok((there + self.letters.discard(&held).await?).min(letters.len()))
    }

    /// Which letters are held.
    async fn held_now(&self) -> Result<HashSet<Same>, StoreError> {
        let (mut held, mut pages) = (HashSet::new(), Pages::of(&*self.letters, &self.held, None));
        loop {
            let letters = pages.turn().await?;
            if letters.is_empty() {
                return Ok(held);
            }
            held.extend(letters.iter().map(Same::as_of));
        }
    }

    /// Removes all letters that `filter` wants, those that come meanwhile excepted. How many there were.
    ///
    /// # Errors
    /// As for [`discard`](Self::discard).
    pub async fn discard_all(&self, filter: &Filter) -> Result<usize, StoreError> {
        let filter = filter.until_now(self.clock.now().await.0);
        let (mut gone, mut call) = (0, Call::new(Deed::Discarded));
        loop {
            let letters = self.list(&filter, 0, AT_ONCE).await?;
            let discarded = self.discard_some(&letters, &mut call).await?;
            if discarded == 0 {
                return Ok(gone);
            }
            gone += discarded;
        }
    }

    /// What was done with the endpoint's letters, oldest first: the last 500 actions, or fewer where they are large. A call of this office
    /// is one action. None where the endpoint has no store, or one that takes entities of less than 64 KB: they are only in the log then.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn actions(&self) -> Result<Vec<Action>, StoreError> {
        self.actions.list().await
    }

    async fn is_there(&self, letter: &DeadLetter) -> Result<bool, StoreError> {
        Ok(self.show(&letter.envelope.message_id).await?.iter().any(|other| other.is_same(letter)))
    }

    async fn record(&self, call: &mut Call, letters: &[DeadLetter]) -> Result<(), StoreError> {
        if letters.is_empty() {
            return Ok(());
        }
        let messages: Vec<String> = letters.iter().map(|letter| letter.envelope.message_id.to_string()).collect();
        tracing::info!(endpoint = %self.endpoint, by = self.by, deed = ?call.deed, ?messages, "dead letters");
        self.actions.add(call, (self.clock.now().await.0, &self.by), messages).await
    }

    /// `letter` as it is held while it is retried.
    fn in_hand(&self, letter: &DeadLetter) -> DeadLetter {
        DeadLetter { endpoint: self.held.clone(), ..letter.clone() }
    }

    fn of_the_endpoint(&self, letter: DeadLetter) -> DeadLetter {
        DeadLetter { endpoint: self.endpoint.clone(), ..letter }
    }
}

/// What two letters of one endpoint have in common that [are the same](DeadLetter::is_same), without their bodies.
#[derive(PartialEq, Eq, Hash)]
struct Same {
    message_id: MessageId,
    saga: Option<SagaName>,
    destination: Option<Destination>,
    fingerprint: Fingerprint,
}

impl Same {
    fn as_of(letter: &DeadLetter) -> Self {
        let DeadLetter { envelope, saga, destination, .. } = letter;
        Self {
            message_id: envelope.message_id.clone(),
            saga: saga.clone(),
            destination: destination.clone(),
            fingerprint: Fingerprint::of(envelope),
        }
    }
}

/// Where the letters of `endpoint` are held. A name that has no room for more is told by its hash.
fn held(endpoint: &EndpointName) -> EndpointName {
    let named = EndpointName::parse(format!("{HELD}{endpoint}"));
    let hashed = || EndpointName::parse(format!("{HELD}{}", hex(&Sha256::digest(endpoint.as_str()))));
    named.or_else(|_| hashed()).unwrap_or_else(|_| endpoint.clone())
}

impl std::fmt::Debug for DeadLetterOffice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetterOffice")
            .field("endpoint", &self.endpoint)
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}
