//! The example as the program that a stranger runs: asked over HTTP, again and again and in parallel, killed and started again.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("hapax-http-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("bank.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that runs; it ends with the test.
struct Program {
    child: Child,
    address: String,
}

/// A request, to be sent any number of times.
#[derive(Clone)]
struct Ask {
    token: &'static str,
    /// Lines of the header.
    key: String,
    path: String,
    body: String,
}

impl Ask {
    fn deposit(key: &str, account: &str, cents: i64) -> Self {
        Self {
            token: "ann-secret",
            key: format!("Idempotency-Key: {key}\r\n"),
            path: format!("/accounts/{account}/deposits"),
            body: json!({ "cents": cents }).to_string(),
        }
    }
}

/// Status and body.
type Answer = (u16, Value);

impl Program {
    fn start(file: &Path, role: &[&str]) -> Self {
        let test = std::env::current_exe().unwrap();
        let program = test.parent().unwrap().parent().unwrap().join("examples").join("http");
        assert!(program.exists(), "{program:?} is missing: cargo build -p hapax-example-http --examples");
        let mut child =
            Command::new(program).arg(file).arg("127.0.0.1:0").args(role).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap_or_default().to_owned();
        assert!(!address.is_empty() || line == "the bank is open\n", "{line}");
        Self { child, address }
    }

    /// An error where the program has died.
    fn ask(&self, ask: &Ask) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let Ask { token, key, path, body } = ask;
        let authorization = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: bank\r\nConnection: close\r\n{authorization}{key}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body).unwrap_or(Value::Null));
        status.zip(body).ok_or_else(|| std::io::Error::other(format!("no whole answer: {answer:?}")))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn booked(number: u64, balance_cents: i64) -> Answer {
    (201, json!({ "number": number, "balance_cents": balance_cents }))
}

#[test]
fn retries_and_parallel_retries_are_one_booking_and_one_answer() {
    let folder = Folder::new();
    let mut program = Program::start(&folder.file(), &[]);
    let rent = Ask::deposit("\"rent-may\"", "7", 5000);
    assert_eq!(program.ask(&rent).unwrap(), booked(1, 5000));
    assert_eq!(program.ask(&rent).unwrap(), booked(1, 5000));
    assert_eq!(program.ask(&Ask { body: "{ \"cents\":5000 }".into(), ..rent.clone() }).unwrap(), booked(1, 5000));
    let parallel = Ask::deposit("\"rent-june\"", "7", 5000);
    thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| program.ask(&parallel).unwrap())).collect();
        for asked in asked {
            assert_eq!(asked.join().unwrap(), booked(2, 10_000));
        }
    });
    program.signal(Signal::TERM);
    assert!(program.child.wait().unwrap().success(), "a stop is no failure");
    let program = Program::start(&folder.file(), &[]);
    assert_eq!(program.ask(&rent).unwrap(), booked(1, 5000));
    assert_eq!(program.ask(&Ask::deposit("\"rent-july\"", "7", 1)).unwrap(), booked(3, 10_001));
}

#[test]
fn a_key_is_its_callers_on_its_route_and_for_one_request() {
    let folder = Folder::new();
    let program = Program::start(&folder.file(), &[]);
    let ask = |ask: &Ask| program.ask(ask).unwrap();
    let first = Ask::deposit("\"k\"", "7", 100);
    assert_eq!(ask(&first), booked(1, 100));
    // With quotes and without it is the same key; by another caller, on another account or route it is another.
    assert_eq!(ask(&Ask { key: "idempotency-key: k\r\n".into(), ..first.clone() }), booked(1, 100));
    assert_eq!(ask(&Ask { token: "bob-secret", ..first.clone() }), booked(2, 200));
    assert_eq!(ask(&Ask { path: "/accounts/7/withdrawals".into(), ..first.clone() }), booked(3, 100));
    assert_eq!(ask(&Ask { path: "/accounts/8/deposits".into(), ..first.clone() }), booked(1, 100));
    // What is refused stays refused under its key, whatever the account has by then.
    let much = Ask { path: "/accounts/7/withdrawals".into(), ..Ask::deposit("\"much\"", "7", 500) };
    assert_eq!(ask(&much).0, 403);
    assert_eq!(ask(&Ask::deposit("\"more\"", "7", 900)), booked(4, 1000));
    assert_eq!(ask(&much).0, 403);
    // Another body under a key that was used is refused, and what it was used for stays.
    let (status, problem) = ask(&Ask { body: "{\"cents\": 101}".into(), ..first.clone() });
    assert_eq!((status, &problem["status"]), (422, &json!(422)), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("use a new one"), "{problem}");
    assert_eq!(ask(&first), booked(1, 100));
    assert_eq!(ask(&Ask::deposit("\"last\"", "7", 1)), booked(5, 1001));
}

