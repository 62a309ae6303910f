//! The protocol as it is, typed by hand: a producer and a consumer of no make at all.

use hapax::ports::Transport;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::rig::*;

struct ByHand(BufReader<TcpStream>);

impl ByHand {
    async fn connect() -> Self {
        let place = url().split_once("//").unwrap().1.to_owned();
        let place = place.rsplit_once('@').map_or(place.as_str(), |(_, place)| place);
        let mut by_hand = Self(BufReader::new(TcpStream::connect(place).await.unwrap()));
        assert!(by_hand.line().await.starts_with("INFO "));
        by_hand.say("CONNECT {\"verbose\":false,\"pedantic\":true,\"headers\":true,\"no_responders\":true}\r\n").await;
        by_hand
    }

    async fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// The next line that is for people.
    async fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            timeout(PATIENCE, self.0.read_line(&mut line)).await.expect("it says nothing").unwrap();
            match line.trim_end() {
                "PING" => self.say("PONG\r\n").await,
                line => return line.to_owned(),
            }
        }
    }

    async fn bytes(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        timeout(PATIENCE, self.0.read_exact(&mut bytes)).await.expect("it says no more").unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

#[tokio::test]
async fn a_message_typed_by_hand_comes_to_an_endpoint() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let mut by_hand = ByHand::connect().await;
    let headers = "NATS/1.0\r\nNats-Msg-Id: tool 7\r\nhapax-type: shop.added\r\nContent-Type: application/json\r\nShop: corner\r\n\r\n";
    let body_sent = "{\"n\": 7}";
    let (head, all) = (headers.len(), headers.len() + body_sent.len());
    by_hand.say("SUB confirmed 1\r\n").await;
    by_hand.say(&format!("HPUB {PREFIX}.queue.{here} confirmed {head} {all}\r\n{headers}{body_sent}\r\n")).await;
    assert!(by_hand.line().await.starts_with("MSG confirmed 1 "));
    let confirmation = by_hand.line().await;
    assert!(confirmation.contains("\"seq\":1") || confirmation.contains("\"seq\": 1"), "{confirmation}");
    let delivery = next(&ends).await;
    let envelope = &delivery.envelope;
    assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), ("tool 7", "shop.added"));
    assert_eq!((body(&delivery).as_str(), envelope.headers.value("shop")), (body_sent, Some("corner")));
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn a_message_of_an_endpoint_is_taken_by_hand() {
    let queue = open().await;
    let here = endpoint();
    queue.connect(&here, &[]).await.unwrap();
    let sent = envelope("for a hand");
    send(&queue, &[to(&here, sent.clone())]).await;
    let mut by_hand = ByHand::connect().await;
    by_hand.say("SUB given 1\r\n").await;
    by_hand.say(&format!("PUB $JS.API.CONSUMER.MSG.NEXT.{PREFIX}-queue-{here}.receivers given 1\r\n1\r\n")).await;
    let given = by_hand.line().await;
    let words: Vec<&str> = given.split(' ').collect();
    let ["HMSG", subject, "1", reply, head, all] = words[..] else { panic!("{given}") };
    assert_eq!(subject, format!("{PREFIX}.queue.{here}"));
    let message = by_hand.bytes(all.parse().unwrap()).await;
    let (headers, body) = message.split_at(head.parse().unwrap());
    assert!(headers.contains(&format!("Nats-Msg-Id: {}", sent.message_id)), "{headers}");
    assert!(headers.contains("hapax-type: shop.added"), "{headers}");
    assert_eq!(body, "for a hand");
    by_hand.say(&format!("PUB {reply} 4\r\n+ACK\r\nPING\r\n")).await;
    by_hand.line().await;
    by_hand.line().await;
    assert_eq!((queue.backlog(&here).await.unwrap(), queue.unsettled(&here).await.unwrap()), (0, 0));
}
