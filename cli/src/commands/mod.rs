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
    ids::{EndpointName, MessageId},
    operator::{EndpointStatus, Operator, Selection},
    ports::Answer,
};

use crate::{
    args::{Args, Command, Common, Of, Outbox},
    failure::{Failure, in_our_words},
    place::{Opened, Place},
    print::Out,
    transport::on_transport,
    warnings::Warnings,
};

/// Endpoints that are named where another was mistyped.
const TOLD_MAX: usize = 10;
/// Where so many are known, there may be others: the library lists 10,000 sagas.
const KNOWN_MAX: usize = 1_000;

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
        Command::Migrate(asked) => migrate::run(&asked, &common, &warnings, out).await,
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

/// That the endpoint which was named is one. Where the store knows its own, and nothing is there of this one, the name was mistyped, and all
/// that is told of it would be zeros.
async fn is_there(operator: &Operator, endpoint: Option<&EndpointName>) -> Result<(), Failure> {
    let Some(endpoint) = endpoint else { return Ok(()) };
    let known = operator.endpoints(&Selection::default()).await.map_err(|error| Failure::of(&error))?;
    // Where names are not listed, or perhaps not all, nobody knows.
    let Some(known) = known.is().filter(|known| known.len() < KNOWN_MAX) else { return Ok(()) };
    if known.contains(endpoint) {
        return Ok(());
    }
    let of = Selection { endpoint: Some(endpoint.clone()), saga: None };
    let status = operator.status(&of, 1).await.map_err(|error| Failure::of(&error))?;
    let found: Vec<&EndpointStatus> = status.endpoints.is().into_iter().flatten().collect();
    if found.iter().any(|endpoint| has_something(endpoint)) {
        return Ok(());
    }
    let untold = found.iter().map(|endpoint| match &endpoint.queue {
        Answer::Unknown { why } => format!("; what is in its queue is not known here: {why}"),
        Answer::Is(_) => String::new(),
    });
    let untold: String = untold.collect();
    let names: Vec<&str> = known.iter().take(TOLD_MAX).map(EndpointName::as_str).collect();
    let there = match known.len() {
        0 => "nor has any other".to_owned(),
        many if many > names.len() => format!("there are {many}, of them {}", names.join(", ")),
        1 => format!("there is: {}", names.join(", ")),
        _ => format!("there are: {}", names.join(", ")),
    };
    Err(Failure::new(format!("endpoint {endpoint} has stored nothing here; {there}{untold}")))
}

/// The same for what needs no transport: the one that was named is asked where nothing else is known of the endpoint, for a broker may have
/// messages for it.
async fn is_anywhere(operator: &Operator, endpoint: Option<&EndpointName>, common: &Common) -> Result<(), Failure> {
    let (Some(name), Some(url)) = (endpoint, common.transport()) else { return is_there(operator, endpoint).await };
    let Err(stored) = is_there(operator, endpoint).await else { return Ok(()) };
    match (on_transport(operator.clone(), &url, common).await, stored) {
        (Ok(operator), _) => is_there(&operator, endpoint).await,
        (Err(Failure::Failed(why)), Failure::Failed(stored)) => {
            Err(Failure::new(format!("{stored}; and whether the queue of {name} has anything is not known: {why}")))
        }
        (Err(failure), _) => Err(failure),
    }
}

/// Something that is known without the endpoint's entities. Letters that cannot be counted may be there.
fn has_something(endpoint: &EndpointStatus) -> bool {
    endpoint.queue.is().is_some_and(|queue| queue.messages.number > 0)
        || endpoint.dead_letters.is().is_none_or(|letters| letters.number > 0)
        || endpoint.schedule.is().is_some_and(|schedule| schedule.messages.number > 0)
}

/// The one endpoint that is meant. Where none is known, a letter about `message` is not there either, and no name would find it.
async fn endpoint(operator: &Operator, of: &Of, message: Option<&MessageId>) -> Result<EndpointName, Failure> {
    let mut known = endpoints(operator, of).await?;
    match (known.len(), message) {
        (1, _) => Ok(known.remove(0)),
        (0, Some(id)) => Err(Failure::new(format!(
            "there is no dead letter about message {id}, and nothing was done: no endpoint has left anything in this store, see whether it is the one that is meant"
        ))),
        (0, None) => Err(Failure::usage("no endpoint has left anything in this store: name it, --endpoint NAME")),
        _ => {
            let names: Vec<String> = known.iter().map(ToString::to_string).collect();
            Err(Failure::usage(format!("there are several endpoints, {}: name one, --endpoint NAME", names.join(", "))))
        }
    }
}
