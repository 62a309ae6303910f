//! No body is in any span, event or log at any level, nor in what an error prints.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use hapax_core::{
    envelope::{Destination, Envelope},
    ids::{EndpointName, MessageId, TypeName},
    ports::{DeadLetters, Page},
};
use hapax_stores::Memory;
use hapax_transports::InProcess;
use support::{
    Seen,
    shop::{self, Cut, Fate, Place, sender},
};

const SECRET: &str = "4111-1111-1111-1111";

/// Bodies that cannot be read, each in its own way, and the secret in all of them.
fn unreadable() -> [String; 6] {
    [
        format!("{SECRET} is no JSON"),
        format!(r#"{{"order": {{"number": "{SECRET}"}}, "fate": "Billed", "card": ""}}"#),
        format!(r#"{{"order": "x", "fate": "{SECRET}", "card": ""}}"#),
        format!(r#"{{"order": "x", "fate": "Billed", "card": ["{SECRET}"]}}"#),
        format!(r#"{{"order": "x", "fate": "Billed", "number": "{SECRET}"}}"#),
        format!(r#"{{"order": "", "fate": "Billed", "card": "{SECRET}"}}"#),
    ]
}

#[tokio::test(start_paused = true)]
async fn no_body_is_seen_anywhere() {
    let (seen, store, hub) = (Seen::begin(), Memory::new(), InProcess::new("silence"));
    let (sender, to) = (sender(&seen, &hub), Destination::parse("endpoint:shop").unwrap());
    let cut = Cut::new(&hub);
    let place_type = TypeName::parse("shop.place").unwrap();
    for (number, body) in unreadable().into_iter().enumerate() {
        let id = MessageId::parse(&format!("unreadable-{number}")).unwrap();
        sender.send_envelope(to.clone(), Envelope::new(id, place_type.clone(), body)).await.unwrap();
    }
    for (order, fate) in [("a", Fate::Billed), ("b", Fate::FailsOnce), ("c", Fate::Refused), ("d", Fate::BilledLater)] {
        let id = MessageId::parse(&format!("placed-{order}")).unwrap();
        let place = Place { order: order.into(), fate, card: SECRET.into() };
        let mut envelope = sender.envelope(id, &place).unwrap();
        envelope.headers.set("card", SECRET).unwrap();
        for _ in 0..2 {
            sender.send_envelope(to.clone(), envelope.clone()).await.unwrap();
        }
    }
    // Another body under the same id, and a type that nobody handles.
    let other = Envelope::new(
        "placed-a".parse().unwrap(),
        place_type,
        format!("{{\"order\": \"a\", \"fate\": \"Billed\", \"card\": \"{SECRET}!\"}}"),
    );
    sender.send_envelope(to.clone(), other).await.unwrap();
    sender.send("shop", &shop::Unheard(SECRET.into())).await.unwrap();

    shop::shop(&seen, &store, cut.clone()).run_until(tokio::time::sleep(Duration::from_secs(600))).await.unwrap();
    cut.mend();
    shop::run(&seen, &store, &hub).await;

    let (lines, spans) = (seen.lines(), format!("{:#?}", seen.spans().0));
    let letters = store.list(&EndpointName::parse("shop").unwrap(), &Page::first(100)).await.unwrap();
    assert_eq!(letters.len(), 6 + 1 + 1 + 1, "{letters:#?}");
    let printed: String = letters.iter().map(|letter| format!("{letter:#?}")).collect();
    for (what, text) in [("logs", &lines), ("spans", &spans), ("letters", &printed)] {
        let line = text.lines().find(|line| line.contains(SECRET));
        assert_eq!(line, None, "in the {what}");
    }
    // That they would have been seen: all that is told of them is there.
    for told in ["placed-a", "placed-d", "unreadable-0", "unreadable-5", "missing field `card`", "the card is refused"]
    {
        assert!(lines.contains(told), "`{told}` is not in the logs: {lines}");
    }
    let carried = letters.iter().filter(|letter| String::from_utf8_lossy(&letter.envelope.body).contains(SECRET));
    assert_eq!(carried.count(), letters.len(), "a letter keeps its body");
}

#[test]
fn what_errors_print_holds_no_body() {
    use hapax_core::{Context, HandlerError, Message};
    use serde::{Deserialize, Serialize};

    /// Reads only what it has not written.
    #[derive(Debug, Serialize)]
    struct Odd {
        number: &'static str,
    }
    impl<'de> Deserialize<'de> for Odd {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            #[derive(Deserialize)]
            struct Number {
                number: u32,
            }
            Number::deserialize(deserializer).map(|of| Self { number: if of.number > 0 { "some" } else { "none" } })
        }
    }
    impl Message for Odd {
        const TYPE: &'static str = "test.odd";
    }
    let mut cx = Context::for_test();
    cx.publish(Odd { number: SECRET }).unwrap();
    let error: HandlerError = cx.sent::<Odd>().unwrap_err();
    for printed in [
        format!("{error}"),
        format!("{error:?}"),
        format!("{error:#?}"),
        format!("{cx:?}"),
        format!("{:?}", cx.outgoing()),
    ] {
        assert!(!printed.contains(SECRET), "{printed}");
    }
    assert!(format!("{error}").contains("invalid type, expected u32"), "{error}");
}
