//! Which object storage is meant, as commands and URLs write it. Unlike `objects` this takes no client library.

/// Who keeps objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    /// Amazon's S3.
    S3,
    /// Microsoft's Azure Blob.
    AzureBlob,
}

impl Cloud {
    /// Both.
    pub const ALL: [Self; 2] = [Self::S3, Self::AzureBlob];

    /// What `cargo xtask emulator` calls it, and a URL begins with.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::AzureBlob => "azure-blob",
        }
    }
}
