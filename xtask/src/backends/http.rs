//! As much of HTTP as it takes to ask a server who it is.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// One that needs longer to say who it is does not do.
const PATIENCE: Duration = Duration::from_secs(5);

/// More than anybody says about himself.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// What a server answers to `GET /`.
#[derive(Debug)]
pub(super) struct Answer {
    head: String,
    pub(super) body: String,
}

impl Answer {
    /// The value of the header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Asks `http://HOST:PORT` for `/`, whatever status that has.
///
/// # Errors
/// Nobody there speaks HTTP.
pub(super) fn get(url: &str) -> Result<Answer, String> {
    let place = url.strip_prefix("http://").map(|place| place.trim_end_matches('/'));
    let place = place.filter(|place| place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()));
    let place = place.ok_or("it is not http://HOST:PORT")?;
    let text = |error: std::io::Error| format!("{place}: {error}");
    let address = place.to_socket_addrs().map_err(text)?.next().ok_or("there is no such host")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    stream
        .write_all(format!("GET / HTTP/1.1\r\nhost: {place}\r\nconnection: close\r\n\r\n").as_bytes())
        .map_err(text)?;
    let mut said = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut said).map_err(text)?;
    let said = String::from_utf8_lossy(&said);
    let (head, body) = said.split_once("\r\n\r\n").ok_or("what listens there does not speak HTTP")?;
    if !head.starts_with("HTTP/1.") {
        return Err("what listens there does not speak HTTP".into());
    }
    Ok(Answer { head: head.to_owned(), body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answering(said: &'static str) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.push(byte[0]);
            }
            stream.write_all(said.as_bytes()).unwrap();
        });
        url
    }

    #[test]
    fn what_a_server_says_is_found_whatever_its_status() {
        let answer = get(&answering("HTTP/1.1 400 No\r\nServer: Some/1.2\r\nx: y\r\n\r\nbody")).unwrap();
        assert_eq!((answer.header("server"), answer.header("none")), (Some("Some/1.2"), None));
        assert_eq!(answer.body, "body");
    }

    #[test]
    fn what_does_not_speak_it_is_refused() {
        assert!(get(&answering("SSH-2.0-x\r\n\r\n")).unwrap_err().contains("does not speak HTTP"));
        for url in ["https://127.0.0.1:1", "http://127.0.0.1", "127.0.0.1:1"] {
            assert_eq!(get(url).unwrap_err(), "it is not http://HOST:PORT", "{url}");
        }
    }
}
