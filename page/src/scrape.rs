//! Numbers of other processes: read where Prometheus reads them.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use hapax_core::{operator::masked_url, ports::Answer};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, Uri, body::Bytes, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    PageError,
    counts::{Counts, History, Numbers, ProcessState, STEP, Sagas, counted},
    text_format,
};

/// How long a process may take to tell its numbers: well within a step.
const WITHIN: Duration = Duration::from_secs(3);
/// How much it may tell, in bytes: thousands of series, of which hapax has a few for each saga.
const BYTES_MAX: usize = 4 << 20;
/// Processes that are asked, at most: each is asked at every step.
const PROCESSES_MAX: usize = 64;

/// Reads what processes count as `hapax-otel` names it, every five seconds, while this or a clone of what is made of it is there.
#[derive(Debug, Clone)]
pub struct Scraped(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    began: Instant,
    processes: Vec<Process>,
    history: History,
}

struct Process {
    /// Scheme, host, port and path.
    uri: Uri,
    /// What it has told last.
    told: Option<Sagas>,
    error: Option<String>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("uri", &self.uri).field("error", &self.error).finish_non_exhaustive()
    }
}

impl Scraped {
    /// Begins to read at these addresses, such as `http://127.0.0.1:9464/metrics`.
    ///
    /// # Errors
    /// [`PageError::Metrics`]: without TLS, without users and passwords, and 64 at most.
    ///
    /// # Panics
    /// Outside a runtime of tokio.
    pub fn start(urls: &[impl AsRef<str>]) -> Result<Self, PageError> {
        let uris = urls.iter().map(|url| address(url.as_ref())).collect::<Result<Vec<Uri>, PageError>>()?;
        if uris.len() > PROCESSES_MAX {
            return Err(PageError::Metrics(format!("{} addresses", uris.len()), "64 are the most"));
        }
        let processes =
            uris.into_iter().map(|uri| Process { uri, told: None, error: Some("it was not asked yet".to_owned()) });
        let state = State { began: Instant::now(), processes: processes.collect(), history: History::default() };
        let state = Arc::new(Mutex::new(state));
        tokio::spawn(ask_again_and_again(Arc::downgrade(&state)));
        Ok(Self(state))
    }
}

fn address(url: &str) -> Result<Uri, PageError> {
    let wrong = |why| PageError::Metrics(masked_url(url), why);
    let uri: Uri = url.parse().map_err(|_| wrong("write it as http://HOST:PORT/metrics"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(host)) if host.as_str().contains('@') => {
            Err(wrong("users and passwords are not sent without TLS: read it by a proxy on this host"))
        }
        (Some("http"), Some(_)) => Ok(uri),
        (Some("https"), _) => Err(wrong("there is no TLS here: read it by a proxy on this host")),
        _ => Err(wrong("write it as http://HOST:PORT/metrics")),
    }
}

async fn ask_again_and_again(state: Weak<Mutex<State>>) {
    let mut ticks = tokio::time::interval(STEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(uris) = state.upgrade().map(|state| {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.processes.iter().map(|process| process.uri.clone()).collect::<Vec<_>>()
        }) else {
            return;
        };
        let mut asked = JoinSet::new();
        for (index, uri) in uris.into_iter().enumerate() {
            asked.spawn(async move {
                let told = tokio::time::timeout(WITHIN, ask(&uri)).await;
                (index, told.unwrap_or_else(|_| Err("it has not answered within 3 s".to_owned())))
            });
        }
        let told = asked.join_all().await;
        let Some(state) = state.upgrade() else { return };
        state.lock().unwrap_or_else(PoisonError::into_inner).heard(told);
    }
}

async fn ask(uri: &Uri) -> Result<Sagas, String> {
    let away = |error: &dyn std::error::Error| format!("it cannot be reached: {error}");
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(80))).await.map_err(|error| away(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| away(&error))?;
    // It goes with the answer, or with the time that it has.
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        let _ = connection.await; // The answer ends in the middle then, and says so.
    });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let request = Request::get(path).header(HOST, authority).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| format!("it cannot be asked: {error}"))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| away(&error))?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answers with {}: look at its address", response.status()));
        }
        let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
        body.map(|body| body.to_bytes()).map_err(|error| format!("its answer cannot be read: {error}"))
    };
    let body = answer.await?;
    let text = std::str::from_utf8(&body).map_err(|_| "its answer is no text".to_owned())?;
    text_format::read(text).ok_or_else(|| "it answers, and tells nothing of hapax: look at its address".to_owned())
}

impl State {
    fn now(&self) -> u64 {
        self.began.elapsed().as_secs() / STEP.as_secs()
    }

