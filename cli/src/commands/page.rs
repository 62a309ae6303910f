//! The web page, served until it is ended.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    sync::Mutex,
    time::Duration,
};

use hapax::operator::{LogLine, masked_url};
use hapax_page::{Actions, Counts, Page, PageError, Scraped, Token};
use serde::Serialize;
use tokio::net::TcpListener;

use super::{open, open_store, selection, status::stopped, warn};
use crate::{
    args::{Common, PageArgs},
    ask::{opened_log, user},
    failure::Failure,
    print::Out,
    transport::{sending, with_transport},
    warnings::Warnings,
};

/// Largest file that is read as a token, in bytes: a token has 256 at most, and white space around it.
const TOKEN_BYTES_MAX: u64 = 1024;

/// How often it is looked whether there are warnings to be said.
const WARNED_EVERY: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Served<'a> {
    url: &'a str,
    actions: bool,
    guarded: bool,
}

pub(super) async fn run(asked: &PageArgs, common: &Common, warnings: &Warnings, out: &mut Out) -> Result<(), Failure> {
    let token = asked.token_file.as_deref().map(token).transpose()?;
    // A name is for a proxy, by which other hosts come.
    let is_for_others = !asked.listen.ip().is_loopback() || !asked.host.is_empty();
    let guard = match (is_for_others, asked.actions) {
        (true, _) => Some(guard(token.as_ref())?),
        (false, true) => None,
        (false, false) => token.clone(),
    };
    // What cannot be written is found out before anything is done.
    let log = asked.log.as_deref().map(opened_log).transpose()?;
    let operator = if asked.actions {
        sending(open_store(common).await?, common).await?
    } else {
        with_transport(open(common).await?, common).await?
    };
    let mut page = Page::new(operator).of(selection(&asked.of)).bodies(asked.bodies);
    page = asked.host.iter().fold(page, Page::host);
    page = guard.clone().into_iter().fold(page, Page::guarded);
    if !asked.metrics.is_empty() {
        page = page.counts(Counts::from(Scraped::start(&asked.metrics).map_err(|error| wrong(&error))?));
    }
    let actions = token.filter(|_| asked.actions).map(|token| {
        let store = masked_url(&common.store().unwrap_or_default());
        let log = Mutex::new(log);
        Actions::new(token).by(user(asked.by.as_deref())).store(store).writes(move |line| written(line, &log))
    });
    page = actions.iter().cloned().fold(page, Page::actions);
    let listener = TcpListener::bind(asked.listen).await.map_err(|error| {
        Failure::new(format!(
            "{} cannot be listened on: {error}; name another one, --listen ADDRESS:PORT",
            asked.listen
        ))
    })?;
    let address = listener.local_addr().map_err(|error| Failure::of(&error))?;
    let url = format!("http://{address}/");
    if common.json {
        out.json_lines = true;
        out.json(&Served { url: &url, actions: asked.actions, guarded: guard.is_some() })?;
    } else {
        let what = if asked.actions { "with actions" } else { "read-only" };
        out.line(&format!("the page is at {url} ({what}); Ctrl-C ends it"))?;
    }
    // It may be served for months: what it is warned of is not for its end.
    let served = tokio::select! {
        served = hapax_page::serve(listener, page.router(), stopped()) => served,
        never = warned(warnings) => match never {},
    };
    if let Some(actions) = actions {
        actions.ended().await;
    }
    served.map_err(|error| Failure::of(&error))
}

/// Says what was warned of, again and again.
async fn warned(warnings: &Warnings) -> std::convert::Infallible {
    let mut ticks = tokio::time::interval(WARNED_EVERY);
    loop {
        ticks.tick().await;
        warn(&warnings.take());
    }
}

fn wrong(error: &PageError) -> Failure {
    Failure::usage(error.to_string())
}

/// What is served to other hosts is for who knows the token.
fn guard(token: Option<&Token>) -> Result<Token, Failure> {
    token.cloned().ok_or_else(|| {
        Failure::usage(
            "it would be served to other hosts, and anybody there could read it: add --token-file FILE, and let TLS end before it; or listen on 127.0.0.1",
        )
    })
}

fn token(path: &Path) -> Result<Token, Failure> {
    let unread = |error: io::Error| {
        let path = path.display();
        Failure::usage(format!(
            "the token in {path} cannot be read: {error}; `openssl rand -hex 16 > {path}` makes one"
        ))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unread)?;
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(unread)?;
    Token::parse(&text).map_err(|error| wrong(&error))
}

/// To the standard error, and where `--log` says.
fn written(line: &LogLine<'_>, log: &Mutex<Option<File>>) {
    let line = line.json();
    let _ = writeln!(io::stderr(), "{line}"); // There is nowhere else to say it.
    let mut log = log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(file) = log.as_mut() else { return };
    if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
        let _ =
            writeln!(io::stderr(), "hapax: it is done, and the log could not be written: {error}; keep the line above");
    }
}
