//! Other libraries that relay an outbox in PostgreSQL to RabbitMQ, in the rounds of hapax, each as a program of its own from
//! `bench/peers`: their dependencies are none of ours.

use std::{path::Path, process::Command};

use super::{Options, by_hand, cases, place::PostgresPlace};
use crate::{AnyError, figure::Figure, postgres::Database, program::Program};

/// How many times pg-transactional-outbox hapax must be, by the faster of its listeners.
const TIMES: f64 = 10.0;
const BARRED: &str = "pg-transactional-outbox";
/// Its program, which node runs; `cargo xtask bench` installs what it needs beside it.
const SCRIPT: &str = "bench/peers/pg-transactional-outbox/relay.js";

/// One peer.
#[derive(Debug, Clone, Copy)]
struct Peer {
    /// Of its program; or of pg-transactional-outbox and one of its listeners.
    name: &'static str,
    listener: Option<&'static str>,
    /// How its relay is set up.
    mapping: &'static str,
    /// What it does not guarantee.
    lacks: &'static str,
}

const ALL: [Peer; 5] = [
    Peer {
        name: BARRED,
        listener: Some("replication"),
        mapping: "its replication listener, 32 at a time (semaphore), connections for each; attempts and poison not counted; \
                  each message confirmed and marked in a transaction of its own",
        lacks: "nothing guards against poison in this set-up; a slot that nobody reads keeps the server's log for ever",
    },
    Peer {
        name: BARRED,
        listener: Some("polling"),
        mapping: "its polling listener, all messages parallel, 256 a poll once the last are done, 32 connections; each message \
                  confirmed and marked in a transaction of its own",
        lacks: "a poll locks the oldest message, and one that is being handled then fails and waits for the next lease",
    },
    Peer {
        name: "relay-hexeract",
        listener: None,
        mapping: "8 of its workers, 256 a poll; its handler publishes, one message after the other in each",
        lacks: "what was sent is never removed",
    },
    Peer {
        name: "relay-outbox-postgres",
        listener: None,
        mapping: "8 of its managers, 256 a batch; its transport publishes, one message after the other in each",
        lacks: "a lease is not fenced, so that what outlasts it is sent twice",
    },
    Peer {
        name: "relay-backbone-outbox",
        listener: None,
        mapping: "one relay, since it takes no lock; 256 a pass, one message after the other, each marked by itself",
        lacks: "two relays send twice; what was sent is never removed",
    },
];

impl Peer {
    fn title(&self) -> String {
        let listener = self.listener.map(|listener| format!(", {listener}"));
        format!("{}{}", self.name.trim_start_matches("relay-"), listener.unwrap_or_default())
    }

    fn command(&self, dir: &Path) -> Result<Command, AnyError> {
        let program = self.listener.map_or_else(|| dir.join(self.name), |_| SCRIPT.into());
        let installed = program.with_file_name("node_modules").exists();
        if !program.exists() || (self.listener.is_some() && !installed) {
            let missing = "is not there, or not what it needs: `cargo xtask bench outbox --peers` builds it and says why \
                           where it cannot";
            return Err(format!("{} {missing}", program.display()).into());
        }
        let Some(listener) = self.listener else { return Ok(Command::new(program)) };
        let mut command = Command::new("node");
        command.arg(program).args(["--listener", listener]);
        Ok(command)
    }
}

struct Measured {
    peer: Peer,
    /// Its messages in a second, and how many times that hapax's are.
    rounds: Vec<(f64, f64)>,
    /// Why it is not measured.
    failed: Option<String>,
}

/// Each round hapax, and then each peer; one that cannot be measured is told aloud and left out from then on.
pub(super) async fn measure(options: &Options) -> Result<Vec<Figure>, AnyError> {
    let mut measured = ALL.map(|peer| Measured { peer, rounds: Vec::new(), failed: None });
    let mut ours = Vec::new();
    for round in 1..=options.rounds {
        let rate = cases::relayed::<PostgresPlace>(options).await?;
        eprintln!("  {round}/{}: hapax {rate:.0}/s", options.rounds);
        ours.push(rate);
        for Measured { peer, rounds, failed } in measured.iter_mut().filter(|peer| peer.failed.is_none()) {
            match run(peer, options).await {
                Ok(theirs) => {
                    eprintln!("    {}: {theirs:.0}/s, hapax / it {:.1}", peer.title(), rate / theirs);
                    rounds.push((theirs, rate / theirs));
                }
                Err(error) => {
                    eprintln!("    {} is NOT MEASURED: {error}", peer.title());
                    *failed = Some(error.to_string());
                }
            }
        }
    }
    Ok(figures(ours, measured.into()))
}

