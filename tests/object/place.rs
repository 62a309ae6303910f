//! Where objects are: in the emulators of services, Azurite for Azure's blobs and moto for S3, through clients with connections of
//! their own; or in the services [themselves](hapax_tests::real), where a variable asks for them.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hapax::{ObjectDedup, stores::object::ObjectDedupOptions};
use hapax_tests::real::{AWS, AZURE, is_asked};
use object_store::{ObjectStore, ObjectStoreExt, aws::AmazonS3Builder, azure::MicrosoftAzureBuilder, memory::InMemory};
use sha2::{Digest, Sha256};

use crate::plain::Plain;

/// The account that every Azurite has, and its key.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A bucket or container that no other test uses.
#[derive(Debug)]
pub(crate) struct Place {
    url: String,
    name: String,
    pub(crate) azure: bool,
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

    pub(crate) async fn azure_blob() -> Self {
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
    pub(crate) fn client(&self, name: &str) -> Arc<dyn ObjectStore> {
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

    pub(crate) async fn open(&self, prefix: &str) -> ObjectDedup {
        self.options(prefix).open().await.unwrap()
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
