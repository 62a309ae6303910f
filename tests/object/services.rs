//! Every promise of the port on emulators of services, through clients with connections of their own: Azurite for Azure's
//! blobs, moto for S3. Or on the services [themselves](hapax_tests::real), where a variable asks for them.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use hapax::{
    ObjectDedup,
    ports::{DedupStore, ErrorKind},
    stores::object::ObjectDedupOptions,
    testing,
};
use hapax_tests::real::{AWS, AZURE, expect_refusals, is_asked};
use object_store::{ObjectStore, ObjectStoreExt, aws::AmazonS3Builder, azure::MicrosoftAzureBuilder, memory::InMemory};
use sha2::{Digest, Sha256};

use crate::{
    plain::Plain,
    samples::{entries, entry_of, keys},
};

/// The account that every Azurite has, and its key.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A bucket or container that nobody has: the names of buckets are everybody's.
const NOWHERE: &str = "hapax-t-nowhere-5d1f0c9a7be34d62";

/// A bucket or container that no other test uses.
#[derive(Debug)]
pub(crate) struct Place {
    url: String,
    name: String,
    azure: bool,
    #[cfg(feature = "real")]
    itself: Option<crate::real::Service>,
}

impl Place {
    pub(crate) async fn s3() -> Self {
        if is_asked(AWS) {
            return Self::in_the_service(false).await;
        }
        Self::emulated_s3()
    }

    /// In the emulator, whatever is asked for: where a proxy is to stand before it.
    pub(crate) fn emulated_s3() -> Self {
        let place = Self::named("HAPAX_TEST_S3", false);
        place.make("", "");
        place
    }

    async fn azure_blob() -> Self {
        if is_asked(AZURE) {
            return Self::in_the_service(true).await;
        }
        let place = Self::named("HAPAX_TEST_AZURE_BLOB", true);
        let (date, resource) = (now().await, format!("/{ACCOUNT}/{ACCOUNT}/{}", place.name));
        let signed =
            format!("PUT{}x-ms-date:{date}\nx-ms-version:2021-08-06\n{resource}\nrestype:container", "\n".repeat(12));
        let signature = STANDARD.encode(hmac(&STANDARD.decode(KEY).unwrap(), signed.as_bytes()));
        let headers = format!(
            "x-ms-date: {date}\r\nx-ms-version: 2021-08-06\r\nAuthorization: SharedKey {ACCOUNT}:{signature}\r\n"
        );
        place.make("?restype=container", &headers);
        place
    }

    fn named(variable: &str, azure: bool) -> Self {
        let url = std::env::var(variable).unwrap_or_else(|_| {
            panic!("nothing to test with: run `cargo xtask test`, or set {variable}=http://HOST:PORT")
        });
        let url = url.trim_end_matches('/').to_owned();
        Self {
            url,
            name: format!("t-{:016x}", fastrand::u64(..)),
            azure,
            #[cfg(feature = "real")]
            itself: None,
        }
    }

    #[cfg(feature = "real")]
    async fn in_the_service(azure: bool) -> Self {
        use crate::real::Service;
        let (service, name) =
            (if azure { Service::AzureBlob } else { Service::S3 }, format!("hapax-t-{:016x}", fastrand::u64(..)));
        service.make(&name).await;
        Self { url: String::new(), name, azure, itself: Some(service) }
    }

    #[cfg(not(feature = "real"))]
    async fn in_the_service(_: bool) -> Self {
        unreachable!("who asks for it without the feature is refused")
    }

