//! A store whose client is an identity of Entra ID: a proxy sees its tokens, and denies it what the service denies it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use azure_core::{
    credentials::{AccessToken, TokenCredential, TokenRequestOptions},
    error::ErrorKind as AzureErrorKind,
};
use hapax::{
    entity::Expected,
    ports::{EntityStore, ErrorKind, Finished, Saved},
    stores::cosmos::Layout,
};
use hapax_tests::{
    CosmosDatabase,
    http_faults::{Asked, Fault, FaultProxy},
    samples::{entity, entry, key},
};

const SCOPE: &str = "https://cosmos.azure.com/.default";
/// Of the status 403: what role-based access control of the service does not let an identity do.
const BLOCKED: &str =
    r#"{"code":"Forbidden","message":"Request blocked by Auth: cannot be authorized by AAD token in data plane."}"#;

/// Has a new token each time that it is asked, while it has any.
#[derive(Debug, Default)]
struct Identity {
    tokens: AtomicUsize,
    has_none: AtomicBool,
}

#[async_trait::async_trait]
impl TokenCredential for Identity {
    async fn get_token(&self, scopes: &[&str], _: Option<TokenRequestOptions<'_>>) -> azure_core::Result<AccessToken> {
        assert_eq!(scopes, [SCOPE]);
        if self.has_none.load(Ordering::Relaxed) {
            return Err(azure_core::Error::with_message(AzureErrorKind::Credential, "the identity service is away"));
        }
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        let until = azure_core::time::OffsetDateTime::now_utc() + azure_core::time::Duration::hours(1);
        Ok(AccessToken::new(format!("token-{number}"), until))
    }
}

/// Making or changing a database or a container.
fn manages(asked: &Asked) -> bool {
    !asked.path().contains("/docs") && asked.method() != "GET"
}

/// A database that a key has set up, behind a proxy that denies an identity what the service does.
async fn set_up() -> (CosmosDatabase, FaultProxy) {
    let database = CosmosDatabase::new(Layout::Together);
    drop(database.open().await);
    let proxy = FaultProxy::start(database.url()).unwrap();
    let (here, there) = (proxy.url().to_owned(), database.url().trim_end_matches('/').to_owned());
    let named = move |body: &[u8]| String::from_utf8_lossy(body).replace(&there, &here).into_bytes();
    proxy.every(|asked| asked.method() == "GET" && asked.path() == "/", Fault::rewrite(named));
    let headers = [("content-type", "application/json"), ("x-ms-substatus", "5300")];
    proxy.every(manages, Fault::answer(403, &headers, BLOCKED));
    let through = database.through(proxy.url());
    (through, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_of_entra_id_works_with_its_tokens_and_without_a_key() {
    let (database, proxy) = set_up().await;
    let identity = Arc::new(Identity::default());
    let store = database.options_as(identity.clone()).await.open().await.unwrap();
    let (key, entry) = (key("identity"), entry(1));
    let waiting = entity("one", std::slice::from_ref(&entry));
    let Saved::At(version) = store.save(&key, &Expected::Absent, &waiting, &[]).await.unwrap() else { panic!() };
    let done = [entry.to_dedup_entry()];
    let clean = entity("one", &[]);
    let finished = store.finish(&key, &done, Some((&version, &clean))).await.unwrap();
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
    let loaded = store.load(&key, &[done[0].key]).await.unwrap();
    assert_eq!(loaded.known.unwrap().entry(&done[0].key), Some(&done[0]));
    assert_eq!(proxy.count(manages), 0, "an identity makes nothing");
    let bears_a_token = |asked: &Asked| {
        asked.header("authorization").is_some_and(|header| header.starts_with("type%3Daad%26ver%3D1.0%26sig%3Dtoken-"))
    };
    assert_eq!(proxy.count(|asked| !bears_a_token(asked)), 0, "every request bears a token");
    assert!(proxy.count(bears_a_token) > 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_that_is_to_make_containers_is_told_what_it_lacks() {
    let (database, _proxy) = set_up().await;
    let options = database.options_as(Arc::new(Identity::default())).await;
    let error = options.create_if_missing(true).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    let told = error.to_string();
    assert!(told.contains("create_if_missing(true)") && told.contains("key"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_for_now_nothing_is_written_and_nothing_unknown() {
    let (database, proxy) = set_up().await;
    let identity = Arc::new(Identity::default());
    let store = database.options_as(identity.clone()).await.open().await.unwrap();
    identity.has_none.store(true, Ordering::Relaxed);
    proxy.forget();
    let (key, entry) = (key("tokenless"), entry(1));
    let waiting = entity("one", std::slice::from_ref(&entry));
    let error = store.save(&key, &Expected::Absent, &waiting, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(store.load(&key, &[]).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(proxy.asked().len(), 0, "nothing has left");
    identity.has_none.store(false, Ordering::Relaxed);
    assert!(matches!(store.save(&key, &Expected::Absent, &waiting, &[]).await.unwrap(), Saved::At(_)));
}
