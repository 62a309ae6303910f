//! What can be seen of a transport from outside.

use std::{sync::Arc, time::Duration};

use hapax::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{Connected, Settlement, Transport},
};

/// A message is sent so often, each time once the last was confirmed.
pub(crate) const SENT: usize = 3;
/// What has not come so long after another one, does not come.
const QUIET: Duration = Duration::from_secs(2);

/// How often a message comes that is sent several times under one id.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) copies: usize,
    /// The same on the transport that was asked for order, where that is another.
    pub(crate) copies_in_order: Option<usize>,
}

impl Seen {
    /// Of a transport as it is, and as it is with order asked for.
    ///
    /// # Panics
    /// When one that declares order does not keep it.
    pub(crate) async fn of(usual: &dyn Transport, asked_for: Option<&dyn Transport>) -> Self {
        let in_order = async {
            match asked_for {
                Some(ordered) => Some(copies(ordered).await),
                None => None,
            }
        };
        let order = async {
            let ordered = asked_for.unwrap_or(usual);
            if ordered.capabilities().ordered_keys {
                keeps_order(ordered).await;
            }
        };
        let (copies, copies_in_order, ()) = tokio::join!(copies(usual), in_order, order);
        Self { copies, copies_in_order }
    }
}

/// A queue of its own, and messages of one key to it.
#[derive(Debug)]
struct Queue {
    endpoint: EndpointName,
    message_type: TypeName,
    ends: Connected,
}

impl Queue {
    async fn open(transport: &dyn Transport) -> Self {
        let endpoint = EndpointName::parse(format!("table-{}", MessageId::random())).unwrap();
        let message_type = TypeName::parse("table.row").unwrap();
        let ends = transport.connect(&endpoint, std::slice::from_ref(&message_type)).await.unwrap();
        Self { endpoint, message_type, ends }
    }

    fn message(&self, body: Vec<u8>) -> Outgoing {
        let envelope = Envelope::new(MessageId::random(), self.message_type.clone(), body);
        let envelope = Envelope { partition_key: Some("table".parse().unwrap()), ..envelope };
        Outgoing { destination: Destination::Endpoint(self.endpoint.clone()), envelope: Arc::new(envelope) }
    }

    async fn send(&self, message: &Outgoing) {
        for result in self.ends.dispatcher.dispatch(std::slice::from_ref(message)).await {
            result.unwrap();
        }
    }

    /// All that comes, each settled before more is asked for.
    async fn received(&self) -> Vec<MessageId> {
        let mut came = Vec::new();
        loop {
            let receiving = self.ends.receiver.receive(SENT);
            let deliveries = if came.is_empty() {
                receiving.await.unwrap()
            } else {
                match tokio::time::timeout(QUIET, receiving).await {
                    Ok(deliveries) => deliveries.unwrap(),
                    Err(_) => return came,
                }
            };
            for delivery in deliveries {
                self.ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
                came.push(delivery.envelope.message_id.clone());
            }
        }
    }
}

/// What is too large is refused before that, by the transport that is to take it.
async fn copies(transport: &dyn Transport) -> usize {
    let queue = Queue::open(transport).await;
    let most = transport.capabilities().message_bytes_max;
    assert!(
        queue.ends.dispatcher.check(&queue.message(vec![0; most])).is_err(),
        "with its headers it is larger than {most} bytes"
    );

    let message = queue.message(b"{}".to_vec());
    for _ in 0..SENT {
        queue.send(&message).await;
    }
    let came = queue.received().await;
    assert!(came.iter().all(|id| *id == message.envelope.message_id), "{came:?}");
    came.len()
}

/// A copy may come too, behind the first.
async fn keeps_order(transport: &dyn Transport) {
    let queue = Queue::open(transport).await;
    let mut sent = Vec::new();
    for _ in 0..SENT {
        let message = queue.message(b"{}".to_vec());
        queue.send(&message).await;
        sent.push(message.envelope.message_id.clone());
    }
    let mut came: Vec<MessageId> = Vec::new();
    for id in queue.received().await {
        if !came.contains(&id) {
            came.push(id);
        }
    }
    assert_eq!(came, sent, "{}", transport.capabilities().name);
}