    /// Makes it, which the clients cannot.
    fn make(&self, query: &str, headers: &str) {
        let host = self.url.trim_start_matches("http://");
        let mut server = TcpStream::connect(host).unwrap();
        let account = if self.azure { format!("/{ACCOUNT}") } else { String::new() };
        let line = format!("PUT {account}/{}{query} HTTP/1.1\r\nHost: {host}\r\n", self.name);
        server.write_all(format!("{line}{headers}Content-Length: 0\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        server.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }

    /// A client with connections of its own.
    fn client(&self, name: &str) -> Arc<dyn ObjectStore> {
        #[cfg(feature = "real")]
        if let Some(service) = self.itself {
            return service.client(name);
        }
        if self.azure {
            let client = MicrosoftAzureBuilder::new()
                .with_account(ACCOUNT)
                .with_access_key(KEY)
                .with_endpoint(format!("{}/{ACCOUNT}", self.url))
                .with_allow_http(true)
                .with_container_name(name)
                .with_http_connector(Plain);
            Arc::new(client.build().unwrap())
        } else {
            let client = AmazonS3Builder::new()
                .with_endpoint(&self.url)
                .with_allow_http(true)
                .with_region("us-east-1")
                .with_access_key_id("any")
                .with_secret_access_key("any")
                .with_bucket_name(name)
                .with_http_connector(Plain);
            Arc::new(client.build().unwrap())
        }
    }

    /// Where the service is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The same by another way, for example through a proxy.
    pub(crate) fn through(&self, url: &str) -> Self {
        Self {
            url: url.to_owned(),
            name: self.name.clone(),
            azure: self.azure,
            #[cfg(feature = "real")]
            itself: self.itself,
        }
    }

    pub(crate) fn options(&self, prefix: &str) -> ObjectDedupOptions {
        let options = ObjectDedup::options(self.client(&self.name), prefix).second(self.client(&self.name));
        options.clock_margin(Duration::ZERO)
    }

    async fn open(&self, prefix: &str) -> ObjectDedup {
        self.options(prefix).open().await.unwrap()
    }

    /// What is not there is an error, and what is there is seen by others, once.
    async fn check(&self) {
        let error = ObjectDedup::options(self.client(NOWHERE), "shop").open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(error.to_string().contains("create the bucket"), "{error:?}");

        // Nor may it read as an object that is not there: what the library tells as the same is told apart by these words.
        let words = if self.azure { "ContainerNotFound" } else { "NoSuchBucket" };
        let error = self.client(NOWHERE).get(&"shop/d/00/00".into()).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");

        let (one, two) = (self.open("shop").await, self.open("shop").await);
        let entries = entries(100);
        one.insert(&entries).await.unwrap();
        two.insert(&entries.iter().map(|entry| entry_of(entry.key)).collect::<Vec<_>>()).await.unwrap();
        let known = two.contains(&keys(&entries)).await.unwrap();
        assert!(entries.iter().all(|entry| known.entry(&entry.key) == Some(entry)));
    }
}

/// The time as HTTP writes it: nothing else here tells dates.
async fn now() -> String {
    let (clock, path) = (InMemory::new(), object_store::path::Path::from("now"));
    clock.put(&path, "".into()).await.unwrap();
    clock.head(&path).await.unwrap().last_modified.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// HMAC-SHA256 with a key of 64 bytes (RFC 2104).
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let padded = |byte: u8| key.iter().map(|key| key ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::new_with_prefix(padded(0x36)).chain_update(text).finalize();
    Sha256::new_with_prefix(padded(0x5c)).chain_update(inner).finalize().to_vec()
}

#[async_trait]
impl testing::dedup_store::Builder for Place {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(self.open("shared").await)
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.open("separate").await))
    }
}

#[tokio::test]
async fn objects_in_s3_are_seen_by_others_and_a_bucket_that_is_not_there_is_refused() {
    Place::s3().await.check().await;
}

#[tokio::test]
async fn objects_in_azure_blob_are_seen_by_others_and_a_container_that_is_not_there_is_refused() {
    Place::azure_blob().await.check().await;
}

#[test]
fn services_of_objects_are_asked_for_by_variables_and_what_they_take_is_told() {
    let s3 = "services::objects_in_s3_are_seen_by_others_and_a_bucket_that_is_not_there_is_refused";
    let variables = [("HAPAX_AWS", "1"), ("AWS_REGION", "eu-central-1")];
    expect_refusals(s3, &variables, &["set AWS_REGION", "set AWS_ACCESS_KEY_ID"]);
    let azure = "services::objects_in_azure_blob_are_seen_by_others_and_a_container_that_is_not_there_is_refused";
    let variables = [("HAPAX_AZURE", "1"), ("HAPAX_AZURE_BLOB_ACCOUNT", "none")];
    expect_refusals(azure, &variables, &["set HAPAX_AZURE_BLOB_ACCOUNT", "set HAPAX_AZURE_BLOB_KEY"]);
}

mod s3 {
    hapax_core::dedup_store_suite!(super::Place::s3().await);
}

mod azure_blob {
    hapax_core::dedup_store_suite!(super::Place::azure_blob().await);
}
