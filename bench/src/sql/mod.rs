//! The store on a database server, beside hand-written loops on the same server in the same rounds. What all servers share is
//! here; what each has of its own is in the folder with its name.

pub(crate) mod anchor;
mod backlog;
pub(crate) mod candidate;
mod cases;
pub(crate) mod near;
pub(crate) mod options;
mod plots;
mod processes;
pub(crate) mod queue;

pub(crate) use options::Options;
pub(crate) use processes::work;

use anchor::Anchor;
use candidate::Candidate;
use queue::Queues;

use crate::{
    AnyError,
    figure::Figure,
    measure::{Machine, Sample},
    run::Shape,
};

/// A kind of server.
#[derive(Debug)]
pub(crate) struct Kind {
    /// As the command line has it.
    pub(crate) command: &'static str,
    /// As people have it.
    pub(crate) title: &'static str,
    /// The argument that makes this program one of two processes on such a server.
    pub(crate) role: &'static str,
    /// What the hand-written loop works on, and what it is called in plots.
    pub(crate) batches: &'static str,
    pub(crate) batched: &'static str,
    /// What the help says of `--server`, and of what only this kind takes.
    pub(crate) server_help: &'static str,
    pub(crate) own_help: &'static str,
    /// The server, unless told otherwise; none: one is run.
    pub(crate) server: fn() -> Option<String>,
    /// Names of the peers that can be run beside it.
    pub(crate) peers: &'static [&'static str],
}

/// The place of one run on a server, with nothing of others in it: a schema or a database.
pub(crate) trait Place: Candidate + Anchor + Queues {
    const KIND: &'static Kind;
    type Beside: Beside;

    /// Drops what killed runs of this program and of the tests have left on the server, and says so.
    async fn sweep(server: &str) -> Result<(), AnyError>;

    /// The server's version, for who reads the figures.
    async fn version(server: &str) -> Result<String, AnyError>;

    /// A new one. It has not to pay for what its predecessor has left.
    async fn create(server: &str, name: &str) -> Result<Self, AnyError>;

    async fn remove(self) -> Result<(), AnyError>;

    /// What the server has done so far.
    async fn cost(&self) -> Result<Cost, AnyError>;

    /// Deadlocks that the server has seen so far.
    async fn deadlocks(&self) -> Result<u64, AnyError>;
}

/// Where a place is, for who opens a store there.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    /// Of the server, or of a database in it.
    pub(crate) url: String,
    /// Of a schema, or of the database.
    pub(crate) name: String,
}

/// What the server has done so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// CPU seconds of its processes; not a number where it does not run on this machine.
    pub(crate) cpu_seconds: f64,
    /// Flushes of its log.
    pub(crate) flushes: i64,
}

impl Cost {
    /// Adds the server's share between two costs to `sample`.
    pub(crate) fn add_to(sample: &mut Sample, before: Self, after: Self, share: f64) {
        sample.cpu_seconds += (after.cpu_seconds - before.cpu_seconds) * share;
        sample.flushes = Some(((after.flushes - before.flushes) as f64 * share) as u64);
    }
}

/// Other programs that are run in the rounds of a case.
pub(crate) trait Beside: Sized {
    /// Those that are wanted there.
    fn of(case: &str, options: &Options) -> Self;

    /// Runs each once. `ours` is what hapax did in the round.
    fn round(&mut self, options: &Options, shape: &Shape, ours: &Sample);

    fn figures(self, case: &str) -> Vec<Figure>;
}

/// None.
impl Beside for () {
    fn of(_: &str, _: &Options) {}

    fn round(&mut self, _: &Options, _: &Shape, _: &Sample) {}

    fn figures(self, _: &str) -> Vec<Figure> {
        Vec::new()
    }
}

/// What one side runs.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) shape: Shape,
    /// Connections of a hand-written loop.
    pub(crate) clients: usize,
    /// Of the store: 0 means its defaults.
    pub(crate) group_max: usize,
    pub(crate) writers: usize,
    pub(crate) readers: usize,
    /// Entities that wait to be sent from meanwhile, in the store's tables beforehand.
    pub(crate) backlog: u64,
}

/// Whether no bar is missed, or none is judged. Books that do not add up are an error.
pub(crate) fn bench<P: Place>(options: &Options) -> Result<bool, AnyError> {
    let machine = Machine::of_this_run();
    let version = prepare::<P>(options)?;
    if options.plots {
        plots::write::<P>(&options.plots_dir, options, &machine, &version)?;
        return Ok(true);
    }
    let mut figures = Vec::new();
    for name in &options.only {
        eprintln!("{name}");
        let found = cases::case::<P>(name, options)?;
        found.iter().for_each(|figure| eprintln!("{}", figure.line(options.judged())));
        figures.extend(found);
    }
    println!("{}, {} {version}", machine.line(), P::KIND.title);
    figures.iter().for_each(|figure| println!("{}", figure.line(options.judged())));
    if let Some(file) = &options.json {
        let json = serde_json::json!({ "machine": machine, "server": version, "settings": options, "judged": options.judged(), "figures": figures });
        let json = serde_json::to_vec_pretty(&json)?;
        std::fs::write(file, json).map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!options.judged() || figures.iter().all(Figure::is_met))
}

/// Cleans up behind killed runs, and gives the server's version.
fn prepare<P: Place>(options: &Options) -> Result<String, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        P::sweep(options.server()).await?;
        P::version(options.server()).await
    })
}
