//! What goes by an outbox: stored in a transaction, sent later by a relay.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    Context, Endpoint, HandlerError, Relay,
    entity::DedupEntry,
    envelope::{Destination, Outgoing},
    ids::MessageId,
    inbox::{CommitError, Entered, Inbox, TransactionHandler},
    ports::{Care, Cared, Claim, Claimed, Evicted, Instance, OutboxState, OutboxTable, StoreError, Tick, Ticked},
    relay::{PushLine, RelayOptions},
};
use hapax_stores::Memory;
use hapax_transports::InProcess;
use support::{
    Seen, attribute, is_child, is_linked,
    shop::{self, Bill, Fate, Place, place, sender},
};
use tracing::Instrument;

/// An inbox and an outbox of one kind of transaction, which does nothing.
#[derive(Debug, Clone, Default)]
struct Tables(Arc<Mutex<Vec<Outgoing>>>);

#[async_trait]
impl Inbox for Tables {
    type Transaction = ();

    async fn enter(&self, _: &DedupEntry) -> Result<Entered<()>, StoreError> {
        Ok(Entered::First(()))
    }

    async fn commit(&self, (): (), _: &DedupEntry, outgoing: &[Outgoing]) -> Result<(), CommitError> {
        self.0.lock().unwrap().extend_from_slice(outgoing);
        Ok(())
    }

    fn is_of_a_race(&self, _: &(dyn Error + 'static)) -> bool {
        false
    }

    async fn evict(&self, _: Duration) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }
}

#[async_trait]
impl OutboxTable for Tables {
    fn name(&self) -> &str {
        "tables"
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn is_told(&self) -> bool {
        false
    }

    fn attach(&self, _: &Arc<PushLine>) -> bool {
        true
    }

    fn detach(&self, _: &Arc<PushLine>) {}

    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        let mut ticked = Ticked { ended: tick.ended.len(), ..Ticked::default() };
        if let Some(claiming) = tick.claiming {
            let rows = std::mem::take(&mut *self.0.lock().unwrap());
            let claimed = |outgoing: Outgoing| Claimed {
                claim: Claim { id: outgoing.envelope.message_id.clone(), token: claiming.token },
                attempts: 1,
                expired: false,
                key: None,
                outgoing: Ok(outgoing),
            };
            ticked.claimed = rows.into_iter().map(claimed).collect();
        }
        Ok(ticked)
    }

    async fn care(&self, _: &Care) -> Result<Cared, StoreError> {
        Ok(Cared::default())
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        Ok(OutboxState::new(0, 0, 0, 1))
    }

    async fn leave(&self, _: &Instance) -> Result<(), StoreError> {
        Ok(())
    }
}

struct Bills;

impl TransactionHandler<Place, Tables> for Bills {
    const NAME: &'static str = "bills";

    async fn handle(&self, place: Place, cx: &mut Context, (): &mut ()) -> Result<(), HandlerError> {
        cx.send("billing", Bill { order: place.order, card: place.card })
    }
}

async fn relayed(seen: &Seen, store: &Memory, hub: &InProcess, tables: &Tables) {
    let end = || tokio::time::sleep(Duration::from_secs(60));
    // It tells every second or so what it has done.
    let options = RelayOptions::default().care(Duration::from_secs(1), 1);
    let relay = Relay::to(hub.clone()).table_with(tables.clone(), options).traces_as("in-process", seen.traces.clone());
    let relay = relay.metrics(seen.metrics.clone()).run_until(end());
    let (relay, billing) = tokio::join!(relay, shop::billing(seen, store, hub.clone()).run_until(end()));
    relay.unwrap();
    billing.unwrap();
}

/// The handler of a transaction creates its messages in its own span, whoever sends them when.
#[tokio::test(start_paused = true)]
async fn a_relayed_message_was_created_by_the_handler_of_its_transaction() {
    let (seen, store, hub, tables) = (Seen::begin(), Memory::new(), InProcess::new("inbox"), Tables::default());
    sender(&seen, &hub).send("front", &place("inbox", Fate::Billed)).await.unwrap();
    let front = Endpoint::builder("front").transport(hub.clone()).traces(seen.traces.clone());
    let front = front.in_transaction::<Place, _, _>(&Arc::new(tables.clone()), Bills);
    front.run_until(tokio::time::sleep(Duration::from_secs(1))).await.unwrap();
    relayed(&seen, &store, &hub, &tables).await;

    let spans = seen.spans();
    let (process, create) = (spans.only("process front"), spans.only("create billing"));
    assert!(is_child(create, process), "{create:?}");
    let send = spans.only("send billing");
    assert!(is_linked(send, create) && !is_child(send, process), "{send:?}");
    assert_eq!(attribute(send, "messaging.system").as_deref(), Some("in-process"));
    assert!(is_child(spans.only("process billing"), create));
    assert_eq!(seen.measured().sum("hapax.relay.sent", &[("table", "tables")]), 1.0);
}

/// What no handler stores says itself where it was created.
#[tokio::test(start_paused = true)]
async fn what_a_request_stores_was_created_by_the_request() {
    let (seen, store, hub, tables) = (Seen::begin(), Memory::new(), InProcess::new("request"), Tables::default());
    let stored = async {
        let bill = Bill { order: "request".into(), card: "none".into() };
        let mut envelope = hub.sender().envelope(MessageId::random(), &bill).unwrap();
        envelope.traceparent = hapax_otel::current();
        Outgoing { destination: Destination::parse("endpoint:billing").unwrap(), envelope: envelope.into() }
    };
    let stored = stored.instrument(tracing::info_span!("request")).await;
    tables.0.lock().unwrap().push(stored);
    relayed(&seen, &store, &hub, &tables).await;

    let spans = seen.spans();
    let request = spans.only("request");
    assert!(is_child(spans.only("process billing"), request));
    assert!(is_linked(spans.only("send billing"), request));
}

/// Outside of any span there is no context, and nothing is made up.
#[test]
fn outside_of_any_span_there_is_no_context() {
    let _seen = Seen::begin();
    assert_eq!(hapax_otel::current(), None);
}
