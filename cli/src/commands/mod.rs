//! What each command does: asks the library, and prints what it says.

mod audit;
mod debezium;
mod doctor;
mod letters;
mod message;
mod migrate;
mod outbox;
#[cfg(feature = "page")]
mod page;
mod status;
mod sweep;

use std::io::{self, Write};

use clap::CommandFactory;
use hapax::{
    endpoint::office::Deed,
    ids::EndpointName,
    operator::{Operator, Selection},
    ports::Answer,
};

use crate::{
    args::{Args, Command, Common, Of, Outbox},
    failure::{Failure, in_our_words},
    place::{Opened, Place},
    print::Out,
    warnings::Warnings,
};

/// Does what was asked.
pub(crate) async fn run(args: Args, out: &mut Out) -> Result<(), Failure> {
    let (common, warnings) = (args.common, Warnings::listen());
    if common.json && args.command.prints_no_json() {
        return Err(Failure::usage("what it prints is no JSON: leave --json out"));
    }
    let ended = match args.command {
        Command::Completion { shell } => return completion(shell.into(), out),
        Command::Outbox(Outbox::Debezium(asked)) => return debezium::run(&asked, &common, out),
        Command::Doctor(asked) => return doctor::run(&asked, &common, &warnings, out).await,
        Command::Migrate(asked) => migrate::run(&asked, &common, out).await,
        Command::Status(asked) => status::run(&asked, &common, out).await,
        Command::DeadLetters(asked) => letters::run(asked, &common, out).await,
        Command::Outbox(asked) => outbox::run(asked, &common, out).await,
        Command::Message(asked) => message::run(&asked, &common, out).await,
        Command::Sweep(asked) => sweep::run(&asked, &common, out).await,
        #[cfg(feature = "page")]
        Command::Page(asked) => page::run(&asked, &common, &warnings, out).await,
        Command::Audit(asked) => audit::run(&asked, &common, &warnings, out).await,
    };
    warn(&warnings.take());
    ended
}

fn completion(shell: clap_complete::Shell, out: &mut Out) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "hapax", &mut text);
    out.text(&String::from_utf8_lossy(&text))
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(io::stderr(), "hapax: warning: {}", in_our_words(warning)); // There is nowhere else to say it.
    }
}

/// Says it where all were asked for and there may be more than one call takes.
fn warn_of_more(taken: usize, most: usize) {
    if taken >= most {
        warn(&[format!("one call takes {most} at most: what there is beyond them is for another one")]);
    }
}

/// Leaves `limit` of what was listed with one more than that, and says it where there are more.
fn cut<T>(listed: &mut Vec<T>, (skip, limit): (usize, usize), what: &str) {
    if listed.len() > limit {
        listed.truncate(limit);
        warn(&[format!("there are more {what}: --skip {} shows the next", skip.saturating_add(limit))]);
    }
}

/// What is there, with what could not be looked at said.
async fn open(common: &Common) -> Result<Opened, Failure> {
    let opened = Place::of(common)?.open(common).await?;
    warn(&opened.left_out);
    Ok(opened)
}

/// The same for what needs a store.
async fn open_store(common: &Common) -> Result<Opened, Failure> {
    let opened = open(common).await?;
    if !opened.has_store {
        return Err(Failure::new(
            "there are outbox tables alone, and no store: name the database of the endpoint's store, or `hapax migrate` makes one",
        ));
    }
    Ok(opened)
}

fn selection(of: &Of) -> Selection {
    Selection { endpoint: of.endpoint.clone(), saga: of.saga.clone() }
}

/// The answer, or why there is none with what to do.
fn answered<T>(answer: Answer<T>) -> Result<T, Failure> {
    match answer {
        Answer::Is(answer) => Ok(answer),
        Answer::Unknown { why } => Err(Failure::new(format!("not known here: {why} (--endpoint, --saga)"))),
    }
}

/// What was done, as it stands in JSON.
fn deed(deed: Deed) -> String {
    serde_json::to_string(&deed).unwrap_or_default().replace('"', "") // A name cannot fail.
}

/// How a command ends that has printed what it found. That something is not as it should be counts also where nobody reads on.
fn ended(printed: Result<(), Failure>, is_found: bool) -> Result<(), Failure> {
    match printed {
        Ok(()) if is_found => Err(Failure::Found),
        printed => printed,
    }
}

/// The endpoints that are meant: the one that was named, or all that are known.
async fn endpoints(operator: &Operator, of: &Of) -> Result<Vec<EndpointName>, Failure> {
    let known = operator.endpoints(&Selection { endpoint: of.endpoint.clone(), saga: None }).await;
    answered(known.map_err(|error| Failure::of(&error))?)
}

/// The one endpoint that is meant.
async fn endpoint(operator: &Operator, of: &Of) -> Result<EndpointName, Failure> {
    let mut known = endpoints(operator, of).await?;
    match known.len() {
        1 => Ok(known.remove(0)),
        0 => Err(Failure::usage("no endpoint has left anything in this store: name it, --endpoint NAME")),
        _ => {
            let names: Vec<String> = known.iter().map(ToString::to_string).collect();
            Err(Failure::usage(format!("there are several endpoints, {}: name one, --endpoint NAME", names.join(", "))))
        }
    }
}
