//! The store on a PostgreSQL server, beside hand-written loops on the same server in the same rounds.

mod anchor;
mod backlog;
mod candidate;
mod cases;
mod options;
mod peers;
mod plots;
mod processes;
mod queue;
mod server;

pub(crate) use options::{HELP, Options, parse};
pub(crate) use processes::{ROLE, work};

use crate::{AnyError, figure::Figure, measure::Machine, run::Shape};

/// What one side runs.
#[derive(Debug, Clone)]
struct Load {
    shape: Shape,
    /// Connections of a hand-written loop.
    clients: usize,
    /// Of the store: 0 means its defaults.
    group_max: usize,
    writers: usize,
    readers: usize,
    /// Entities that wait to be sent from meanwhile, in the store's schema beforehand.
    backlog: u64,
}

/// Whether no bar is missed, or none is judged. Books that do not add up are an error.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let machine = Machine::of_this_run();
    let version = prepare(options)?;
    if options.plots {
        plots::write(&options.plots_dir, options, &machine, &version)?;
        return Ok(true);
    }
    let mut figures = Vec::new();
    for name in &options.only {
        eprintln!("{name}");
        let found = cases::case(name, options)?;
        found.iter().for_each(|figure| eprintln!("{}", figure.line(options.judged())));
        figures.extend(found);
    }
    println!("{}, PostgreSQL {version}", machine.line());
    figures.iter().for_each(|figure| println!("{}", figure.line(options.judged())));
    if let Some(file) = &options.json {
        let json = serde_json::json!({ "machine": machine, "server": version, "settings": options, "judged": options.judged(), "figures": figures });
        let json = serde_json::to_vec_pretty(&json)?;
        std::fs::write(file, json).map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!options.judged() || figures.iter().all(Figure::is_met))
}

/// Cleans up behind killed runs, and gives the server's version.
fn prepare(options: &Options) -> Result<String, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        server::sweep(&options.server).await?;
        server::version(&options.server).await
    })
}
