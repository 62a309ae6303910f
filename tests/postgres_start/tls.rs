//! Servers on other machines, which have to show who they are: one at this machine's own address stands for them, with certificates of
//! an authority that nobody knows.

use std::net::{Ipv4Addr, TcpListener};

use hapax::{Postgres, PostgresQueue, ports::ErrorKind, stores::postgres::PostgresOptions};
use hapax_tests::{PostgresServer, Signed, own_address};
use sqlx::{Connection, PgConnection};

use super::{refusal, says, works};

/// A server that has no TLS to begin with.
struct Elsewhere {
    server: PostgresServer,
    address: Ipv4Addr,
    signed: Signed,
}

impl Elsewhere {
    /// `None`, said aloud, where nothing can be another machine's, or no certificate can be made.
    async fn new() -> Option<Self> {
        let address = own_address()?;
        let signed = Signed::new()?;
        let server = PostgresServer::start(&[&format!("listen_addresses=127.0.0.1,{address}")]).await;
        let mut elsewhere = Self { server, address, signed };
        elsewhere.admit("host").await;
        elsewhere.server.kill();
        elsewhere.server.restart().await;
        Some(elsewhere)
    }

    /// Who comes from elsewhere is let in by a rule of this kind: `hostssl` is for those who speak TLS. A server that runs reads it by
    /// and by.
    async fn admit(&mut self, rule: &str) {
        let address = self.address;
        let rules = format!("host all all 127.0.0.1/32 trust\n{rule} all all {address}/32 trust\n");
        self.server.admit(&rules).await;
    }

    /// Lets in those alone who speak TLS, by the certificate `server`.
    async fn with_tls(&mut self) {
        self.admit("hostssl").await;
        let Self { server, signed, .. } = self;
        server.with_tls(|folder| signed.copy_to(folder)).await;
    }

    /// Reached as another machine, as `parameters` of the URL say.
    fn options(&self, parameters: &str) -> PostgresOptions {
        let url = self.server.url().replace("127.0.0.1", &self.address.to_string());
        Postgres::options(format!("{url}?{parameters}")).migrate(true)
    }

    /// Whether the server has those connections for encrypted that have said that `name` is theirs.
    async fn is_encrypted(&self, name: &str) -> bool {
        let mut connection = PgConnection::connect(&self.server.url()).await.unwrap();
        let sql = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1";
        let found: Vec<bool> = sqlx::query_scalar(sql).bind(name).fetch_all(&mut connection).await.unwrap();
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0]
    }
}

/// Goal: a server elsewhere is used if its certificate is of a known authority and for its host, or if the way is said to be trusted,
/// and in no other case. Method: one that has no TLS; then a certificate for another host; then one for its own. Each refusal differs
/// in one word from what is taken.
#[tokio::test]
async fn a_postgres_server_elsewhere_is_believed_by_its_certificate_alone() {
    let Some(mut elsewhere) = Elsewhere::new().await else { return };
    let error = refusal(elsewhere.options("application_name=plain")).await;
    if error.kind() == ErrorKind::Misconfigured && error.to_string().contains("`tls-ring`") {
        return eprintln!("SKIPPED: built without TLS: `cargo xtask test`");
    }
    let address = elsewhere.address.to_string();
    let remedies = [&*address, "offers no TLS", "switch it on", "`danger_unverified_tls(true)`"];
    says(&error, ErrorKind::Unavailable, &remedies);
    for said in ["", "&sslmode=disable"] {
        let trusted = elsewhere.options(&format!("application_name=plain{said}")).danger_unverified_tls(true);
        let store = trusted.open().await.unwrap();
        assert!(!elsewhere.is_encrypted("plain").await, "{said}");
        store.close().await;
    }

    let known = format!("sslrootcert={}", elsewhere.signed.file("authority.pem").display());
    elsewhere.with_tls().await;
    let error = refusal(elsewhere.options(&known)).await;
    says(&error, ErrorKind::Unavailable, &[&address, "for another host", "the host as the certificate has it"]);
    // The rest of it is right.
    let of_any_host = elsewhere.options(&format!("application_name=any&sslmode=verify-ca&{known}"));
    let store = of_any_host.open().await.unwrap();
    assert!(elsewhere.is_encrypted("any").await);
    store.close().await;

    elsewhere.signed.sign("server", &format!("subjectAltName=IP:{address}"));
    elsewhere.with_tls().await;
    let unknown = || elsewhere.options("application_name=unknown");
    let remedies = [&*address, "of no known authority", "`ssl-ca=FILE`"];
    says(&refusal(unknown()).await, ErrorKind::Unavailable, &remedies);
    let verified = |name: &str| elsewhere.options(&format!("application_name={name}&{known}"));
    let store = verified("verified").open().await.unwrap();
    works(&store, "verified").await;
    assert!(elsewhere.is_encrypted("verified").await);
    // A queue goes the same way; the server has let in nobody without TLS.
    let queue = async |database| PostgresQueue::options().migrate(true).open_database(database).await;
    says(&queue(unknown()).await.unwrap_err(), ErrorKind::Unavailable, &remedies);
    queue(verified("queue")).await.unwrap();

    let trusted = |mode: &str| elsewhere.options(&format!("application_name={mode}&sslmode={mode}"));
    let store = trusted("require").danger_unverified_tls(true).open().await.unwrap();
    assert!(elsewhere.is_encrypted("require").await);
    store.close().await;
    says(&refusal(trusted("disable").danger_unverified_tls(true)).await, ErrorKind::Denied, &[&address]);
}

#[tokio::test]
async fn a_url_of_postgres_that_would_believe_anybody_elsewhere_is_refused_before_anybody_is_asked() {
    let Some(address) = own_address() else { return };
    let silent = TcpListener::bind((address, 0)).unwrap();
    silent.set_nonblocking(true).unwrap();
    let port = silent.local_addr().unwrap().port();
    let host = address.to_string();
    let remedies = [&*host, "`sslmode=verify-full`", "`danger_unverified_tls(true)`"];
    for mode in ["disable", "allow", "prefer", "require"] {
        let options = Postgres::options(format!("postgres://shop:s3cret@{address}:{port}/shop?sslmode={mode}"));
        says(&refusal(options.clone()).await, ErrorKind::Misconfigured, &remedies);
        let queue = PostgresQueue::options().open_database(options).await;
        says(&queue.unwrap_err(), ErrorKind::Misconfigured, &remedies);
        assert!(silent.accept().is_err(), "{mode}: somebody has connected");
    }
}
