//! Requests are signed with the key that the client was given. The emulator lets in anybody; so their signatures are made again here.

use aws_sdk_sqs::{Client, config::Credentials};
use hapax_tests::http_faults::Asked;
use ring::{digest, hmac};

use super::*;

const KEY: &str = "AKIDOFTHESHOP";
const SECRET: &str = "what the shop alone knows";
const TOKEN: &str = "the session of the shop";

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Version 4, as the service makes it of what it receives (AWS IAM User Guide, "Create a signed AWS API request"), without a query.
fn signature(asked: &Asked, scope: &str, signed: &str, secret: &str) -> String {
    let sha256 = |bytes: &[u8]| hex(digest::digest(&digest::SHA256, bytes));
    let hmac = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let mut headers = String::new();
    for name in signed.split(';') {
        let value = asked.header(name).unwrap_or_else(|| panic!("{name} is signed and not sent"));
        headers += &format!("{name}:{}\n", value.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let (method, path, body) = (asked.method(), asked.path(), sha256(asked.body()));
    let request = format!("{method}\n{path}\n\n{headers}\n{signed}\n{body}");
    let (time, request) = (asked.header("x-amz-date").unwrap(), sha256(request.as_bytes()));
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/') {
        key = hmac(&key, part).as_ref().to_vec();
    }
    hex(hmac(&key, &format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{request}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_signed_with_the_key_that_the_client_was_given() {
    let queues = SqsQueues::new();
    let proxy = FaultProxy::start(queues.url()).unwrap();
    let theirs = Credentials::new(KEY, SECRET, Some(TOKEN.to_owned()), None, "a test");
    let config = queues.through(proxy.url()).client().config().to_builder().credentials_provider(theirs).build();
    let sqs = options(&queues).open(&Client::from_conf(config)).await.unwrap();
    let here = endpoint();
    let ends = sqs.connect(&here, &[message_type()]).await.unwrap();
    send(&sqs, &["done", "aside"].map(|body| to(&here, envelope(body)))).await;
    ack(&ends, &next(&ends).await).await;
    settle(&ends, &next(&ends).await, Settlement::DeadLetter { reason: "for a test".into() }).await;
    let asked = proxy.asked();
    for operation in ["CreateQueue", "TagQueue", "SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"] {
        assert!(asked.iter().any(|asked| asked.operation() == Some(operation)), "{operation} was not asked for");
    }
    for asked in &asked {
        let said = asked.header("authorization").unwrap_or_default();
        let parts = said.strip_prefix("AWS4-HMAC-SHA256 Credential=").and_then(|rest| {
            let (credential, rest) = rest.split_once(", SignedHeaders=")?;
            let (signed, signature) = rest.split_once(", Signature=")?;
            let (key, scope) = credential.split_once('/')?;
            Some((key, scope, signed, signature))
        });
        let Some((key, scope, signed, signed_as)) = parts else { panic!("{:?}: {said}", asked.operation()) };
        assert_eq!(key, KEY);
        assert!(scope.ends_with("/us-east-1/sqs/aws4_request"), "{scope}");
        assert_eq!(asked.header("x-amz-security-token"), Some(TOKEN));
        for header in ["host", "x-amz-date", "x-amz-security-token", "x-amz-target"] {
            assert!(signed.split(';').any(|name| name == header), "{header} is not signed: {signed}");
        }
        assert_eq!(signature(asked, scope, signed, SECRET), signed_as, "{:?}", asked.operation());
        assert_ne!(signature(asked, scope, signed, "another"), signed_as);
    }
}
