//! The services themselves, where a person asks for them: by a place that names a region or an account and no port, and by a variable
//! beside it, so that nobody pays for a slip. Where they are and who asks, the variables of the tests say (`hapax_servers::real`).

use hapax_servers::real;
#[cfg(feature = "real")]
use hapax_servers::real::Aws;

use crate::Refusal;

/// What an account's place says of where it is, if it is not where its name says.
#[cfg(feature = "real")]
const COSMOS_ENDPOINT: &str = "HAPAX_AZURE_COSMOS_ENDPOINT";
#[cfg(feature = "real")]
const COSMOS_KEY: &str = "HAPAX_AZURE_COSMOS_KEY";
#[cfg(feature = "real")]
const BLOB_ACCOUNT: &str = "HAPAX_AZURE_BLOB_ACCOUNT";
#[cfg(feature = "real")]
const BLOB_ENDPOINT: &str = "HAPAX_AZURE_BLOB_ENDPOINT";
#[cfg(feature = "real")]
const BLOB_KEY: &str = "HAPAX_AZURE_BLOB_KEY";

/// Whose service it is, and so what a place in it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vendor {
    Aws,
    Azure,
}

impl Vendor {
    const fn variable(self) -> &'static str {
        match self {
            Self::Aws => real::AWS,
            Self::Azure => real::AZURE,
        }
    }

    /// What stands behind the scheme.
    const fn place(self) -> &'static str {
        match self {
            Self::Aws => "REGION",
            Self::Azure => "ACCOUNT",
        }
    }

    fn has(self, at: &str) -> bool {
        match self {
            Self::Aws => is_region(at),
            Self::Azure => is_account(at),
        }
    }

    /// Refuses `at` unless it is a place in the service itself, and that is asked for and can be had. `option` is what the place was
    /// given with.
    pub(crate) fn check(self, option: &str, scheme: &str, at: &str) -> Result<(), Refusal> {
        let (variable, place) = (self.variable(), self.place());
        if !self.has(at) {
            return Err(Refusal::new(format!(
                "{option}: write {scheme}://HOST:PORT of an emulator, which speaks HTTP, or {scheme}://{place} for the service itself, \
                 with {variable}=1"
            )));
        }
        let why = if !real::asked(variable) {
            format!("set {variable}=1 if you mean it, or write {scheme}://HOST:PORT of an emulator")
        } else if !cfg!(feature = "real") {
            "this program was built without TLS; build it with --features real".into()
        } else {
            return Ok(());
        };
        Err(Refusal::new(format!("{option}: {scheme}://{at} is the service itself, which costs money: {why}")))
    }
}

/// As in `eu-central-1` or `us-gov-west-1`; no bucket of somebody's by mistake.
fn is_region(at: &str) -> bool {
    let labels: Vec<&str> = at.split('-').collect();
    let [words @ .., number] = &*labels else { return false };
    let is_word = |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    words.len() > 1 && words.iter().all(is_word) && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// What both services take as the name of an account; each is stricter.
fn is_account(at: &str) -> bool {
    const LONGEST: usize = 44;
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (3..=LONGEST).contains(&at.len()) && at.bytes().all(is_letter) && !at.starts_with('-')
}

/// Region and credentials; who has them is asked once.
#[cfg(feature = "real")]
pub(crate) async fn aws(region: &str) -> Result<Aws, String> {
    static FOUND: tokio::sync::OnceCell<Aws> = tokio::sync::OnceCell::const_new();
    let found = FOUND.get_or_try_init(|| Aws::find(Some(region))).await?;
    Ok(found.clone().in_region(region))
}

/// Where an account of Cosmos DB is, and its key.
#[cfg(feature = "real")]
pub(crate) fn cosmos(account: &str) -> Result<(String, String), String> {
    let endpoint = endpoint_of(account, COSMOS_ENDPOINT)?;
    let endpoint = endpoint.unwrap_or_else(|| format!("https://{account}.documents.azure.com"));
    Ok((endpoint, needed(COSMOS_KEY, account, "which may make databases")?))
}

/// An account of Azure Blob.
#[cfg(feature = "real")]
pub(crate) fn blobs(account: &str) -> Result<hapax_servers::objects::Account, String> {
    if let Some(other) = real::value(BLOB_ACCOUNT).filter(|other| other != account) {
        return Err(format!("{BLOB_ACCOUNT} is {other}: unset it, or name that account"));
    }
    let endpoint = endpoint_of(account, BLOB_ENDPOINT)?;
    let key = needed(BLOB_KEY, account, "which may make containers")?;
    Ok(hapax_servers::objects::Account::azure_blob(account, &key, endpoint.as_deref()))
}

/// What the variable says, if it is set. Over TLS it is the account's own address: a run is to touch no other one.
#[cfg(feature = "real")]
fn endpoint_of(account: &str, variable: &str) -> Result<Option<String>, String> {
    let Some(endpoint) = real::value(variable) else { return Ok(None) };
    let is_its_own =
        endpoint.strip_prefix("https://").is_some_and(|host| host.split(['.', ':', '/']).next() == Some(account));
    if is_its_own || endpoint.starts_with("http://") {
        return Ok(Some(endpoint));
    }
    Err(format!(
        "{variable} is {endpoint}, which is not the address of {account}: set it to https://{account}.., or unset it"
    ))
}

#[cfg(feature = "real")]
fn needed(variable: &str, account: &str, may: &str) -> Result<String, String> {
    real::value(variable).ok_or_else(|| format!("there is no key: set {variable} to one of {account}, {may}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_or_an_account_is_known_by_its_looks() {
        for region in ["eu-central-1", "us-gov-west-1", "ap-southeast-12", "mx-central-1"] {
            assert!(is_region(region), "{region}");
        }
        for other in
            ["", "eu", "eu-1", "eu-central", "my-bucket-a1", "EU-central-1", "-eu-central-1", "eu-central-", "a.b-c-1"]
        {
            assert!(!is_region(other), "{other}");
        }
        assert!(is_account("shop-7") && is_account("7shop"));
        for other in ["", "ab", "-shop", "Shop", "shop.x", "a:b@shop", "shop/x", &"x".repeat(45)] {
            assert!(!is_account(other), "{other}");
        }
    }
}
