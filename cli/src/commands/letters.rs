//! What was set aside: looked at, changed, given again, given up.

use std::{
    collections::HashSet,
    fs,
    io::{self, Read},
    path::Path,
    time::Duration,
};

use hapax::{
    claim::Claim,
    endpoint::office::{Action, DeadLetterOffice, Filter, Retried},
    envelope::Envelope,
    ids::{EndpointName, MessageId},
    operator::{
        DiscardedLetters, LeftLetter, Operator, RetriedLetters, ShownBody, ShownLetter, printable, printable_json,
        printable_lines,
    },
    ports::{DeadLetter, ErrorKind},
};
use serde::Serialize;

use super::{answered, cut, ended, endpoint, is_anywhere, open_store, warn_of_more};
use crate::{
    args::{Changing, Chosen, Common, DeadLetters, Edit, Filtered, Of},
    ask::Hand,
    failure::Failure,
    print::{Out, Table, counted},
    transport::{sending, way_out, with_transport},
};

/// Letters of one call at most: more is for another call, after a look at what these came to.
const AT_ONCE_MAX: usize = 10_000;
/// What is written down that was done, and where what is left of it is seen.
const RETRIED: &str = "retried dead letters";
const DISCARDED: &str = "discarded dead letters";
const EDITED: &str = "edited dead letter";
const LETTERS_LEFT: &str = "`hapax dead-letters list`";
/// Largest body that is read from a file, in bytes: above what brokers take.
const BODY_BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize)]
struct ShownAction {
    time: String,
    by: String,
    deed: hapax::endpoint::office::Deed,
    count: usize,
    messages: Vec<String>,
}

pub(super) async fn run(asked: DeadLetters, common: &Common, out: &mut Out) -> Result<(), Failure> {
    match asked {
        DeadLetters::List { filtered, skip, limit } => list(&filtered, (skip, limit), common, out).await,
        DeadLetters::Show { id, of } => show(&id, &of, common, out).await,
        DeadLetters::Edit(asked) => edit(&asked, common, out).await,
        DeadLetters::Retry { chosen, beyond_retention, changing } => {
            retry(&chosen, beyond_retention, &changing, common, out).await
        }
        DeadLetters::Discard { chosen, changing } => discard(&chosen, &changing, common, out).await,
        DeadLetters::Actions { endpoint } => actions(endpoint, common, out).await,
    }
}

fn filter(filtered: &Filtered) -> Filter {
    let Filtered { of, fingerprint, message_type, reason, since, before } = filtered;
    Filter {
        message_id: None,
        fingerprint: *fingerprint,
        message_type: message_type.clone(),
        saga: of.saga.clone(),
        reason: reason.clone(),
        since: *since,
        before: *before,
    }
}

/// With nobody in it who could change anything.
fn office(operator: &Operator, endpoint: &EndpointName) -> DeadLetterOffice {
    operator.dead_letter_office(endpoint, "", Duration::ZERO)
}

async fn list(filtered: &Filtered, page: (usize, usize), common: &Common, out: &mut Out) -> Result<(), Failure> {
    let operator = open_store(common).await?.operator;
    let ((skip, limit), endpoint) = (page, filtered.of.endpoint.as_ref());
    let letters = operator.shown_letters(endpoint, &filter(filtered), skip, limit.saturating_add(1)).await;
    let mut letters: Vec<ShownLetter> = answered(letters.map_err(|error| Failure::of(&error))?)?;
    cut(&mut letters, page, "dead letters");
    if letters.is_empty() {
        is_anywhere(&operator, endpoint, common).await?;
    }
    if common.json {
        return out.json(&letters);
    }
    if letters.is_empty() {
        return out.line("no such dead letters");
    }
    let mut table = Table::new(&["time", "endpoint", "saga", "message", "type", "attempts", "reason"]);
    for letter in letters {
        let ShownLetter { endpoint, saga, destination, reason, attempts, time, message, .. } = letter;
        let saga = saga.or_else(|| destination.map(|to| format!("to {to}"))).unwrap_or_else(|| "-".to_owned());
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        table.row([time, endpoint, saga, message.message_id, message.message_type, attempts.to_string(), reason]);
    }
    out.text(&table.text())
}

