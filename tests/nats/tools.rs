//! The protocol as it is, typed by hand: a producer and a consumer of no make at all.

use base64::{Engine, engine::general_purpose::STANDARD};
use hapax::{
    envelope::cloudevents::Source,
    ports::{DeadLetters, Page, Settlement, Transport},
    transports::nats::WrittenAs,
};
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

/// The other mode, both ways: what the server calls `Nats-Msg-Id` is not needed, since an event has an id.
#[tokio::test]
async fn a_binary_event_is_typed_by_hand_and_taken_by_hand() {
    let written_as = WrittenAs::CloudEvents(Source::parse("/orders").unwrap());
    let queue = options().written_as(written_as).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let mut by_hand = ByHand::connect().await;
    let headers = "NATS/1.0\r\nce-specversion: 1.0\r\nce-id: 7\r\nce-source: /hand\r\nce-type: shop.added\r\ncontent-type: application/json\r\n\r\n";
    let typed = "{\"n\": 7}";
    let (head, all) = (headers.len(), headers.len() + typed.len());
    by_hand.say(&format!("HPUB {PREFIX}.queue.{here} {head} {all}\r\n{headers}{typed}\r\n")).await;
    let delivery = next(&ends).await;
    let came = &delivery.envelope;
    assert_eq!((came.message_id.to_string().as_str(), came.message_type.as_str()), ("/hand 7", "shop.added"));
    assert_eq!(body(&delivery), typed);
    ack(&ends, &delivery).await;

    let sent = envelope("{\"n\": 8}");
    send(&queue, &[to(&here, sent.clone())]).await;
    let (headers, body) = stored(&format!("{PREFIX}-queue-{here}"), &format!("{PREFIX}.queue.{here}")).await;
    for header in
        ["ce-specversion: 1.0", "ce-source: /orders", "ce-type: shop.added", &format!("ce-id: {}", sent.message_id)]
    {
        assert!(headers.lines().any(|line| line == header), "{header} is missing: {headers}");
    }
    assert_eq!(body, "{\"n\": 8}");
}

/// As it lies in the stream its headers say only that it is one, and all else is in the body. Once it is set aside its body is as it was: in JSON it may be
/// larger than the server takes.
#[tokio::test]
async fn a_structured_event_is_taken_by_hand_and_is_set_aside_in_binary_mode() {
    let written_as = WrittenAs::StructuredCloudEvents(Source::parse("/orders").unwrap());
    let queue = options().written_as(written_as).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent = envelope("{\"n\": 7}");
    send(&queue, &[to(&here, sent.clone())]).await;
    let id = sent.message_id.to_string();
    let (headers, body) = stored(&format!("{PREFIX}-queue-{here}"), &format!("{PREFIX}.queue.{here}")).await;
    assert!(headers.contains("content-type: application/cloudevents+json"), "{headers}");
    assert!(!headers.contains("hapax-message-id") && !headers.contains("ce-id"), "{headers}");
    let event: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&event["specversion"], &event["id"], &event["data"]["n"]),
        (&"1.0".into(), &id.as_str().into(), &7.into())
    );
    let delivery = next(&ends).await;
    assert_eq!(*delivery.envelope, sent);
    let reason = "nobody wants it".to_owned();
    ends.receiver.settle(&delivery.receipt, Settlement::DeadLetter { reason }).await.unwrap();
    let stream = format!("{PREFIX}-dead-letters");
    let (headers, body) = stored(&stream, &format!("{PREFIX}.dead-letters.{here}.*")).await;
    assert!(headers.contains(&format!("ce-id: {id}")) && !headers.contains("cloudevents+json"), "{headers}");
    assert_eq!(body, "{\"n\": 7}");
    let letters = queue.list(&here, &Page::first(2)).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((&*letter.envelope, letter.reason.as_str()), (&sent, "nobody wants it"));
    assert_eq!(queue.discard(&letters).await.unwrap(), 1);
}

/// Headers and body of the last message on `subject`, as the server stores it.
async fn stored(stream: &str, subject: &str) -> (String, String) {
    let mut by_hand = ByHand::connect().await;
    by_hand.say("SUB told 1\r\n").await;
    let ask = format!("{{\"last_by_subj\":\"{subject}\"}}");
    by_hand.say(&format!("PUB $JS.API.STREAM.MSG.GET.{stream} told {}\r\n{ask}\r\n", ask.len())).await;
    let told = by_hand.line().await;
    let bytes = told.split(' ').next_back().unwrap().parse().unwrap();
    let told: serde_json::Value = serde_json::from_str(&by_hand.bytes(bytes).await).unwrap();
    let text = |field: &str| {
        let bytes = STANDARD.decode(told["message"][field].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    (text("hdrs"), text("data"))
}
