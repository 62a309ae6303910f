//! Cosmos DB for tests: the in-memory emulator of Microsoft's own driver, behind plain HTTP.
//!
//! One region, `East US`, at the address that it was asked at, so that something may stand before it. `--consistency` sets the account's: `strong` (the default),
//! `bounded-staleness`, `session`, `consistent-prefix` or `eventual`; `--writes multi` lets it say that all regions accept
//! writes. Keys are not checked, and nothing survives the process.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;

use azure_core::http::headers::{HeaderName, HeaderValue};
use azure_core::http::{Method, Request, Url};
use azure_data_cosmos_driver::in_memory_emulator::{
    ConsistencyLevel, InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion, WriteMode,
};
use hapax_emulators::{Settings, conclude};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;

/// What the SDK calls this region; clients must name it.
const REGION: &str = "East US";

type Answer = hyper::Response<Full<Bytes>>;

#[tokio::main]
async fn main() -> ExitCode {
    conclude(run().await)
}

async fn run() -> Result<(), String> {
    let settings = Settings::parse(std::env::args().skip(1), &["consistency", "writes"])?;
    let consistency = consistency(settings.value("consistency").unwrap_or("strong"))?;
    let writes = match settings.value("writes").unwrap_or("single") {
        "single" => WriteMode::Single,
        "multi" => WriteMode::Multi,
        other => return Err(format!("`{other}` is not for --writes: single or multi")),
    };
    let (listener, url) = settings.listen().await?;
    // Its account names the address to clients, so it must be the one that they can dial.
    let region = VirtualRegion::new(REGION, Url::parse(&url).map_err(|error| error.to_string())?);
    let account = VirtualAccountConfig::new(vec![region]).map_err(|error| error.to_string())?;
    let account = account.with_consistency(consistency).with_write_mode(writes);
    let emulator = InMemoryEmulatorHttpClient::try_new(account).map_err(|error| error.to_string())?;
    settings.announce(&url);
    tokio::select! {
        never = serve(listener, Arc::new(emulator), url.into()) => match never {},
        () = settings.end() => Ok(()),
    }
}

fn consistency(name: &str) -> Result<ConsistencyLevel, String> {
    Ok(match name {
        "strong" => ConsistencyLevel::Strong,
        "bounded-staleness" => ConsistencyLevel::BoundedStaleness,
        "session" => ConsistencyLevel::Session,
        "consistent-prefix" => ConsistencyLevel::ConsistentPrefix,
        "eventual" => ConsistencyLevel::Eventual,
        other => return Err(format!("`{other}` is no consistency: strong, bounded-staleness, session, …")),
    })
}

async fn serve(listener: TcpListener, emulator: Arc<InMemoryEmulatorHttpClient>, url: Arc<str>) -> Infallible {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await; // A client that is gone, or too many open files.
            continue;
        };
        let _ = stream.set_nodelay(true); // Slower without it, no worse.
        let (emulator, url) = (Arc::clone(&emulator), Arc::clone(&url));
        let service = service_fn(move |asked| {
            let (emulator, url) = (Arc::clone(&emulator), Arc::clone(&url));
            // A task of its own: what the emulator has begun it ends, though the client is gone.
            let answer = tokio::spawn(async move { answer(&emulator, &url, asked).await });
            async { Ok::<_, Infallible>(answer.await.unwrap_or_else(|error| failed(500, &error.to_string()))) }
        });
        tokio::spawn(async move {
            // The SDK tries HTTP/2 first. How a connection ended its client knows.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(emulator: &InMemoryEmulatorHttpClient, url: &str, asked: hyper::Request<Incoming>) -> Answer {
    let (parts, body) = asked.into_parts();
    let Ok(body) = body.collect().await else {
        return failed(400, "the request broke off");
    };
    let Some(method) = method(&parts.method) else {
        return failed(405, "no such method");
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    // HTTP/1.1 tells it in a header, HTTP/2 as a part of the address.
    let host = parts.headers.get(hyper::header::HOST).and_then(|host| host.to_str().ok());
    let asked_at = parts.uri.authority().map(|place| place.as_str()).or(host).map(str::to_owned);
    let Ok(asked_for) = Url::parse(&format!("{url}{path}")) else {
        return failed(400, "no such path");
    };
    let mut request = Request::new(asked_for, method);
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            let name = HeaderName::from(name.as_str().to_owned());
            request.headers_mut().insert(name, HeaderValue::from(value.to_owned()));
        }
    }
    request.set_body(body.to_bytes().to_vec());
    let given = match emulator.execute_request(&request).await {
        Ok(given) => given.try_into_raw_response().await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let given = match given {
        Ok(given) => given,
        Err(why) => return failed(500, &why),
    };
    let mut answer = hyper::Response::builder().status(u16::from(given.status()));
    for (name, value) in given.headers().iter() {
        // The length is hyper's to say.
        if !name.as_str().eq_ignore_ascii_case("content-length") {
            answer = answer.header(name.as_str(), value.as_str());
        }
    }
    let body: &[u8] = given.body().as_ref();
    let body = match (path, asked_at) {
        ("/", Some(place)) => Bytes::from(at(&place, url, &String::from_utf8_lossy(body))),
        _ => Bytes::copy_from_slice(body),
    };
    answer.body(Full::new(body)).unwrap_or_else(|error| failed(500, &error.to_string()))
}

/// What the account says of itself, to who has come to `place`: clients go where it says that its region is.
fn at(place: &str, url: &str, account: &str) -> String {
    account.replace(url.trim_end_matches('/'), &format!("http://{place}"))
}

fn method(method: &hyper::Method) -> Option<Method> {
    Some(match method.as_str() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        _ => return None,
    })
}

fn failed(status: u16, why: &str) -> Answer {
    let mut answer = Answer::new(Full::new(Bytes::from(why.to_owned())));
    *answer.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

#[cfg(test)]
mod tests {
    use super::at;

    #[test]
    fn who_comes_by_another_address_is_sent_there_again() {
        let account = r#"{"writableLocations":[{"name":"East US","databaseAccountEndpoint":"http://127.0.0.1:1/"}]}"#;
        let expected = account.replace("127.0.0.1:1", "127.0.0.1:2");
        for url in ["http://127.0.0.1:1", "http://127.0.0.1:1/"] {
            assert_eq!(at("127.0.0.1:2", url, account), expected);
        }
    }
}
