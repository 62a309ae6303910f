//! What servers say of themselves: what they are, and in which version.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Of all that are not it.
const UNTESTED: &str = "Apache Kafka itself untested";

/// Its name and the part of its version that says what it can do.
pub(crate) fn version(name: &str, full: &str, parts: usize) -> String {
    let number = full.split(|c: char| c != '.' && !c.is_ascii_digit()).find(|part| part.contains('.'));
    let number = number.unwrap_or_else(|| panic!("{full} has no version in it"));
    format!("{name} {}", number.split('.').take(parts).collect::<Vec<_>>().join("."))
}

/// What the server says of itself before anybody is let in (AMQP 0-9-1, `connection.start`): the driver does not tell.
pub(crate) async fn rabbitmq(url: &str) -> String {
    const HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";
    const VERSION: &[u8] = b"\x07versionS";
    let place = url.split_once("://").unwrap().1;
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place).split('/').next().unwrap();
    let mut stream = TcpStream::connect(place).await.unwrap();
    stream.write_all(HEADER).await.unwrap();
    let mut said = vec![0; 4096];
    let length = stream.read(&mut said).await.unwrap();
    let at = said[..length].windows(VERSION.len()).position(|window| window == VERSION).unwrap() + VERSION.len();
    // A text with its length in front, in four bytes; a version is short.
    let length = usize::from(said[at + 3]);
    String::from_utf8(said[at + 4..at + 4 + length].to_vec()).unwrap()
}

/// A broker tells no version. Its cluster has a name, which those that are made for tests have from there; of others, releases of Apache
/// Kafka before 4.0 have a setting that begins with it.
#[cfg(feature = "kafka")]
pub(crate) async fn kafka(url: &str) -> String {
    use rdkafka::{
        ClientConfig,
        admin::{AdminClient, AdminOptions, ResourceSpecifier},
        client::DefaultClientContext,
    };

    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", url.trim_start_matches("kafka://"));
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    // Of all topics: the client library connects to none before somebody asks.
    let broker = admin.inner().fetch_metadata(None, crate::PATIENCE).unwrap().orig_broker_id();
    let cluster = admin.inner().fetch_cluster_id(crate::PATIENCE).unwrap_or_default();
    if let Some(called) = stand_in(&cluster) {
        return called;
    }
    let asked = [ResourceSpecifier::Broker(broker)];
    let within = AdminOptions::new().request_timeout(Some(crate::PATIENCE));
    let described = admin.describe_configs(&asked, &within).await;
    let described = described.ok().and_then(|mut all| all.pop()).and_then(Result::ok);
    let setting = described.as_ref().and_then(|broker| broker.get("inter.broker.protocol.version"));
    speaking(setting.and_then(|setting| setting.value.as_deref()))
}

/// What is made for tests, by the name of its cluster.
fn stand_in(cluster: &str) -> Option<String> {
    let called = match cluster {
        made if made.starts_with("tansu-") => version("Tansu", made, 2),
        "tansu_cluster" => "a Tansu of its own version".to_owned(),
        "kfake" => "kfake".to_owned(),
        _ => return None,
    };
    Some(format!("{called}; {UNTESTED}"))
}

/// Another, by the version of the protocol in which it is set to speak with its like.
fn speaking(protocol: Option<&str>) -> String {
    match protocol {
        Some(protocol) => version("a broker that speaks as Apache Kafka", protocol, 2),
        None => format!("a broker that does not say what it is; {UNTESTED}"),
    }
}

/// The emulator of the tests says it in each answer; of others there is what they say.
#[cfg(feature = "sqs")]
pub(crate) async fn sqs(url: &str) -> String {
    let Some(place) = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()) else {
        return sqs_called("");
    };
    let mut stream = TcpStream::connect(place).await.unwrap();
    let request = format!("GET / HTTP/1.0\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    sqs_called(&String::from_utf8_lossy(&said))
}

/// By its answer of HTTP, whatever that is about.
fn sqs_called(answer: &str) -> String {
    let headers = answer.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let mut servers = headers.filter(|(name, _)| name.eq_ignore_ascii_case("server")).map(|(_, server)| server.trim());
    match servers.next() {
        Some(moto) if moto.starts_with("moto/") => version("the emulator moto", moto, 3),
        Some(other) => format!("an emulator that calls itself {other}"),
        None => "an emulator that does not say what it is".to_owned(),
    }
}

#[test]
fn a_server_is_called_what_it_says_it_is_and_no_other_is_taken_for_that_of_the_tests() {
    for (cluster, expected) in [
        ("tansu-0.6.0", Some("Tansu 0.6; Apache Kafka itself untested")),
        ("tansu_cluster", Some("a Tansu of its own version; Apache Kafka itself untested")),
        ("kfake", Some("kfake; Apache Kafka itself untested")),
        ("4L6g3nShT-eMCtK--X86sw", None),
        ("", None),
    ] {
        assert_eq!(stand_in(cluster).as_deref(), expected);
    }
    assert_eq!(speaking(Some("3.7-IV4")), "a broker that speaks as Apache Kafka 3.7");
    assert_eq!(speaking(None), "a broker that does not say what it is; Apache Kafka itself untested");
    for (answer, expected) in [
        ("HTTP/1.1 404 NOT FOUND\r\nServer: moto/5.2.5\r\n\r\nServer: body", "the emulator moto 5.2.5"),
        ("HTTP/1.1 200 OK\r\nDate: now\r\nserver: amazon.com\r\n\r\n", "an emulator that calls itself amazon.com"),
        ("HTTP/1.1 200 OK\r\nDate: now\r\n\r\nServer: moto/5.2.5", "an emulator that does not say what it is"),
        ("", "an emulator that does not say what it is"),
    ] {
        assert_eq!(sqs_called(answer), expected);
    }
}