async fn show(id: &MessageId, of: &Of, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let operator = open_store(common).await?.operator;
    let filter = Filter { message_id: Some(id.clone()), saga: of.saga.clone(), ..Filter::default() };
    let letters = operator.dead_letters(of.endpoint.as_ref(), &filter, 0, AT_ONCE_MAX).await;
    let letters = answered(letters.map_err(|error| Failure::of(&error))?)?;
    if letters.is_empty() {
        return Err(Failure::new(format!(
            "there is no dead letter about message {id}: `hapax message {id}` tells what is known of it"
        )));
    }
    let whole: Vec<ShownLetter> = letters.iter().map(ShownLetter::whole).collect();
    if common.json { out.json(&whole) } else { out.text(&whole.iter().map(letter_text).collect::<Vec<_>>().join("\n")) }
}

fn letter_text(letter: &ShownLetter) -> String {
    let mut lines = vec![
        format!("message      {} ({})", letter.message.message_id, letter.message.message_type),
        format!("endpoint     {}", letter.endpoint),
    ];
    let mut add = |name: &str, value: Option<&String>| {
        lines.extend(value.map(|value| format!("{name:<12} {}", printable(value))));
    };
    add("saga", letter.saga.as_ref());
    add("destination", letter.destination.as_ref());
    add("set aside", Some(&letter.time));
    add("attempts", Some(&letter.attempts.to_string()));
    add("occurred", letter.message.occurred_at.as_ref());
    add("expires", letter.message.expires.as_ref());
    add("correlation", letter.message.correlation_id.as_ref());
    add("causation", letter.message.causation_id.as_ref());
    for (name, value) in &letter.message.headers {
        add("header", Some(&format!("{name}={value}")));
    }
    lines.push(format!(
        "reason       {}",
        letter.reason.lines().map(printable).collect::<Vec<_>>().join("\n             ")
    ));
    let body = match &letter.message.body {
        Some(ShownBody::Json(text)) => printable_json(text),
        Some(ShownBody::Text(text)) => printable_lines(text),
        Some(ShownBody::Hex(hex)) => format!("in hexadecimal digits: {hex}"),
        _ => String::new(),
    };
    lines.push(format!("fingerprint  {}", letter.fingerprint));
    lines.push(format!("body         {} bytes", letter.message.body_bytes));
    lines.push(body);
    printable_lines(&lines.join("\n")) + "\n"
}

/// What was chosen, all of it there.
async fn chosen(
    operator: &Operator,
    endpoint: &EndpointName,
    chosen: &Chosen,
    common: &Common,
) -> Result<Vec<DeadLetter>, Failure> {
    let (office, filter) = (office(operator, endpoint), filter(&chosen.filtered));
    if chosen.all {
        let letters = office.list(&filter, 0, AT_ONCE_MAX).await.map_err(|error| Failure::of(&error))?;
        warn_of_more(letters.len(), AT_ONCE_MAX);
        if letters.is_empty() {
            is_anywhere(operator, Some(endpoint), common).await?;
        }
        return Ok(letters);
    }
    let (mut letters, mut named) = (Vec::new(), HashSet::new());
    // One that is named twice is given once.
    for id in chosen.ids.iter().filter(|id| named.insert(*id)) {
        let of = Filter { message_id: Some(id.clone()), ..filter.clone() };
        let found = office.list(&of, 0, AT_ONCE_MAX).await.map_err(|error| Failure::of(&error))?;
        if found.is_empty() {
            return Err(Failure::new(format!(
                "there is no such dead letter about message {id} at endpoint {endpoint}, and nothing was done: `hapax dead-letters list` shows those there are"
            )));
        }
        letters.extend(found);
    }
    Ok(letters)
}