fn figures(ours: Vec<f64>, measured: Vec<Measured>) -> Vec<Figure> {
    let count = ours.len();
    let mut figures = vec![
        Figure::of(
            "peers: hapax / pg-transactional-outbox, by the faster of its listeners",
            "",
            barred(count, &measured),
        )
        .median_at_least(TIMES),
        Figure::of("peers: hapax", "/s", ours),
    ];
    for Measured { peer, rounds, failed } in measured {
        let title = peer.title();
        if let Some(why) = failed {
            figures
                .push(Figure::of(format!("peers: {title}"), "/s", Vec::new()).notes([format!("NOT MEASURED: {why}")]));
            continue;
        }
        let notes = [format!("there: {}", peer.mapping), format!("not guaranteed there: {}", peer.lacks)];
        let rates = rounds.iter().map(|(rate, _)| *rate).collect();
        figures.push(Figure::of(format!("peers: {title}"), "/s", rates).notes(notes));
        let times = rounds.iter().map(|(_, times)| *times).collect();
        figures.push(Figure::of(format!("peers: hapax / {title}"), "", times));
    }
    figures
}

/// The least ratio of each round. Without any one of its listeners there is no faster one, and the bar is missed.
fn barred(rounds: usize, measured: &[Measured]) -> Vec<f64> {
    let named = || measured.iter().filter(|measured| measured.peer.name == BARRED);
    if named().any(|measured| measured.failed.is_some() || measured.rounds.len() != rounds) {
        return Vec::new();
    }
    (0..rounds).map(|round| named().map(|measured| measured.rounds[round].1).fold(f64::INFINITY, f64::min)).collect()
}

#[derive(Debug, serde::Deserialize)]
struct Drained {
    seconds: f64,
    /// By what its table says.
    sent: u64,
}

/// What a peer sends in a second of a backlog of its own.
async fn run(peer: &Peer, options: &Options) -> Result<f64, AnyError> {
    let mut command = peer.command(&options.peers_dir)?;
    let broker = by_hand::Broker::open(&options.rabbitmq, cases::queue()).await?;
    broker.purge().await?;
    let database = Database::create(&options.postgres, "peer").await?;
    command.args(["--database", &database.url, "--rabbitmq", &options.rabbitmq, "--queue", &cases::queue()]);
    command.args(["--backlog", &options.peer_backlog.to_string()]);
    let done = tokio::task::spawn_blocking(move || {
        let mut program = Program::start(&mut command)?;
        program.ready()?;
        program.measured::<Drained>()
    });
    let done = done.await?;
    let in_queue = broker.purge().await?;
    let removed = database.remove().await;
    let Drained { seconds, sent } = done?;
    removed?;
    if sent != u64::from(options.peer_backlog) || in_queue < options.peer_backlog {
        let count = options.peer_backlog;
        return Err(format!("of {count} messages {sent} are stored as sent, and {in_queue} came to the queue").into());
    }
    Ok(f64::from(options.peer_backlog) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(peer: Peer, times: &[f64], failed: bool) -> Measured {
        let rounds = times.iter().map(|times| (1.0, *times)).collect();
        Measured { peer, rounds, failed: failed.then(|| "why".to_owned()) }
    }

    #[test]
    fn the_bar_is_by_the_faster_listener_of_each_round() {
        let both = [measured(ALL[0], &[9.0, 30.0], false), measured(ALL[1], &[20.0, 11.0], false)];
        assert_eq!(barred(2, &both), [9.0, 11.0]);
        let others = [measured(ALL[2], &[1.0], false)];
        assert_eq!(barred(1, &others), [f64::INFINITY], "which no bar is met by");
    }

    #[test]
    fn a_peer_that_was_not_measured_is_named_and_the_bar_is_missed_without_it() {
        let figures = figures(vec![5.0], vec![measured(ALL[0], &[], true), measured(ALL[1], &[50.0], false)]);
        assert!(!figures[0].is_met());
        assert!(
            figures.iter().any(|figure| figure.line(true).contains("replication: no figure\n      NOT MEASURED: why"))
        );
    }
}
