//! Who is let in: users with passwords, tokens, and credentials that an account has signed; and that none of it is in a log.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hapax::{
    Nats,
    ports::{ErrorKind, Transport, TransportError},
    transports::nats::NatsOptions,
};
use hapax_tests::{LogLines, NatsServer};
use nkeys::KeyPair;
use serde_json::{Value, json};

use super::rig::*;

/// What an operator has: one who vouches for accounts, of which one is the server's own.
struct Operator {
    operator: KeyPair,
    account: KeyPair,
    system: KeyPair,
}

/// A token, signed.
fn signed(by: &KeyPair, of: &KeyPair, expires: Option<u64>, nats: &Value) -> String {
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let mut claims = json!({
        "jti": unique("token"), "iat": 1_700_000_000, "iss": by.public_key(), "sub": of.public_key(), "name": "test",
        "nats": nats,
    });
    if let Some(expires) = expires {
        claims["exp"] = expires.into();
    }
    let [head, claims] = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let said = format!("{head}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(by.sign(said.as_bytes()).unwrap());
    format!("{said}.{signature}")
}

impl Operator {
    fn new() -> Self {
        Self { operator: KeyPair::new_operator(), account: KeyPair::new_account(), system: KeyPair::new_account() }
    }

    /// For a server that believes it.
    fn settings(&self) -> String {
        let limits = |bytes: i64| {
            json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
                "mem_storage": bytes, "disk_storage": bytes, "streams": bytes, "consumer": bytes })
        };
        let account = |of: &KeyPair, bytes| {
            let token =
                signed(&self.operator, of, None, &json!({ "type": "account", "version": 2, "limits": limits(bytes) }));
            format!("{}: {token}", of.public_key())
        };
        let operator = signed(&self.operator, &self.operator, None, &json!({ "type": "operator", "version": 2 }));
        format!(
            "operator: {operator}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n{}\n{}\n}}",
            self.system.public_key(),
            account(&self.account, -1),
            account(&self.system, 0),
        )
    }

    fn token(&self, of: &KeyPair, expires: Option<u64>) -> String {
        signed(
            &self.account,
            of,
            expires,
            &json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 }),
        )
    }
}

/// As in a file of credentials.
fn credentials(token: &str, seed: &str) -> String {
    format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

/// Once the server answers.
async fn opened(options: NatsOptions, url: &str) -> Result<Nats, TransportError> {
    let until_it_answers = async {
        loop {
            match options.clone().patience(Duration::from_secs(5)).open(url).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                opened => return opened,
            }
        }
    };
    tokio::time::timeout(PATIENCE, until_it_answers).await.expect("the server does not answer")
}

fn denied(opened: Result<Nats, TransportError>, secrets: &[&str]) {
    let error = opened.expect_err("it is let in");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.to_string().contains("check user, password, token or credentials"), "{error}");
    for secret in secrets {
        assert!(!format!("{error:?}").contains(secret), "it tells {secret}: {error:?}");
    }
}

async fn sends_and_receives(queue: &Nats) {
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(queue, &[to(&here, envelope("let in"))]).await;
    ack(&ends, &next(&ends).await).await;
}

/// By an operator, as in a cluster of several accounts: the server knows no user, only who vouches for accounts.
#[tokio::test]
async fn credentials_let_in_who_has_the_key_that_its_account_has_signed_and_nobody_else() {
    let logged = LogLines::everywhere();
    let operator = Operator::new();
    let mut server = NatsServer::start().await;
    server.told_anew(&operator.settings());
    let (user, stranger) = (KeyPair::new_user(), KeyPair::new_user());
    let [seed, other_seed] = [&user, &stranger].map(|key| key.seed().unwrap());
    let token = operator.token(&user, None);
    let with = |token: &str, seed: &str| Nats::options().credentials(credentials(token, seed));
    let known = with(&token, &seed);
    assert!(!format!("{known:?}").contains(&seed), "the options show the key");
    let queue = opened(known, &server.url()).await.unwrap_or_else(|e| panic!("{e:?}\n{}", server.log()));
    sends_and_receives(&queue).await;

    let secrets = [seed.as_str(), &other_seed, &token];
    // Another's key; an account that nobody vouches for; a token that has expired; no credentials.
    denied(opened(with(&token, &other_seed), &server.url()).await, &secrets);
    let unknown = Operator::new().token(&user, None);
    denied(opened(with(&unknown, &seed), &server.url()).await, &secrets);
    let expired = operator.token(&user, Some(1_700_000_100));
    denied(opened(with(&expired, &seed), &server.url()).await, &secrets);
    denied(opened(Nats::options(), &server.url()).await, &secrets);
    // They are shown again when the connection is lost.
    server.kill();
    server.told_anew(&operator.settings());
    let until_it_is_back = async {
        while queue.connect(&endpoint(), &[]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, until_it_is_back).await.expect("it is not let in again");
    sends_and_receives(&queue).await;
    for secret in [&seed, &other_seed, &token, &unknown, &expired] {
        assert_eq!(logged.with(secret), Vec::<String>::new());
    }
    assert!(!logged.with("server").is_empty(), "nothing was heard at all");
}

#[tokio::test]
async fn passwords_and_tokens_let_in_and_are_in_no_log() {
    const SECRETS: [&str; 3] = ["pa55-of-shop", "t0ken-of-shop", "wr0ng-of-shop"];
    let [password, token, wrong] = SECRETS;
    let logged = LogLines::everywhere();
    let mut server = NatsServer::start().await;
    let url = |who: &str| server.url().replace("//", &format!("//{who}@"));
    let [by_password, by_token] = [url(&format!("shop:{password}")), url(token)];
    let [wrong_password, wrong_token] = [url(&format!("shop:{wrong}")), url(wrong)];
    let anonymous = server.url();
    server.told_anew(&format!("authorization {{ users = [{{ user: shop, password: \"{password}\" }}] }}"));
    let queue = opened(Nats::options(), &by_password).await.unwrap();
    sends_and_receives(&queue).await;
    assert!(!format!("{queue:?}").contains(password), "{queue:?}");
    for url in [&wrong_password, &wrong_token, &anonymous] {
        denied(opened(Nats::options(), url).await, &SECRETS);
    }
    server.told_anew(&format!("authorization {{ token: \"{token}\" }}"));
    sends_and_receives(&opened(Nats::options(), &by_token).await.unwrap()).await;
    for url in [&wrong_password, &wrong_token, &anonymous] {
        denied(opened(Nats::options(), url).await, &SECRETS);
    }
    for secret in SECRETS {
        assert_eq!(logged.with(secret), Vec::<String>::new());
    }
}
