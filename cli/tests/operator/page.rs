//! The page as the program serves it; what it answers is tested with `hapax-page`.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::rig::{Folder, hapax, json, program, said, shop_that_ran};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The program while it serves, on a free port.
struct Serving {
    child: Child,
    told: Value,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait();
    }
}

impl Serving {
    fn new(args: &[&str]) -> Self {
        let mut child = program()
            .args(["page", "--listen", "127.0.0.1:0", "--json"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told = serde_json::from_str(&line).unwrap_or_else(|error| {
            let _ = child.kill();
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{error}: {line}: {said}")
        });
        Self { child, told }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let address = self.told["url"].as_str().unwrap().trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split_whitespace().nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, "", "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_tells_what_the_commands_tell() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let page = Serving::new(&["--store", &file]);
    assert_eq!((&page.told["actions"], &page.told["guarded"]), (&false.into(), &false.into()));
    for (path, args) in [
        ("/api/dead-letters", &["dead-letters", "list"][..]),
        ("/api/message/good-1", &["message", "good-1"]),
        ("/api/message/bad-1", &["message", "bad-1"]),
        ("/api/outbox", &["outbox", "list"]),
    ] {
        assert_eq!(page.get(path), json(&[args, &["--store", &file, "--json"]].concat(), 0), "{path}");
    }
    assert!(page.get("/api/counts")["unknown"].as_str().unwrap().contains("--metrics URL"));
    let (status, _) = page.ask("POST", "/api/dead-letters/shop/bad-1/retry", "", "{}");
    assert!([404, 405].contains(&status), "{status}");
    assert_eq!(json(&["dead-letters", "list", "--store", &file, "--json"], 0).as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_actions_and_the_token_a_letter_is_retried_and_logged_as_by_the_command() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    let (token, log) = (folder.path().join("token"), folder.path().join("deeds.log"));
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let (token, log) = (token.to_str().unwrap(), log.to_str().unwrap());
    let page = Serving::new(&[
        "--store",
        &file,
        "--actions",
        "--token-file",
        token,
        "--by",
        "alice",
        "--log",
        log,
        "--bodies",
    ]);
    assert_eq!(page.get("/api/dead-letters/shop/bad-1")[0]["message"]["body"]["item"], "bad");
    let path = "/api/dead-letters/shop/bad-1/retry";
    assert_eq!(page.ask("POST", path, "Authorization: Bearer wrong\r\n", "{}").0, 401);
    let (status, done) = page.ask("POST", path, &format!("Authorization: Bearer {TOKEN}\r\n"), "{}");
    assert_eq!(status, 200, "{done}");
    let line: Value = serde_json::from_str(&fs::read_to_string(log).unwrap()).unwrap();
    assert_eq!(
        (&line["by"], &line["deed"], &line["count"]),
        (&"alice".into(), &"retried dead letters".into(), &1.into())
    );
    assert!(line["store"].as_str().unwrap().ends_with("shop.db") && line["time"].is_string(), "{line}");
    assert_eq!(json(&["message", "bad-1", "--store", &file, "--json"], 0)["queued"][0]["endpoint"], "shop");
}

#[test]
fn what_would_let_everybody_in_is_refused_with_the_remedy() {
    let folder = Folder::new();
    let (file, token) = (folder.file(), folder.path().join("token"));
    let none = folder.path().join("none");
    fs::write(&token, "short\n").unwrap();
    let (token, none) = (token.to_str().unwrap(), none.to_str().unwrap());
    for (args, part) in [
        (&["--listen", "0.0.0.0:0"][..], "--token-file"),
        (&["--listen", "[::]:0"], "--token-file"),
        // By a proxy others come.
        (&["--host", "ops.example.org"], "--token-file"),
        (&["--actions"], "--token-file"),
        (&["--actions", "--token-file", token], "fewer than 16"),
        (&["--token-file", none], "openssl rand"),
        (&["--listen", "localhost"], "--listen"),
        (&["--listen", "127.0.0.1:65536"], "--listen"),
    ] {
        let refused = hapax(&[&["page", "--store", &file][..], args].concat());
        let text = said(&refused);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {text}");
        assert!(
            text.contains(part) && text.trim_end().lines().count() == 1 && !text.contains("short\n"),
            "{args:?}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_given_is_asked_for() {
    let folder = Folder::new();
    let (file, token) = (folder.file(), folder.path().join("token"));
    shop_that_ran(&file).await;
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    for more in [&[][..], &["--host", "ops.example.org"]] {
        let page = Serving::new(&[&["--store", &file, "--token-file", token.to_str().unwrap()], more].concat());
        assert_eq!(page.told["guarded"], true, "{more:?}");
        assert_eq!(page.ask("GET", "/api/status", "", "").0, 401, "{more:?}");
        assert_eq!(
            page.ask("GET", "/api/status", &format!("Authorization: Bearer {TOKEN}\r\n"), "").0,
            200,
            "{more:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_for_numbers_that_is_none_is_refused_without_its_password() {
    let folder = Folder::new();
    let file = folder.file();
    shop_that_ran(&file).await;
    for url in ["https://127.0.0.1/metrics", "http://u:s3cret@127.0.0.1/metrics", "127.0.0.1:9464"] {
        let refused = hapax(&["page", "--store", &file, "--metrics", url]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(!said(&refused).contains("s3cret"), "{refused:?}");
    }
}