async fn retry(
    asked: &Chosen,
    beyond_retention: bool,
    changing: &Changing,
    common: &Common,
    out: &mut Out,
) -> Result<(), Failure> {
    let opened = open_store(common).await?;
    let by = way_out(&opened, common);
    let operator =
        if changing.dry_run { with_transport(opened, common).await? } else { sending(opened, common).await? };
    let endpoint = endpoint(&operator, &asked.filtered.of, asked.ids.first()).await?;
    let letters = chosen(&operator, &endpoint, asked, common).await?;
    let hand = Hand::new(changing, common);
    if letters.is_empty() {
        return done(out, common, &RetriedLetters::of(&endpoint, Retried::default()));
    }
    let beyond = if beyond_retention { ", whatever their age" } else { "" };
    let many = counted(letters.len(), "dead letter", "dead letters");
    if !hand.asks(&format!("send {many} of {endpoint} again by {by}{beyond}"), out)? {
        return Ok(());
    }
    hand.opens_log()?;
    let retention = operator.retention().await.map_err(|error| Failure::of(&error))?;
    let office = operator.dead_letter_office(&endpoint, &hand.by, retention);
    let retried = match beyond_retention {
        true => office.retry_beyond_retention(&letters).await,
        false => office.retry(&letters).await,
    };
    let retried = retried.map_err(|error| hand.broke_off(RETRIED, endpoint.as_str(), None, &error, LETTERS_LEFT))?;
    hand.writes_down(RETRIED, endpoint.as_str(), retried.done as u64)?;
    let retried = RetriedLetters::of(&endpoint, retried);
    let left = retried.left;
    ended(done(out, common, &retried), left > 0)
}

fn done(out: &mut Out, common: &Common, retried: &RetriedLetters) -> Result<(), Failure> {
    if common.json {
        return out.json(retried);
    }
    out.line(&format!("{}: {} sent again, {} left", retried.endpoint, retried.done, retried.left))?;
    for LeftLetter { message_id, saga, reason, .. } in &retried.reasons {
        let saga = saga.as_deref().map(|saga| format!(" of {saga}")).unwrap_or_default();
        out.line(&format!("  {}{saga}: {}", printable(message_id), printable(reason)))?;
    }
    Ok(())
}

async fn discard(asked: &Chosen, changing: &Changing, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let operator = open_store(common).await?.operator;
    let endpoint = endpoint(&operator, &asked.filtered.of, asked.ids.first()).await?;
    let letters = chosen(&operator, &endpoint, asked, common).await?;
    let hand = Hand::new(changing, common);
    let mut discarded = 0;
    if !letters.is_empty() {
        let claims = letters.iter().filter(|letter| Claim::of(&letter.envelope).is_some()).count();
        let bodies = match claims {
            0 => String::new(),
            _ => format!(
                " and leave the bodies of {claims} of them in their store for ever, for only the endpoint's own program lets go of them"
            ),
        };
        let many = counted(letters.len(), "dead letter", "dead letters");
        if !hand.asks(&format!("give up {many} of {endpoint} for good{bodies}"), out)? {
            return Ok(());
        }
        hand.opens_log()?;
        let office = operator.dead_letter_office(&endpoint, &hand.by, Duration::ZERO);
        let gone = office.discard(&letters).await;
        discarded = gone.map_err(|error| hand.broke_off(DISCARDED, endpoint.as_str(), None, &error, LETTERS_LEFT))?;
        hand.writes_down(DISCARDED, endpoint.as_str(), discarded as u64)?;
    }
    if common.json {
        return out.json(&DiscardedLetters::of(&endpoint, discarded));
    }
    out.line(&format!("{endpoint}: {discarded} discarded"))
}