#[test]
fn a_request_that_says_too_little_is_refused_and_nothing_is_booked() {
    let folder = Folder::new();
    let program = Program::start(&folder.file(), &[]);
    let status = |ask: Ask| program.ask(&ask).unwrap().0;
    let good = Ask::deposit("\"k\"", "7", 100);
    let with = |key: &str| Ask { key: key.into(), ..good.clone() };
    for key in [
        "",
        "Idempotency-Key: \r\n",
        "Idempotency-Key: \"\"\r\n",
        "Idempotency-Key: \"open\r\n",
        "Idempotency-Key: \"a\" b\r\n",
        "Idempotency-Key: \"a\\b\"\r\n",
        "Idempotency-Key: a\r\nIdempotency-Key: a\r\n",
        &format!("Idempotency-Key: {}\r\n", "k".repeat(256)),
    ] {
        assert_eq!(status(with(key)), 400, "{key:?}");
    }
    assert_eq!(status(Ask { token: "", ..good.clone() }), 401);
    assert_eq!(status(Ask { token: "nobody", ..good.clone() }), 401);
    assert_eq!(status(Ask { body: "{".into(), ..good.clone() }), 400);
    assert_eq!(status(Ask { body: "{\"cents\": 0}".into(), ..good.clone() }), 422);
    assert_eq!(status(Ask { path: format!("/accounts/{}/deposits", "a".repeat(65)), ..good.clone() }), 422);
    assert_eq!(program.ask(&Ask::deposit("\"a\\\"b\"", "7", 100)).unwrap(), booked(1, 100));
    assert_eq!(program.ask(&good).unwrap(), booked(2, 200));
}

/// Goal: what was asked is booked once and answered alike, though the program is killed among its requests. Method: four customers ask
/// for each booking twice at a time, until they have an answer, while it is killed and started again; in the end all is asked once more.
#[test]
fn a_program_that_is_killed_among_its_requests_books_once_and_answers_alike() {
    const ROUNDS: usize = 6;
    let folder = Folder::new();
    let answers: Mutex<BTreeMap<String, BTreeSet<String>>> = Mutex::default();
    let note = |key: &str, (status, body): Answer| {
        assert_eq!(status, 201, "{body}");
        answers.lock().unwrap().entry(key.to_owned()).or_default().insert(body.to_string());
    };
    let asked = Mutex::new(BTreeSet::new());
    let mut left: Vec<Option<String>> = vec![None; 4];
    for round in 0..ROUNDS {
        let program = &Program::start(&folder.file(), &[]);
        thread::scope(|scope| {
            let (note, asked) = (&note, &asked);
            let customers: Vec<_> = (left.iter().cloned().enumerate())
                .map(|(customer, mut left)| {
                    scope.spawn(move || {
                        for number in 0.. {
                            // What had no answer in the last round comes first.
                            let key = left.take().unwrap_or_else(|| format!("{round}-{customer}-{number}"));
                            asked.lock().unwrap().insert(key.clone());
                            let ask = Ask::deposit(&key, "7", 1);
                            // Each kills after another number of requests, so that it meets every place of one.
                            if customer == 0 && number == 3 + round {
                                program.signal(Signal::KILL);
                            }
                            let twice = thread::scope(|scope| {
                                let other = scope.spawn(|| program.ask(&ask));
                                [program.ask(&ask), other.join().unwrap()]
                            });
                            let [Ok(first), Ok(second)] = twice else { return Some(key) };
                            note(&key, first);
                            note(&key, second);
                        }
                        None
                    })
                })
                .collect();
            left = customers.into_iter().map(|customer| customer.join().unwrap()).collect();
        });
    }
    let program = Program::start(&folder.file(), &[]);
    let asked = asked.into_inner().unwrap();
    assert!(asked.len() >= 4 * ROUNDS, "only {} were asked", asked.len());
    for key in &asked {
        note(key, program.ask(&Ask::deposit(key, "7", 1)).unwrap());
    }
    let mut numbers = BTreeSet::new();
    for (key, answers) in answers.into_inner().unwrap() {
        assert_eq!(answers.len(), 1, "{key}: {answers:?}");
        let answer: Value = serde_json::from_str(answers.first().unwrap()).unwrap();
        assert_eq!(answer["number"], answer["balance_cents"]);
        numbers.insert(answer["number"].as_u64().unwrap());
    }
    // As many bookings as keys: one each.
    assert_eq!(numbers, (1..=asked.len() as u64).collect());
    let next = asked.len() as u64 + 1;
    assert_eq!(program.ask(&Ask::deposit("next", "7", 1)).unwrap(), booked(next, next.cast_signed()));
}

