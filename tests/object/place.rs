//! Where objects are: in the emulators of services, Azurite for Azure's blobs and moto for S3, through clients with connections of
//! their own; or in the services [themselves](hapax_tests::real), where a variable asks for them.

use std::{sync::Arc, time::Duration};

use hapax::{ObjectDedup, stores::object::ObjectDedupOptions};
use hapax_servers::{Cloud, objects::Bucket};
use hapax_tests::real::{AWS, AZURE, is_asked};
use object_store::ObjectStore;

/// A bucket or container that no other test uses.
#[derive(Debug)]
pub(crate) struct Place {
    bucket: Bucket,
    #[cfg(feature = "real")]
    itself: Option<crate::real::Service>,
}

impl Place {
    pub(crate) async fn s3() -> Self {
        if is_asked(AWS) {
            return Self::in_the_service(Cloud::S3).await;
        }
        Self::emulated_s3().await
    }

    /// In the emulator, whatever is asked for: where a proxy is to stand before it.
    pub(crate) async fn emulated_s3() -> Self {
        Self::made(Cloud::S3, "HAPAX_TEST_S3").await
    }

    pub(crate) async fn azure_blob() -> Self {
        if is_asked(AZURE) {
            return Self::in_the_service(Cloud::AzureBlob).await;
        }
        Self::made(Cloud::AzureBlob, "HAPAX_TEST_AZURE_BLOB").await
    }

    async fn made(cloud: Cloud, variable: &str) -> Self {
        let url = std::env::var(variable).unwrap_or_else(|_| {
            panic!("nothing to test with: run `cargo xtask test`, or set {variable}=http://HOST:PORT")
        });
        let bucket = Bucket::new(cloud, &url, &format!("t-{:016x}", fastrand::u64(..)));
        bucket.make().await.unwrap();
        Self {
            bucket,
            #[cfg(feature = "real")]
            itself: None,
        }
    }

    #[cfg(feature = "real")]
    async fn in_the_service(cloud: Cloud) -> Self {
        use crate::real::Service;
        let service = if cloud == Cloud::AzureBlob { Service::AzureBlob } else { Service::S3 };
        let bucket = Bucket::new(cloud, "", &format!("hapax-t-{:016x}", fastrand::u64(..)));
        service.make(bucket.name()).await;
        Self { bucket, itself: Some(service) }
    }

    #[cfg(not(feature = "real"))]
    async fn in_the_service(_: Cloud) -> Self {
        unreachable!("who asks for it without the feature is refused")
    }

    /// A client with connections of its own, of a bucket of this name.
    pub(crate) fn client(&self, name: &str) -> Arc<dyn ObjectStore> {
        #[cfg(feature = "real")]
        if let Some(service) = self.itself {
            return service.client(name);
        }
        Bucket::new(self.cloud(), self.url(), name).client().unwrap()
    }

    pub(crate) const fn cloud(&self) -> Cloud {
        self.bucket.cloud()
    }

    /// Where the service is.
    pub(crate) fn url(&self) -> &str {
        self.bucket.url()
    }

    /// The same by another way, for example through a proxy.
    pub(crate) fn through(&self, url: &str) -> Self {
        Self {
            bucket: Bucket::new(self.cloud(), url, self.bucket.name()),
            #[cfg(feature = "real")]
            itself: self.itself,
        }
    }

    pub(crate) fn options(&self, prefix: &str) -> ObjectDedupOptions {
        let name = self.bucket.name();
        ObjectDedup::options(self.client(name), prefix).second(self.client(name)).clock_margin(Duration::ZERO)
    }

    pub(crate) async fn open(&self, prefix: &str) -> ObjectDedup {
        self.options(prefix).open().await.unwrap()
    }
}
