//! Sealed messages on a bad day.

use hapax::{Endpoint, InProcess, Memory, Sender, codec::Codec, envelope::Destination, transports::in_process::Faults};
use tokio::sync::oneshot;

use crate::{
    cipher::AesGcm,
    vault::{Ear, MINUTE, Tell, Told, WORD, sealed, vault},
    work::settings,
};

/// Keys that two processes know; each seals with its last one.
type Keys = [&'static [&'static str]; 2];

/// Two versions beside each other: as one brings a key that it does not use yet, and as the next one uses it.
const VERSIONS: [Keys; 3] = [
    [&["2026-11"], &["2026-11"]],
    [&["2026-11"], &["2026-12", "2026-11"]],
    [&["2026-12", "2026-11"], &["2026-11", "2026-12"]],
];

/// Goal: sealed messages are handled once by two processes, whatever comes twice, late, in another order, or with its ack lost. Method: what is
/// told to the one endpoint is told on by it, both under seals with a nonce of its own for each.
#[tokio::test(start_paused = true)]
async fn two_processes_handle_each_sealed_message_once_although_copies_come_and_acks_get_lost() {
    for (seed, keys) in (0..6).zip(VERSIONS.into_iter().cycle()) {
        each_is_heard_once(seed, keys).await;
    }
}

async fn each_is_heard_once(seed: u64, keys: Keys) {
    const WORDS: usize = 60;
    let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: MINUTE / 12, lost_acks: 0.2 };
    let hub = InProcess::with_faults("sealed", MINUTE / 6, faults);
    let (vaults, ears) = (Memory::new(), Memory::new());
    let (mut stops, mut running) = (Vec::new(), Vec::new());
    for known in keys {
        let ear = Endpoint::builder("ear").store(ears.clone()).settings(settings()).seals(AesGcm::knowing(known));
        for endpoint in [vault(&vaults, AesGcm::knowing(known)), ear.saga::<Ear>(|ear| ear.starts::<Told>())] {
            let (stop, stopped) = oneshot::channel::<()>();
            let endpoint = endpoint.transport(hub.clone()).start().await.unwrap();
            running.push(tokio::spawn(endpoint.run_until(stopped)));
            stops.push(stop);
        }
    }
    for number in 0..WORDS {
        let tell = Tell { vault: format!("v-{number}"), word: format!("{WORD}-{number}") };
        let envelope = Sender::envelope_with(Codec::default(), format!("tell-{number}").parse().unwrap(), &tell);
        let to_vault = Destination::parse("endpoint:vault").unwrap();
        let seals = AesGcm::knowing(keys[number % 2]).into();
        hub.sender().send_envelope(to_vault, sealed(&seals, envelope.unwrap())).await.unwrap();
    }
    hub.idle().await;
    for stop in stops {
        stop.send(()).unwrap();
    }
    for running in running {
        running.await.unwrap().unwrap();
    }
    let mut heard: Vec<Vec<String>> = ears.entities().iter().flat_map(|(_, ear)| heard_by(&ear.state)).collect();
    heard.sort();
    let mut told: Vec<Vec<String>> = (0..WORDS).map(|number| vec![format!("{WORD}-{number}")]).collect();
    told.sort();
    assert_eq!(heard, told, "seed {seed}, {keys:?}");
}

pub(crate) fn heard_by(state: &[u8]) -> Vec<Vec<String>> {
    serde_json::from_slice::<Ear>(&state[hapax::codec::FRAME_BYTES..]).unwrap().heard
}
