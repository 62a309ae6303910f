//! What is in a message is not for logs, whoever writes them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use hapax::{
    Context, Correlation, Handle, Handler, HandlerError, Message, Needs, Saga, Sender,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, Settings},
    envelope::{Destination, Envelope},
    ids::{EndpointName, MessageId},
    ports::{DeadLetters, Page},
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

use crate::LogLines;

/// What has to come comes long before this, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl LogLines {
    /// Lines that tell what is in a message: as text, as the numbers of its bytes, or in base64, wherever it begins there.
    #[must_use]
    pub fn telling(&self, secret: &str) -> Vec<String> {
        let numbers = format!("{:?}", secret.as_bytes());
        let encoded = ["", ".", ".."].map(|before| {
            let text = STANDARD_NO_PAD.encode([before, secret].concat());
            text[4..text.len() - 4].to_owned()
        });
        let all = [secret, numbers.trim_matches(['[', ']'])].into_iter().chain(encoded.iter().map(String::as_str));
        all.flat_map(|text| self.with(text)).collect()
    }
}

/// Something to keep to oneself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Ends {
    Well,
    /// The first time it does not.
    WellAfterAll,
    Badly,
}

#[derive(Debug, Serialize, Deserialize)]
struct Keep {
    secret: String,
    ends: Ends,
}

impl Message for Keep {
    const TYPE: &'static str = "discreet.keep";
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    secret: String,
    ends: Ends,
}

impl Message for Kept {
    const TYPE: &'static str = "discreet.kept";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Vault {
    secrets: Vec<String>,
}

impl Saga for Vault {
    const NAME: &'static str = "vault";

    fn needs() -> Needs {
        Needs::default().and::<Ear>()
    }
}

impl Handle<Keep> for Vault {
    fn correlate(_: &Keep) -> Correlation<'_> {
        Correlation::of("vault", "one")
    }

    async fn handle(&mut self, Keep { secret, ends }: Keep, cx: &mut Context) -> Result<(), HandlerError> {
        match ends {
            Ends::Badly => return Err(HandlerError::permanent("it can never succeed")),
            Ends::WellAfterAll if !cx.get::<Ear>()?.0.tried.swap(true, Ordering::SeqCst) => {
                return Err(HandlerError::transient("not yet"));
            }
            Ends::Well | Ends::WellAfterAll => {}
        }
        self.secrets.push(secret.clone());
        cx.publish(Kept { secret, ends })
    }
}

/// Hears what came of it.
#[derive(Debug, Clone, Default)]
struct Ear(Arc<Heard>);

#[derive(Debug, Default)]
struct Heard {
    tried: AtomicBool,
    /// By how it ended.
    ends: [Notify; 2],
}

impl Handler<Kept> for Ear {
    const NAME: &'static str = "ear";

    async fn handle(&self, Kept { ends, .. }: Kept, _: &mut Context) -> Result<(), HandlerError> {
        self.0.ends[ends as usize].notify_one();
        Ok(())
    }
}

/// Nothing that anybody logs, hapax or a driver down to its level `debug`, tells a body or a header's value, nor does an error: of messages that
/// are handled, handled after a retry, set aside, read by people, and sent where nobody is.
///
/// `logged` has begun before anything was opened; `endpoint` has its stores and its transport. Of lines that begin with `filtered` the docs tell
/// that they are to be filtered: there is one, or the docs are to be changed.
///
/// # Panics
/// When something tells.
pub async fn is_discreet(
    logged: &LogLines,
    (name, endpoint): (&EndpointName, EndpointBuilder),
    sender: Sender,
    letters: &dyn DeadLetters,
    filtered: Option<&str>,
) {
    let secret = format!("secret-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let ear = Ear::default();
    let settings = Settings {
        recoverability: Recoverability { retry_delay: Duration::from_millis(50), ..Recoverability::default() },
        ..Settings::default()
    };
    let endpoint = endpoint.settings(settings).with(ear.clone());
    let endpoint = endpoint.saga::<Vault>(|vault| vault.starts::<Keep>()).handler(ear.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let endpoint = endpoint.start().await.expect("a start");
    let running = tokio::spawn(endpoint.run_until(async move { drop(stopped.await) }));
    for ends in [Ends::Well, Ends::WellAfterAll, Ends::Badly] {
        let keep = Keep { secret: secret.clone(), ends };
        let mut envelope: Envelope = sender.envelope(MessageId::random(), &keep).expect("an envelope");
        envelope.headers.set("card", secret.as_str()).expect("a header");
        let nowhere = Destination::Endpoint(format!("nobody-{:016x}", fastrand::u64(..)).parse().expect("a name"));
        if let Err(error) = sender.send_envelope(nowhere, envelope.clone()).await {
            assert!(!format!("{error} {error:?}").contains(&secret), "{error:?}");
        }
        sender.send_envelope(Destination::Endpoint(name.clone()), envelope).await.expect("it is sent");
    }
    let over = async {
        ear.0.ends[Ends::Well as usize].notified().await;
        ear.0.ends[Ends::WellAfterAll as usize].notified().await;
        while letters.list(name, &Page::first(10)).await.expect("a list").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("all of it ends");
    drop(stop);
    running.await.expect("no panic").expect("an end");
    // The listening itself works, so that silence says something.
    tracing::debug!(target: "discreet", told = secret.as_str(), "to see that it is heard");
    let (known, telling): (Vec<_>, Vec<_>) = logged
        .telling(&secret)
        .into_iter()
        .partition(|line| filtered.is_some_and(|filtered| line.starts_with(filtered)));
    assert!(telling.len() == 1 && telling[0].starts_with("DEBUG discreet"), "{telling:#?}");
    assert_eq!(
        !known.is_empty(),
        filtered.is_some(),
        "the driver has become discreet: the docs need no filter any more"
    );
}
