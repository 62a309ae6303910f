//! A group whose leader leaves while it is being formed, asked by hand. Kafka's coordinator takes another leader, and what stands in for it in
//! these tests has to do so, too: else nobody deals partitions ever again, and what these tests say of rebalances would be said of luck.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{
    rig::{SESSION, unique, url},
    wire::Bytes,
};

/// Kinds of requests, and the versions that are spoken here.
const JOIN: (i16, i16) = (11, 2);
const LEAVE: (i16, i16) = (13, 1);
const SYNC: (i16, i16) = (14, 1);
/// Errors.
const NONE: i16 = 0;
const COME_WITH_A_NAME: i16 = 79;
/// Several sessions, and what the broker of the tests makes everybody wait who joins.
const PATIENCE: Duration = Duration::from_secs(30);

struct Coordinator {
    stream: TcpStream,
    group: String,
}

struct Joined {
    error: i16,
    generation: i32,
    leader: String,
    member: String,
}

fn text(to: &mut Vec<u8>, text: &str) {
    to.extend(i16::try_from(text.len()).unwrap().to_be_bytes());
    to.extend(text.as_bytes());
}

fn long(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(i32::try_from(bytes.len()).unwrap().to_be_bytes());
    to.extend(bytes);
}

impl Coordinator {
    fn of(group: &str) -> Self {
        let stream = TcpStream::connect(url().trim_start_matches("kafka://")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, group: group.to_owned() }
    }

    /// What is behind the number of the answer, and behind how long it was to wait.
    fn ask(&mut self, (kind, version): (i16, i16), asked: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut request = [kind.to_be_bytes(), version.to_be_bytes()].concat();
        request.extend([0, 0, 0, 0, 0xff, 0xff]); // A number, and no name of the client.
        text(&mut request, &self.group);
        asked(&mut request);
        let mut framed = Vec::new();
        long(&mut framed, &request);
        self.stream.write_all(&framed).unwrap();
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut answer).unwrap();
        answer.split_off(8)
    }

    fn join(&mut self, member: &str) -> Joined {
        let session = i32::try_from(SESSION.as_millis()).unwrap();
        let answer = self.ask(JOIN, |request| {
            request.extend([session.to_be_bytes(); 2].concat());
            text(request, member);
            text(request, "consumer");
            request.extend(1_i32.to_be_bytes());
            text(request, "any");
            long(request, b"");
        });
        let mut from = Bytes::of(&answer);
        let (error, generation, _dealing) = (from.short(), from.int(), from.text());
        Joined { error, generation, leader: from.text(), member: from.text() }
    }

    /// Deals partitions to nobody else.
    fn deal(&mut self, mine: &Joined) -> i16 {
        let answer = self.ask(SYNC, |request| {
            request.extend(mine.generation.to_be_bytes());
            text(request, &mine.member);
            request.extend(1_i32.to_be_bytes());
            text(request, &mine.member);
            long(request, b"all partitions");
        });
        Bytes::of(&answer).short()
    }

    fn leave(&mut self, member: &str) -> i16 {
        let answer = self.ask(LEAVE, |request| text(request, member));
        Bytes::of(&answer).short()
    }
}

#[test]
fn a_group_whose_leader_leaves_while_it_is_formed_gets_another() {
    let group = unique("led");
    let (mut first, mut second) = (Coordinator::of(&group), Coordinator::of(&group));
    let named = first.join("");
    assert_eq!(named.error, COME_WITH_A_NAME);
    let leads = first.join(&named.member);
    assert_eq!((leads.error, &leads.leader), (NONE, &leads.member));
    assert_eq!(first.deal(&leads), NONE);
    let named = second.join("");
    assert_eq!(named.error, COME_WITH_A_NAME);
    assert_eq!(first.leave(&leads.member), NONE);
    let left = Instant::now();
    let mut member = named.member;
    loop {
        let joined = second.join(&member);
        member = joined.member; // It may have been given up itself.
        if joined.error == NONE && joined.leader == member {
            break;
        }
        assert!(left.elapsed() < PATIENCE, "{} leads for ever, and has left", joined.leader);
    }
}