async fn edit(asked: &Edit, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let changes = asked.body.is_some()
        || asked.message_type.is_some()
        || !asked.header.is_empty()
        || !asked.remove_header.is_empty()
        || asked.expires.is_some()
        || asked.never_expires;
    if !changes {
        return Err(Failure::usage(
            "nothing is to be changed: give --body, --type, --header, --remove-header, --expires or --never-expires",
        ));
    }
    let operator = open_store(common).await?.operator;
    let endpoint = endpoint(&operator, &asked.of, Some(&asked.id)).await?;
    let (message_id, saga) = (Some(asked.id.clone()), asked.of.saga.clone());
    let filter = Filter { message_id, saga, fingerprint: asked.fingerprint, ..Filter::default() };
    let found =
        office(&operator, &endpoint).list(&filter, 0, AT_ONCE_MAX).await.map_err(|error| Failure::of(&error))?;
    let body = asked.body.as_deref().map(read_body).transpose()?;
    let letter = match &found[..] {
        [letter] => letter,
        [] => {
            return Err(Failure::new(format!(
                "there is no dead letter about message {} at endpoint {endpoint}: `hapax dead-letters list` shows those there are",
                asked.id
            )));
        }
        many => cut_short(many, asked, body.as_ref()).ok_or_else(|| {
            Failure::new(format!(
                "there are {} dead letters about message {}: name the one of a saga, --saga NAME, or by what `hapax dead-letters show` tells, --fingerprint HEX; what an edit has left that was cut short \
                 is mended by the same edit",
                many.len(),
                asked.id
            ))
        })?,
    };
    // On a copy first, so that what cannot be is found before anybody is asked.
    changed(&mut (*letter.envelope).clone(), asked, body.as_ref()).map_err(Failure::usage)?;
    let hand = Hand::new(&asked.changing, common);
    if !hand.asks(&format!("change the dead letter about message {} of {endpoint}", asked.id), out)? {
        return Ok(());
    }
    hand.opens_log()?;
    let office = operator.dead_letter_office(&endpoint, &hand.by, Duration::ZERO);
    let edited = office.edit(letter, |envelope| {
        // It was tried on a copy of the same.
        let _ = changed(envelope, asked, body.as_ref());
    });
    let edited = edited.await.map_err(|error| match error.kind() {
        ErrorKind::Misconfigured => Failure::of(&error), // Nothing was done.
        _ => hand.broke_off(EDITED, asked.id.to_string().as_str(), None, &error, LETTERS_LEFT),
    })?;
    hand.writes_down(EDITED, asked.id.to_string().as_str(), 1)?;
    let shown = ShownLetter::whole(&edited);
    if common.json { out.json(&shown) } else { out.text(&letter_text(&shown)) }
}

/// The letter that was being edited in the same way when that was cut short: the one that it becomes is there as well.
fn cut_short<'a>(found: &'a [DeadLetter], asked: &Edit, body: Option<&Vec<u8>>) -> Option<&'a DeadLetter> {
    let [first, second] = found else { return None };
    [(first, second), (second, first)].into_iter().find_map(|(old, new)| {
        let mut envelope = (*old.envelope).clone();
        changed(&mut envelope, asked, body).ok()?;
        DeadLetter { envelope: envelope.into(), ..old.clone() }.is_same(new).then_some(old)
    })
}

fn changed(envelope: &mut Envelope, asked: &Edit, body: Option<&Vec<u8>>) -> Result<(), String> {
    if let Some(body) = body {
        envelope.body = body.clone().into();
    }
    if let Some(message_type) = &asked.message_type {
        envelope.message_type = message_type.clone();
    }
    for name in &asked.remove_header {
        envelope.headers.remove(name);
    }
    for (name, value) in &asked.header {
        envelope.headers.set(name, value).map_err(|error| error.to_string())?;
    }
    if asked.never_expires {
        envelope.expires = None;
    }
    envelope.expires = asked.expires.or(envelope.expires);
    Ok(())
}

fn read_body(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("{} cannot be read: {error}; nothing was done", path.display()));
    let mut body = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(BODY_BYTES_MAX + 1).read_to_end(&mut body)
    } else {
        fs::File::open(path).map_err(failed)?.take(BODY_BYTES_MAX + 1).read_to_end(&mut body)
    };
    if read.map_err(failed)? as u64 > BODY_BYTES_MAX {
        return Err(Failure::new(format!(
            "{} is larger than the {BODY_BYTES_MAX} bytes that are read: no broker takes it",
            path.display()
        )));
    }
    Ok(body)
}

async fn actions(of: Option<EndpointName>, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let operator = open_store(common).await?.operator;
    let endpoint = endpoint(&operator, &Of { endpoint: of, saga: None }, None).await?;
    let actions = office(&operator, &endpoint).actions().await.map_err(|error| Failure::of(&error))?;
    let shown = actions.into_iter().map(|Action { time, by, deed, count, messages, .. }| ShownAction {
        time: time.to_string(),
        by,
        deed,
        count,
        messages,
    });
    let shown: Vec<ShownAction> = shown.collect();
    if shown.is_empty() {
        is_anywhere(&operator, Some(&endpoint), common).await?;
    }
    if common.json {
        return out.json(&shown);
    }
    if shown.is_empty() {
        return out.line("nothing was done with dead letters here");
    }
    let mut table = Table::new(&["time", "by", "deed", "letters", "messages"]);
    for ShownAction { time, by, deed, count, messages } in shown {
        table.row([time, by, super::deed(deed), count.to_string(), messages.join(" ")]);
    }
    out.text(&table.text())
}
