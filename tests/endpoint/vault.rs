//! A vault that is told words, an ear that hears of them, and what both are told in envelopes that are sealed or not.

use std::time::Duration;

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Memory, Message, Saga, Sender, codec::Codec,
    endpoint::EndpointBuilder, envelope::Envelope, seal::Seals, testing::Harness,
};
use serde::{Deserialize, Serialize};

use crate::{cipher::AesGcm, work::settings};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const WORD: &str = "xyzzy-is-not-to-be-read";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tell {
    pub(crate) vault: String,
    pub(crate) word: String,
}

impl Message for Tell {
    const TYPE: &'static str = "sealed.tell";
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) words: Vec<String>,
}

impl Message for Told {
    const TYPE: &'static str = "sealed.told";
}

#[derive(Debug, Serialize, Deserialize)]
struct Wipe {
    vault: String,
}

impl Message for Wipe {
    const TYPE: &'static str = "sealed.wipe";
}

/// Words that it was told, until a minute has passed.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vault {
    pub(crate) words: Vec<String>,
}

impl Saga for Vault {
    const NAME: &'static str = "vault";
}

impl Handle<Tell> for Vault {
    fn correlate(tell: &Tell) -> Correlation<'_> {
        (&tell.vault).into()
    }

    async fn handle(&mut self, tell: Tell, cx: &mut Context) -> Result<(), HandlerError> {
        if self.words.is_empty() {
            cx.timeout(MINUTE, Wipe { vault: tell.vault })?;
        }
        self.words.push(tell.word);
        let told = Told { words: self.words.clone() };
        if cx.incoming().reply_to.is_some() { cx.reply(told) } else { cx.publish(told) }
    }
}

impl Handle<Wipe> for Vault {
    fn correlate(wipe: &Wipe) -> Correlation<'_> {
        (&wipe.vault).into()
    }

    async fn handle(&mut self, _: Wipe, cx: &mut Context) -> Result<(), HandlerError> {
        cx.complete();
        Ok(())
    }
}

/// Hears what is told.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ear {
    pub(crate) heard: Vec<Vec<String>>,
}

impl Saga for Ear {
    const NAME: &'static str = "ear";
}

impl Handle<Told> for Ear {
    fn correlate(_: &Told) -> Correlation<'_> {
        "all".into()
    }

    async fn handle(&mut self, told: Told, _: &mut Context) -> Result<(), HandlerError> {
        self.heard.push(told.words);
        Ok(())
    }
}

pub(crate) fn vault(store: &Memory, seals: impl Into<Seals>) -> EndpointBuilder {
    let vault = Endpoint::builder("vault").store(store.clone()).settings(settings()).seals(seals);
    vault.saga::<Vault>(|vault| vault.starts::<Tell>().handles::<Wipe>())
}

pub(crate) async fn start(seals: impl Into<Seals>) -> Harness {
    Harness::start(vault(&Memory::new(), seals)).await.unwrap()
}

pub(crate) fn tell(word: &str) -> Tell {
    Tell { vault: "v".into(), word: word.into() }
}

/// An envelope that tells `word`.
pub(crate) fn telling(id: &str, word: &str) -> Envelope {
    Sender::envelope_with(Codec::default(), id.parse().unwrap(), &tell(word)).unwrap()
}

pub(crate) fn sealed(seals: &Seals, mut envelope: Envelope) -> Envelope {
    seals.seal(&mut envelope).unwrap();
    envelope
}

pub(crate) async fn words(harness: &Harness) -> Vec<String> {
    harness.state::<Vault>("v").await.unwrap().map(|vault| vault.words).unwrap_or_default()
}

pub(crate) async fn reasons(harness: &Harness) -> Vec<String> {
    let letters = harness.dead_letters().await.unwrap();
    letters.into_iter().map(|letter| letter.reason.lines().next().unwrap().to_owned()).collect()
}

pub(crate) fn shows(body: &[u8], word: &str) -> bool {
    body.windows(word.len()).any(|part| part == word.as_bytes())
}

pub(crate) fn aes() -> Seals {
    AesGcm::knowing(&["2026-11"]).into()
}
