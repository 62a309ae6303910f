//! What the proxy does with a request, in a task of its own: what a client has given up is served all the same, as behind a slow network.

use std::{convert::Infallible, future::pending, sync::Arc};

use http_body_util::{BodyExt, Either, Full};
use hyper::{Request, Response, body::Bytes, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::{Asked, Fault, Shared, cut::Cut, rule::Rule};

pub(super) type Answer = Response<Either<Full<Bytes>, Cut>>;

/// Serves whoever connects.
pub(super) async fn all(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, Arc::clone(&shared)))),
            Err(_) => tokio::task::yield_now().await, // A client that is gone, or too many open files.
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true); // Slower without it, no worse.
    let cut = Arc::new(Notify::new());
    let service = {
        let cut = Arc::clone(&cut);
        service_fn(move |request| answer(request, Arc::clone(&shared), Arc::clone(&cut)))
    };
    let builder = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        () = cut.notified() => {}
        _ = builder.serve_connection(TokioIo::new(stream), service) => {} // How it ended its client knows.
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>, cut: Arc<Notify>) -> Result<Answer, Infallible> {
    let (parts, body) = request.into_parts();
    if let Ok(body) = body.collect().await {
        let asked = Asked::new(parts, body.to_bytes());
        // A task of its own: this future is dropped when the client goes.
        let carried_out = tokio::spawn(carry_out(asked, shared));
        if let Ok(Some(answer)) = carried_out.await {
            return Ok(answer);
        }
    }
    cut.notify_one();
    pending().await
}

/// None: the connection is to be closed.
async fn carry_out(mut asked: Asked, shared: Arc<Shared>) -> Option<Answer> {
    let _under_way = shared.begins(); // Not `_`, which would end it here.
    let rule = shared.rule(&asked);
    let fault = rule.as_deref().map(|rule| &rule.fault);
    match fault {
        Some(Fault::DropRequest) => return None,
        Some(Fault::Answer(canned)) => return canned.response().map(whole),
        Some(Fault::AskWith(headers)) => headers.iter().for_each(|(name, value)| asked.set(name, value)),
        Some(Fault::Delay(by)) => tokio::time::sleep(*by).await,
        Some(Fault::Hold(gate)) => gate.pass().await,
        _ => {}
    }
    let (mut parts, mut body) = shared.upstream.ask(asked).await?.into_parts();
    if let Some(rule) = &rule {
        Rule::was_served(rule);
    }
    match fault {
        Some(Fault::DropAnswer) => return None,
        Some(Fault::AnswerAfterServed(canned)) => return canned.response().map(whole),
        Some(Fault::CutAnswer) => {
            return (!body.is_empty()).then(|| Response::from_parts(parts, Either::Right(Cut::half_of(&body))));
        }
        Some(Fault::HoldAnswer(gate)) => gate.pass().await,
        Some(Fault::Rewrite(rewrite)) => {
            body = rewrite(&body).into();
            parts.headers.remove("x-amz-crc32");
            parts.headers.remove(hyper::header::CONTENT_LENGTH);
        }
        _ => {}
    }
    Some(Response::from_parts(parts, Either::Left(Full::new(body))))
}

fn whole(answer: Response<Full<Bytes>>) -> Answer {
    answer.map(Either::Left)
}