/// Goal: front and bank outlive each other's death. Method: as processes of their own, each killed while something is asked.
#[test]
fn front_and_bank_apart_outlive_each_other() {
    let folder = Folder::new();
    let front = Program::start(&folder.file(), &["front"]);
    let rent = Ask::deposit("rent", "7", 5000);
    let (status, problem) = front.ask(&rent).unwrap();
    assert_eq!(status, 503, "{problem}"); // Nobody answers yet; it is asked all the same.
    assert!(problem["detail"].as_str().unwrap().contains("same Idempotency-Key"), "{problem}");
    let bank = Program::start(&folder.file(), &["bank"]);
    assert_eq!(front.ask(&rent).unwrap(), booked(1, 5000));
    bank.signal(Signal::KILL);
    let food = Ask::deposit("food", "7", 5000);
    let answer = thread::scope(|scope| {
        let asked = scope.spawn(|| front.ask(&food));
        let _bank = Program::start(&folder.file(), &["bank"]);
        asked.join().unwrap().unwrap()
    });
    assert_eq!(answer, booked(2, 10_000));
    front.signal(Signal::KILL);
    drop(front);
    let _bank = Program::start(&folder.file(), &["bank"]);
    for name in ["front", "another"] {
        let front = Program::start(&folder.file(), &["front", name]);
        assert_eq!(front.ask(&rent).unwrap(), booked(1, 5000), "{name}");
        assert_eq!(front.ask(&food).unwrap(), booked(2, 10_000), "{name}");
    }
    let two = Program::start(&folder.file(), &["front"]);
    assert_eq!(two.ask(&Ask::deposit("more", "7", 1)).unwrap(), booked(3, 10_001));
}

/// Fronts and banks, each of which may be killed and started again; who asks a front that dies has no answer of it.
struct Street {
    file: PathBuf,
    programs: [(Vec<&'static str>, Mutex<Arc<Program>>); 4],
}

impl Street {
    fn open(file: &Path) -> Self {
        let start = |role: &[&'static str]| (role.to_vec(), Mutex::new(Arc::new(Program::start(file, role))));
        let programs = [start(&["front", "one"]), start(&["front", "two"]), start(&["bank"]), start(&["bank"])];
        Self { file: file.to_owned(), programs }
    }

    fn program(&self, which: usize) -> Arc<Program> {
        self.programs[which].1.lock().unwrap().clone()
    }

    fn kill(&self, which: usize) {
        let (role, program) = &self.programs[which];
        program.lock().unwrap().signal(Signal::KILL);
        *program.lock().unwrap() = Arc::new(Program::start(&self.file, role));
    }

    /// What the two fronts answer to one request that comes to both at the same moment; `None` of one that was killed or had no answer.
    fn ask_both(&self, ask: &Ask) -> [Option<Answer>; 2] {
        let together = Barrier::new(2);
        let ask = |front| {
            let front = self.program(front);
            together.wait();
            front.ask(ask).ok().filter(|(status, _)| *status != 503)
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| ask(1));
            [ask(0), other.join().unwrap()]
        })
    }
}

/// Goal: one key that is asked at two fronts at the same moment is one booking and one answer, whoever of them and of two banks is killed
/// meanwhile. Method: customers ask at both until both have answered, while fronts and banks are killed in turn, alone and two at a time.
#[test]
fn one_key_at_two_fronts_is_one_booking_and_one_answer_while_fronts_and_banks_are_killed() {
    const CUSTOMERS: usize = 3;
    const EACH: usize = 18;
    /// Who dies while the first customer asks.
    const KILLED: [&[usize]; 6] = [&[2], &[0], &[3], &[1], &[0, 3], &[1, 2]];
    let folder = Folder::new();
    let street = Street::open(&folder.file());
    let answers: Mutex<BTreeMap<String, BTreeSet<String>>> = Mutex::default();
    let note = |key: &str, (status, body): Answer| {
        assert_eq!(status, 201, "{key}: {body}");
        answers.lock().unwrap().entry(key.to_owned()).or_default().insert(body.to_string());
    };
    thread::scope(|scope| {
        for customer in 0..CUSTOMERS {
            let (street, note) = (&street, &note);
            scope.spawn(move || {
                for number in 0..EACH {
                    let key = format!("{customer}-{number}");
                    let ask = Ask::deposit(&key, "7", 1);
                    let killing = (customer == 0).then(|| {
                        scope.spawn(move || KILLED[number % KILLED.len()].iter().for_each(|which| street.kill(*which)))
                    });
                    let mut answered = [false; 2];
                    while answered != [true; 2] {
                        for (answered, answer) in answered.iter_mut().zip(street.ask_both(&ask)) {
                            *answered |= answer.map(|answer| note(&key, answer)).is_some();
                        }
                    }
                    if let Some(killing) = killing {
                        killing.join().unwrap();
                    }
                }
            });
        }
    });
    let mut numbers = BTreeSet::new();
    for (key, answers) in answers.into_inner().unwrap() {
        assert_eq!(answers.len(), 1, "{key}: {answers:?}");
        let answer: Value = serde_json::from_str(answers.first().unwrap()).unwrap();
        assert_eq!(answer["number"], answer["balance_cents"]);
        assert!(numbers.insert(answer["number"].as_u64().unwrap()), "{key} has the answer of another: {answer}");
    }
    let all = (CUSTOMERS * EACH) as u64;
    assert_eq!(numbers, (1..=all).collect());
    let last = street.program(0).ask(&Ask::deposit("last", "7", 1)).unwrap();
    assert_eq!(last, booked(all + 1, (all + 1).cast_signed()));
}
