//! Servers on other machines, which have to show who they are: one at this machine's own address stands for them, with certificates of
//! an authority that nobody knows.

use std::net::{Ipv4Addr, TcpListener};

use hapax::{MySql, MySqlQueue, ports::ErrorKind, stores::mysql::MySqlOptions};
use hapax_tests::{MySqlServer, Signed, own_address};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

use super::{refusal, says, works};

/// What the server is told at each start: names of hosts are not looked up, so that no account is anybody's but by an address.
const SETTINGS: [&str; 2] = ["bind-address=0.0.0.0", "skip-name-resolve"];

/// A server that has no TLS to begin with.
struct Elsewhere {
    server: MySqlServer,
    address: Ipv4Addr,
    signed: Signed,
}

impl Elsewhere {
    /// `None`, said aloud, where nothing can be another machine's, or no certificate can be made.
    async fn new() -> Option<Self> {
        let address = own_address()?;
        let signed = Signed::new()?;
        // Later ones make a certificate of their own unless they are told not to.
        let [from_everywhere, without_names] = SETTINGS;
        let server = MySqlServer::start(&[from_everywhere, without_names, "skip-ssl"]).await;
        let elsewhere = Self { server, address, signed };
        let account = format!("shop@'{address}'");
        elsewhere.run(&format!("CREATE USER {account}; GRANT ALL ON test.* TO {account}")).await;
        Some(elsewhere)
    }

    async fn run(&self, sql: &str) {
        let mut connection = MySqlConnection::connect(&self.server.url()).await.unwrap();
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Lets in those alone who speak TLS, by the certificate `server`.
    async fn with_tls(&mut self) {
        self.run(&format!("ALTER USER shop@'{}' REQUIRE SSL", self.address)).await;
        let Self { server, signed, .. } = self;
        server.settings(&SETTINGS);
        server.with_tls(|folder| signed.copy_to(folder)).await;
    }

    /// Reached as another machine, as `parameters` of the URL say.
    fn options(&self, parameters: &str) -> MySqlOptions {
        let url = self.server.url().replace("root@127.0.0.1", &format!("shop@{}", self.address));
        MySql::options(format!("{url}?{parameters}")).migrate(true)
    }
}

/// Whether the server has a connection that is reached as `options` say for encrypted.
async fn is_encrypted(options: &MySqlOptions) -> bool {
    let mut connection = MySqlConnection::connect_with(&options.connect_options().unwrap()).await.unwrap();
    let sql = "SHOW SESSION STATUS LIKE 'Ssl_cipher'";
    let (_, cipher): (String, String) = sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    !cipher.is_empty()
}

/// Goal: a server elsewhere is used if its certificate is of a known authority and for its host, or if the way is said to be trusted,
/// and in no other case. Method: one that has no TLS; then a certificate for another host; then one for its own. Each refusal differs
/// in one word from what is taken.
#[tokio::test]
async fn a_mysql_server_elsewhere_is_believed_by_its_certificate_alone() {
    let Some(mut elsewhere) = Elsewhere::new().await else { return };
    let error = refusal(elsewhere.options("charset=utf8mb4")).await;
    if error.kind() == ErrorKind::Misconfigured && error.to_string().contains("`tls-ring`") {
        return eprintln!("SKIPPED: built without TLS: `cargo xtask test`");
    }
    let address = elsewhere.address.to_string();
    let remedies = [&*address, "offers no TLS", "switch it on", "`danger_unverified_tls(true)`"];
    says(&error, ErrorKind::Unavailable, &remedies);
    for said in ["charset=utf8mb4", "ssl-mode=DISABLED"] {
        let trusted = elsewhere.options(said).danger_unverified_tls(true);
        assert!(!is_encrypted(&trusted).await, "{said}");
        trusted.open().await.unwrap().close().await;
    }

    let known = format!("ssl-ca={}", elsewhere.signed.file("authority.pem").display());
    elsewhere.with_tls().await;
    let error = refusal(elsewhere.options(&known)).await;
    says(&error, ErrorKind::Unavailable, &[&address, "for another host", "the host as the certificate has it"]);
    // The rest of it is right.
    let of_any_host = elsewhere.options(&format!("ssl-mode=VERIFY_CA&{known}"));
    assert!(is_encrypted(&of_any_host).await);
    of_any_host.open().await.unwrap().close().await;

    elsewhere.signed.sign("server", &format!("subjectAltName=IP:{address}"));
    elsewhere.with_tls().await;
    let unknown = || elsewhere.options("charset=utf8mb4");
    let remedies = [&*address, "of no known authority", "`ssl-ca=FILE`"];
    says(&refusal(unknown()).await, ErrorKind::Unavailable, &remedies);
    let verified = || elsewhere.options(&known);
    assert!(is_encrypted(&verified()).await);
    // The server lets in nobody without TLS: not the store, and not a queue, which goes the same way.
    works(&verified().open().await.unwrap(), "verified").await;
    let queue = async |database| MySqlQueue::options().migrate(true).open_database(database).await;
    says(&queue(unknown()).await.unwrap_err(), ErrorKind::Unavailable, &remedies);
    queue(verified()).await.unwrap();

    let trusted = elsewhere.options("ssl-mode=REQUIRED").danger_unverified_tls(true);
    assert!(is_encrypted(&trusted).await);
    trusted.open().await.unwrap().close().await;
    let plain = elsewhere.options("ssl-mode=DISABLED").danger_unverified_tls(true);
    says(&refusal(plain).await, ErrorKind::Denied, &[&address, "the account"]);
}

#[tokio::test]
async fn a_url_of_mysql_that_would_believe_anybody_elsewhere_is_refused_before_anybody_is_asked() {
    let Some(address) = own_address() else { return };
    let silent = TcpListener::bind((address, 0)).unwrap();
    silent.set_nonblocking(true).unwrap();
    let port = silent.local_addr().unwrap().port();
    let host = address.to_string();
    let remedies = [&*host, "`ssl-mode=VERIFY_IDENTITY`", "`danger_unverified_tls(true)`"];
    for mode in ["DISABLED", "PREFERRED", "REQUIRED"] {
        let options = MySql::options(format!("mysql://shop:s3cret@{address}:{port}/shop?ssl-mode={mode}"));
        says(&refusal(options.clone()).await, ErrorKind::Misconfigured, &remedies);
        let queue = MySqlQueue::options().open_database(options).await;
        says(&queue.unwrap_err(), ErrorKind::Misconfigured, &remedies);
        assert!(silent.accept().is_err(), "{mode}: somebody has connected");
    }
}
