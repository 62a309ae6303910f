//! Ports in databases that refuse a row, with which the server may show it, or give back what cannot be read.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use hapax::{
    entity::{Entity, Expected, OutboxEntry},
    envelope::{Destination, Outgoing},
    ids::{DedupKey, EndpointName, EntityKey},
    ports::{BodyName, BodyReference, Connected, DeadLetter, NewBody, Page, Settlement, Staged, Take},
};
use hapax_tests::samples;
use tokio::time::timeout;

use crate::{
    ear::Ear,
    ground::{Damage, Ground},
};

/// Members of a group, which are written one by one when it is refused.
const TOGETHER: usize = 8;
/// Long enough for what is in a queue to come.
const RECEIVE: Duration = Duration::from_millis(500);

/// Of one secret, which is in everything that is not a name.
struct Samples {
    endpoint: EndpointName,
    keys: Vec<EntityKey>,
    outgoing: Outgoing,
    entry: Arc<OutboxEntry>,
    entity: Entity,
    letter: DeadLetter,
    body: NewBody,
}

impl Samples {
    fn new(ear: &Ear) -> Self {
        let secret = &ear.secret;
        let endpoint = samples::endpoint();
        let mut envelope = samples::envelope(secret.as_bytes());
        envelope.headers.set("card", secret).unwrap();
        let own = Destination::Endpoint(endpoint.clone());
        let outgoing = Outgoing { destination: own, envelope: Arc::new(envelope) };
        let entry = OutboxEntry { reply: Some(0), ..(*samples::entry_of(vec![outgoing.clone()])).clone() };
        let letter = DeadLetter { envelope: outgoing.envelope.clone(), ..samples::letter(endpoint.clone(), "") };
        let keys: Vec<EntityKey> = (0..TOGETHER).map(|number| samples::key(&format!("key-{number}"))).collect();
        let message_id = outgoing.envelope.message_id.clone();
        let staged = Staged { name: BodyName::of(&entry.attempt, 0), entity: keys[0].clone(), attempt: entry.attempt };
        let body = NewBody {
            staged,
            references: vec![BodyReference { message_id, endpoint: endpoint.clone(), saga: None }],
            bytes: secret.clone().into(),
        };
        let entry = Arc::new(entry);
        let entity = samples::entity(secret.as_bytes(), std::slice::from_ref(&entry));
        Self { endpoint, keys, outgoing, entry, entity, letter, body }
    }

    fn key(&self) -> DedupKey {
        self.entry.key
    }

    /// Writes everything, and tells of it; how many calls have failed.
    async fn write(&self, ground: &Ground, connected: &Connected, ear: &Ear) -> usize {
        let mut failed = 0;
        let saves = self.keys.iter().map(|key| ground.entities.save(key, &Expected::Absent, &self.entity, &[]));
        for saved in join_all(saves).await {
            failed += usize::from(ear.fails(saved));
        }
        let mark = self.entry.to_dedup_entry();
        failed += usize::from(ear.fails(ground.dedup.insert(std::slice::from_ref(&mark)).await));
        let adding = (0..TOGETHER).map(|_| ground.letters.add(&self.letter));
        for added in join_all(adding).await {
            failed += usize::from(ear.fails(added));
        }
        failed +=
            usize::from(ear.fails(ground.schedule.put(&self.endpoint, std::slice::from_ref(&self.outgoing)).await));
        if let Some(bodies) = &ground.bodies {
            failed += usize::from(ear.fails(bodies.put(&self.body).await));
        }
        ear.shown(connected);
        let all = vec![self.outgoing.clone(); TOGETHER];
        for sent in connected.dispatcher.dispatch(&all).await {
            failed += usize::from(ear.fails(sent));
        }
        if let Ok(Ok(deliveries)) = timeout(RECEIVE, connected.receiver.receive(TOGETHER / 2)).await {
            ear.shown(&deliveries);
            for delivery in deliveries {
                let aside = Settlement::DeadLetter { reason: "it failed".into() };
                ear.fails(connected.receiver.settle(&delivery.receipt, aside).await);
            }
        }
        failed
    }

    /// Reads everything, and tells of it; how many calls have failed.
    async fn read(&self, ground: &Ground, connected: &Connected, ear: &Ear) -> usize {
        let mut failed = 0;
        let loads = self.keys.iter().map(|key| ground.entities.load(key, &[]));
        for loaded in join_all(loads).await {
            failed += usize::from(loaded.as_ref().err().map(|error| ear.error(error)).is_some());
        }
        let scope = self.keys[0].scope();
        failed += usize::from(ear.fails(ground.entities.pending(scope, Duration::ZERO, None, 10).await));
        failed += usize::from(ear.fails(ground.dedup.contains(&[self.key()]).await));
        failed += usize::from(ear.fails(ground.letters.list(&self.endpoint, &Page::first(10)).await));
        let take = Take { within: Duration::ZERO, max: 10, bytes_max: usize::MAX, lease: Duration::from_secs(1) };
        failed += usize::from(ear.fails(ground.schedule.take_due(&self.endpoint, take).await));
        failed += usize::from(ear.fails(ground.schedule.next(&self.endpoint).await));
        if let Some(bodies) = &ground.bodies {
            failed += usize::from(ear.fails(bodies.staged(&self.endpoint, Duration::ZERO, 10).await));
            failed += usize::from(ear.fails(bodies.get(&self.body.staged.name, None).await));
        }
        if let Ok(received) = timeout(RECEIVE, connected.receiver.receive(10)).await {
            failed += usize::from(ear.fails(received));
        }
        failed
    }
}

async fn tells_nothing(ground: Ground) {
    let ear = Ear::new();
    let samples = Samples::new(&ear);
    let connected = ground.queue.connect(&samples.endpoint, &[]).await.unwrap();
    ground.refuse().await;
    let refused = samples.write(&ground, &connected, &ear).await;
    assert!(refused >= TOGETHER + 3, "{refused} calls were refused");
    ground.allow().await;
    ear.assert_untold();
    assert_eq!(samples.write(&ground, &connected, &ear).await, 0);
    for damage in [Damage::Cut, Damage::Unknown] {
        ground.damage(damage).await;
        let failed = samples.read(&ground, &connected, &ear).await;
        assert!(failed >= 1, "{failed} calls have found something damaged: {damage:?}");
    }
    ear.assert_untold();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_stored_is_told_of_whatever_sqlite_refuses_or_damages() {
    tells_nothing(Ground::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_stored_is_told_of_whatever_postgres_refuses_or_damages() {
    tells_nothing(Ground::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_stored_is_told_of_whatever_mysql_refuses_or_damages() {
    tells_nothing(Ground::mysql().await).await;
}
