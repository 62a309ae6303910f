//! Restate: a virtual object for each entity, on a server of its own in a folder for temporary files.

// Its macros make public methods without docs.
#![allow(missing_docs)]

use std::{
    collections::HashSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hapax_bench_peers::{
    Account, AnyError, Books, Changed, Delivery, Deposit, Order, Outbox, Report, cpu_seconds_of, fed,
};
use reqwest::Client;
use restate_sdk::prelude::*;
use uuid::Uuid;

/// Calls at a time: more gave less.
const AT_A_TIME: usize = 64;
/// Partitions: with its default of 24 it has a third of the speed on two cores.
const PARTITIONS: &str = "2";
/// Where `cargo xtask bench` puts the server.
const SERVER: &str = "target/peers/npm/node_modules/@restatedev";
const START_LIMIT: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(100);
const STATE: &str = "account";

fn main() -> ExitCode {
    hapax_bench_peers::main(run)
}

struct Entity;

#[object]
impl Entity {
    #[handler]
    async fn deposit(&self, context: ObjectContext<'_>, Json(deposit): Json<Deposit>) -> HandlerResult<()> {
        let stored = context.get::<Json<Account>>(STATE).await?;
        let mut account = stored.map_or_else(Account::usual, |Json(account)| account);
        let changed = account.apply(&deposit);
        context.set(STATE, Json(account));
        context.service_client::<SinkClient>().changed(Json(changed)).send();
        Ok(())
    }

    #[handler]
    async fn effects(&self, context: SharedObjectContext<'_>) -> HandlerResult<u64> {
        Ok(context.get::<Json<Account>>(STATE).await?.map_or(0, |Json(account)| account.effects))
    }
}

/// Account and effect of all that was sent: a call that is made again counts once.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<HashSet<String>>>);

#[service]
impl Sink {
    #[handler]
    async fn changed(&self, _context: Context<'_>, Json(changed): Json<Changed>) -> HandlerResult<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(changed.id());
        Ok(())
    }
}

impl Sink {
    fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

struct Restate {
    client: Client,
    ingress: String,
    sink: Sink,
    seen: Mutex<HashSet<Uuid>>,
}

impl Restate {
    fn seen(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

impl Outbox for Restate {
    async fn handle(&self, delivery: &Delivery) -> Result<bool, AnyError> {
        let url = format!("{}/Entity/{}/deposit", self.ingress, delivery.deposit.account);
        let call = self.client.post(url).header("idempotency-key", delivery.id.to_string());
        let call = call.header("content-type", "application/json").body(serde_json::to_vec(&delivery.deposit)?);
        call.send().await?.error_for_status()?;
        Ok(self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(delivery.id))
    }

    fn sent(&self) -> u64 {
        self.sink.count()
    }

    async fn unsent(&self) -> Result<i64, AnyError> {
        Ok(i64::try_from(self.seen())? - i64::try_from(self.sink.count())?)
    }
}

async fn run(order: Order) -> Result<Report, AnyError> {
    let (keys, sink, client) = (order.keys(), Sink::default(), Client::new());
    let service = free_port()?;
    let endpoint = Endpoint::builder().bind(Entity).bind(sink.clone()).build();
    tokio::spawn(HttpServer::new(endpoint).listen_and_serve(([127, 0, 0, 1], service).into()));
    let server = Server::start()?;
    server.knows(&client, service).await?;
    let ingress = format!("http://127.0.0.1:{}", server.ingress);
    let peer = Restate { client: client.clone(), ingress: ingress.clone(), sink: sink.clone(), seen: Mutex::default() };
    let process = server.child.id().to_string();
    let before = cpu_seconds_of(&process);
    let (mut sample, distinct) = fed(order, AT_A_TIME, Arc::new(peer)).await?;
    // The whole run is counted, the warm-up too: a tenth of it.
    sample.cpu_seconds += (cpu_seconds_of(&process) - before) / 1.1;
    let mut effects = 0;
    for key in keys {
        let answer = client.post(format!("{ingress}/Entity/{key}/effects")).send().await?.error_for_status()?;
        effects += answer.text().await?.trim().parse::<u64>()?;
    }
    Ok(Report { sample, books: Books { distinct, effects, versions: None, entries: None, outgoing: sink.count() } })
}

fn free_port() -> Result<u16, AnyError> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A running server, which goes with its folder.
struct Server {
    child: Child,
    folder: PathBuf,
    ingress: u16,
    admin: u16,
}

impl Server {
    fn start() -> Result<Self, AnyError> {
        let folder = std::env::temp_dir().join(format!("hapax-bench-restate-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let (ingress, admin, node) = (free_port()?, free_port()?, free_port()?);
        let log = fs::File::create(folder.join("log"))?;
        let mut command = Command::new(program()?);
        command.args(["--node-name", "bench", "--listen-mode", "tcp", "--bind-ip", "127.0.0.1"]);
        command.args(["--bind-port", &node.to_string(), "--default-num-partitions", PARTITIONS]);
        command.arg("--base-dir").arg(folder.join("data"));
        command.env("RESTATE_INGRESS__BIND_PORT", ingress.to_string());
        command.env("RESTATE_ADMIN__BIND_PORT", admin.to_string());
        command.env("RESTATE_DISABLE_TELEMETRY", "true").env("DO_NOT_TRACK", "1");
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(Self { child, folder, ingress, admin })
    }

    /// Tells it of the service, once it answers.
    async fn knows(&self, client: &Client, service: u16) -> Result<(), AnyError> {
        let begun = Instant::now();
        loop {
            let url = format!("http://127.0.0.1:{}/deployments", self.admin);
            let body = format!(r#"{{"uri": "http://127.0.0.1:{service}"}}"#);
            let asked = client.post(url).header("content-type", "application/json").body(body).send().await;
            match asked.and_then(reqwest::Response::error_for_status) {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > START_LIMIT => {
                    let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    let end: Vec<&str> = log.lines().rev().take(5).collect();
                    return Err(format!("the server does not answer: {error}; its log ends with {end:?}").into());
                }
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// The program itself, not the script that starts it: a script that is killed would leave the server behind.
fn program() -> Result<PathBuf, AnyError> {
    let found = fs::read_dir(SERVER).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut programs = found.map(|folder| folder.join("bin/restate-server")).filter(|program| Path::exists(program));
    programs
        .next()
        .ok_or_else(|| format!("{SERVER} has no server: `cargo xtask bench postgres --peers` installs it").into())
}
