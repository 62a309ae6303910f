//! All of it at once: copies, reordering, lost acks and answers, passes dropped at random awaits, restarts on both sides.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{InProcess, deliver::Recoverability, testing::Drops, transports::in_process::Faults};

use crate::{
    bank::{Bank, Book, Booked, SECOND, ask, book, run},
    wire::{Fate, Wire},
};

const LEASE: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test(start_paused = true)]
async fn each_key_is_one_effect_and_one_answer_on_a_bad_day() {
    for seed in 0..20 {
        let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: 5 * SECOND, lost_acks: 0.2 };
        let bank = Bank { hub: InProcess::with_faults("bad-day", LEASE, faults), ..Bank::new("bad-day") };
        let mut random = fastrand::Rng::with_seed(seed);
        let lines: Vec<Book> = (0..10).map(|n| book(&format!("account-{}", n % 3), &format!("line-{n}"))).collect();
        for round in 0..3 {
            // Two processes at a time.
            let seeds = [seed + 100 * round, seed + 100 * round + 50];
            let _running = (run(endpoint(&bank, seeds[0])).await, run(endpoint(&bank, seeds[1])).await);
            let clients = [bank.client("one").await, bank.client("two").await];
            let within = SECOND.mul_f64(5.0 * random.f64());
            let asked = lines.iter().map(|line| ask(&clients[random.usize(..2)], line, within)).collect::<Vec<_>>();
            join_all(asked).await;
        }
        let _running = (run(endpoint(&bank, seed)).await, run(endpoint(&bank, seed + 50)).await);
        let clients = [bank.client("one").await, bank.client("two").await];
        let asked = lines.iter().flat_map(|line| clients.iter().map(move |client| (line, client)));
        let answers = join_all(asked.map(async |(line, client)| (line, ask(client, line, DAY).await.unwrap()))).await;
        for (line, answer) in answers {
            let booked = bank.lines(&line.account);
            let at: Vec<usize> = (0..booked.len()).filter(|at| booked[*at].0 == line.line).collect();
            assert_eq!(at.len(), 1, "seed {seed}: {booked:?}");
            assert_eq!(answer, Booked { lines: at[0] + 1, run: booked[at[0]].1 }, "seed {seed}");
        }
        assert_eq!(bank.letters().await, [], "seed {seed}");
    }
}

/// Half of its answers are lost although they are confirmed; its passes are dropped at random awaits.
fn endpoint(bank: &Bank, seed: u64) -> hapax::endpoint::EndpointBuilder {
    let wire = Wire::to(&bank.hub, "one", move |number| {
        if fastrand::Rng::with_seed(seed + u64::from(number)).bool() { Fate::Lost } else { Fate::Sent }
    });
    let recoverability = Recoverability { poison_above: u32::MAX, ..Recoverability::default() };
    let settings = hapax::endpoint::Settings { recoverability, sweep_age: Duration::ZERO, ..Default::default() };
    bank.endpoint(wire).settings(settings).drops(Drops::new(seed, 0.3))
}
