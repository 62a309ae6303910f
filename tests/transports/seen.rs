//! What can be seen of a transport from outside.

use std::{sync::Arc, time::Duration};

use hapax::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{Settlement, Transport},
};

/// A message is sent so often, each time once the last was confirmed.
pub(crate) const SENT: usize = 3;
/// What has not come so long after another one, does not come.
const QUIET: Duration = Duration::from_secs(1);

/// How often a message comes that is sent several times under one id.
///
/// What is too large is refused before that, by the transport that is to take it.
pub(crate) async fn copies(transport: &dyn Transport) -> usize {
    let endpoint = EndpointName::parse(format!("table-{}", MessageId::random())).unwrap();
    let message_type = TypeName::parse("table.row").unwrap();
    let ends = transport.connect(&endpoint, std::slice::from_ref(&message_type)).await.unwrap();
    let outgoing = |body: Vec<u8>| Outgoing {
        destination: Destination::Endpoint(endpoint.clone()),
        envelope: Arc::new(Envelope::new(MessageId::random(), message_type.clone(), body)),
    };
    let most = transport.capabilities().message_bytes_max;
    assert!(
        ends.dispatcher.check(&outgoing(vec![0; most])).is_err(),
        "with its headers it is larger than {most} bytes"
    );

    let message = outgoing(b"{}".to_vec());
    for _ in 0..SENT {
        for result in ends.dispatcher.dispatch(std::slice::from_ref(&message)).await {
            result.unwrap();
        }
    }
    let mut came = 0;
    loop {
        let receiving = ends.receiver.receive(SENT);
        let deliveries = match came {
            0 => receiving.await.unwrap(),
            _ => match tokio::time::timeout(QUIET, receiving).await {
                Ok(deliveries) => deliveries.unwrap(),
                Err(_) => return came,
            },
        };
        for delivery in deliveries {
            assert_eq!(delivery.envelope.message_id, message.envelope.message_id);
            came += 1;
            ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        }
    }
}