    /// What was counted since the last time; known only where every process has told both times.
    fn heard(&mut self, told: Vec<(usize, Result<Sagas, String>)>) {
        let (now, mut more) = (self.now(), Some(Numbers::default()));
        for (index, told) in told {
            let Some(process) = self.processes.get_mut(index) else { continue };
            match told {
                Ok(sagas) => {
                    match (&process.told, process.error.is_some()) {
                        (Some(before), false) => {
                            more.iter_mut().for_each(|more| more.add(increase(before, &sagas)));
                        }
                        _ => more = None,
                    }
                    (process.told, process.error) = (Some(sagas), None);
                }
                Err(why) => (process.error, more) = (Some(why), None),
            }
        }
        let step = self.history.step(now, None);
        match (step.as_mut(), more) {
            (Some(step), Some(more)) => step.add(more),
            _ => *step = more,
        }
    }
}

/// A counter that is below what it was has begun anew, with its process.
fn increase(before: &Sagas, after: &Sagas) -> Numbers {
    let mut total = Numbers::default();
    for (name, now) in after {
        let then = before.get(name).copied().unwrap_or_default();
        let more = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
        total.add(Numbers {
            handled: more(now.handled, then.handled),
            duplicates: more(now.duplicates, then.duplicates),
            dropped: more(now.dropped, then.dropped),
            dead_letters: more(now.dead_letters, then.dead_letters),
        });
    }
    total
}

impl From<Scraped> for Counts {
    fn from(scraped: Scraped) -> Self {
        Self::by(move || {
            let state = scraped.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut sagas = Sagas::new();
            for (name, numbers) in state.processes.iter().filter_map(|process| process.told.as_ref()).flatten() {
                sagas.entry(name.clone()).or_default().add(*numbers);
            }
            if state.processes.iter().all(|process| process.told.is_none()) {
                let why = |process: &Process| {
                    format!(
                        "{}: {}",
                        masked_url(&process.uri.to_string()),
                        process.error.as_deref().unwrap_or_default()
                    )
                };
                let why: Vec<String> = state.processes.iter().map(why).collect();
                return Answer::unknown(format!("no process has told its numbers yet: {}", why.join("; ")));
            }
            let processes = state.processes.iter();
            let processes = processes.map(|process| ProcessState {
                url: masked_url(&process.uri.to_string()),
                error: process.error.clone(),
            });
            let steps = state.history.told(state.now(), "not every process has told its numbers");
            Answer::Is(counted(&sagas, steps, processes.collect()))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(handled: u64) -> Sagas {
        let numbers = Numbers { handled, ..Numbers::default() };
        Sagas::from([(("shop".to_owned(), "order".to_owned()), numbers)])
    }

    #[test]
    fn a_process_that_began_anew_counts_from_nothing() {
        assert_eq!(increase(&told(10), &told(12)).handled, 2);
        assert_eq!(increase(&told(10), &told(3)).handled, 3);
        assert_eq!(increase(&Sagas::new(), &told(3)).handled, 3);
        assert_eq!(increase(&told(3), &Sagas::new()).handled, 0);
    }

    #[test]
    fn a_step_in_which_a_process_was_silent_is_not_known() {
        let process = |uri: &str| Process { uri: uri.parse().unwrap(), told: None, error: Some("new".to_owned()) };
        let processes = vec![process("http://a/"), process("http://b/")];
        let mut state = State { began: Instant::now(), processes, history: History::default() };
        let away = || Err("away".to_owned());
        let mut step = |of_a, of_b| {
            state.history = History::default();
            state.heard(vec![(0, of_a), (1, of_b)]);
            state.history.told(1, "gap").pop().unwrap().counted.is().map(|numbers| numbers.handled)
        };
        assert_eq!(step(Ok(told(5)), Ok(told(7))), None, "nothing to compare with");
        assert_eq!(step(Ok(told(6)), Ok(told(9))), Some(3));
        assert_eq!(step(Ok(told(7)), away()), None);
        assert_eq!(step(Ok(told(8)), Ok(told(11))), None, "what was counted while it was away is not of this step");
        assert_eq!(step(Ok(told(8)), Ok(told(12))), Some(1));
    }

    #[test]
    fn only_plain_addresses_are_read() {
        assert!(address("http://127.0.0.1:9464/metrics").is_ok() && address("http://[::1]:9464").is_ok());
        for wrong in ["https://a/metrics", "http://u:secret@a/metrics", "a:1/metrics", "/metrics", "ftp://a", "", "\0"]
        {
            let error = address(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
