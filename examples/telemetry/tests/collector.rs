//! The example as it is run, beside a collector that writes down what it is sent.
#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex},
};

/// By path, all bodies of requests, one behind the other.
type Seen = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Answers every request of OTLP over HTTP: all of it was taken.
fn collect(stream: TcpStream, seen: &Seen) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        seen.lock().unwrap().entry(path).or_default().extend(body);
        (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")?;
    }
}

fn collector() -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, seen) = (format!("http://{}", listener.local_addr().unwrap()), Seen::default());
    let taken = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let taken = taken.clone();
            std::thread::spawn(move || collect(stream, &taken));
        }
    });
    (address, seen)
}

fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join("telemetry");
    assert!(program.exists(), "{program:?} is missing: cargo build -p hapax-example-telemetry --examples");
    program
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn spans_and_measurements_of_the_example_come_to_a_collector() {
    let (address, seen) = collector();
    let output = Command::new(program()).arg("3").env("OTEL_EXPORTER_OTLP_ENDPOINT", address).output().unwrap();
    let said = format!("{output:?}");
    assert!(output.status.success() && said.contains("done") && !said.contains("not all was exported"), "{said}");
    let seen = seen.lock().unwrap();
    let nothing = Vec::new();
    let sent = |path: &str| seen.get(path).unwrap_or(&nothing).as_slice();
    let (spans, measurements) = (sent("/v1/traces"), sent("/v1/metrics"));
    // What README.md beside the example says is to be seen.
    for text in
        ["hapax-example", "POST /orders", "messaging.message.id", "duplicate", "dead_lettered", "shop", "billing"]
    {
        assert!(holds(spans, text), "no span has {text}; the collector was sent {:?}", seen.keys());
    }
    for text in ["hapax.handled", "hapax.duplicates", "hapax.dead_letters", "messaging.process.duration"] {
        assert!(holds(measurements, text), "no measurement has {text}");
    }
}
