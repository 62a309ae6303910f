//! Redis Streams by hand: a consumer group; what a read has brought is sent in one pipeline, and once that is answered acknowledged and
//! deleted in another.

use std::convert::Infallible;

use ::redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, Pipeline, Value, aio::MultiplexedConnection, cmd, pipe,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hapax::{RedisStreams, transports::redis::MayLose};

use super::{
    desk::Desk,
    options::Options,
    place::{Named, Place, Queues},
    progress::Progress,
};
use crate::AnyError;

/// As the adapter declares it.
const GROUP: &str = "hapax";
const CONSUMER: &str = "by-hand";
/// How long the server holds a question, in milliseconds.
const HELD_MILLIS: u32 = 1000;
/// Reads that are under way at a time: one is sent or acknowledged while the next is handled.
const READS: usize = 2;

/// Of a message: its id, and names and values of its fields in turn.
type Entry = (String, Vec<Value>);
/// What has come of a stream.
type Read = (String, Vec<Entry>);

pub(super) struct Streams {
    client: Client,
    url: String,
    named: Named,
}

impl Streams {
    async fn connect(&self) -> Result<MultiplexedConnection, AnyError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        Ok(self.client.get_multiplexed_async_connection_with_config(&config).await?)
    }
}

impl Place for Streams {
    type Transport = RedisStreams;

    const DROPS_REPEATS: bool = false;

    async fn open(options: &Options) -> Result<Self, AnyError> {
        let url = options.server.as_str();
        // The driver's error may show the URL, and with it a password.
        let misread = |_| "--server: write redis://USER:PASSWORD@HOST:PORT/DATABASE";
        let info = url.into_connection_info().map_err(misread)?;
        // What waits for more to go with it would be late where there is no more.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(misread)?;
        Ok(Self { client, url: url.to_owned(), named: Named::new() })
    }

    fn named(&self) -> &Named {
        &self.named
    }

    async fn transport(&self) -> Result<RedisStreams, AnyError> {
        // Whatever the server loses, it loses for both sides.
        let options = RedisStreams::options().prefix(&self.named.prefix).may_lose(MayLose::Everything);
        Ok(options.open(&self.url).await?)
    }

    async fn by_hand(
        &self,
        queues: &Queues,
        in_flight: usize,
        desk: &mut Desk,
        progress: &Progress,
    ) -> Result<Infallible, AnyError> {
        // A read that waits holds up what comes behind it.
        let (mut reading, writing) = (self.connect().await?, self.connect().await?);
        let [first, last] = [&queues.first, &queues.last].map(|name| format!("{}:queue:{name}", self.named.prefix));
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(CONSUMER).arg("COUNT").arg(in_flight.div_ceil(READS));
        read.arg("BLOCK").arg(HELD_MILLIS).arg("STREAMS").arg(&first).arg(">");
        let mut under_way = FuturesUnordered::new();
        loop {
            let came = read.query_async::<Option<Vec<Read>>>(&mut reading);
            tokio::pin!(came);
            let came = loop {
                tokio::select! {
                    biased;
                    Some(ended) = under_way.next() => progress.settled(ended?),
                    came = &mut came, if under_way.len() < READS => break came?,
                }
            };
            let entries: Vec<Entry> = came.into_iter().flatten().flat_map(|(_, entries)| entries).collect();
            if entries.is_empty() {
                continue;
            }
            progress.received();
            let (mut sends, mut ids) = (pipe(), Vec::with_capacity(entries.len()));
            for (id, fields) in entries {
                handle(desk, &fields, &last, &mut sends)?;
                ids.push(id);
            }
            under_way.push(pass(writing.clone(), &first, sends, ids));
        }
    }

    async fn remove(self) -> Result<(), AnyError> {
        Ok(self.transport().await?.remove(&self.named.all()?).await?)
    }
}

/// Adds what is sent for a message to `sends`.
fn handle(desk: &mut Desk, fields: &[Value], last: &str, sends: &mut Pipeline) -> Result<(), AnyError> {
    let field = |name: &str| {
        let found = fields.chunks_exact(2).find_map(|field| match field {
            [Value::BulkString(called), Value::BulkString(value)] if called == name.as_bytes() => Some(&value[..]),
            _ => None,
        });
        found.ok_or_else(|| format!("a message has no {name}"))
    };
    let id = std::str::from_utf8(field("hapax-message-id")?)?;
    let Some(outgoing) = desk.handle(id, field("body")?)? else { return Ok(()) };
    let mut send = cmd("XADD");
    send.arg(last).arg("NOMKSTREAM").arg("*").arg("content-type").arg("application/json");
    send.arg("hapax-message-id").arg(outgoing.id).arg("hapax-type").arg("bench.changed");
    send.arg("hapax-causation-id").arg(id).arg("body").arg(outgoing.body);
    sends.add_command(send);
    Ok(())
}

/// Sends, and once that is answered acknowledges. How many.
async fn pass(
    mut connection: MultiplexedConnection,
    first: &str,
    sends: Pipeline,
    ids: Vec<String>,
) -> Result<u64, AnyError> {
    if !sends.is_empty() {
        let sent: Vec<Option<String>> = sends.query_async(&mut connection).await?;
        if sent.iter().any(Option::is_none) {
            return Err("there is no queue to send to".into());
        }
    }
    let mut over = pipe();
    over.cmd("XACK").arg(first).arg(GROUP).arg(&ids);
    over.cmd("XDEL").arg(first).arg(&ids);
    let (acknowledged, _): (u64, u64) = over.query_async(&mut connection).await?;
    Ok(acknowledged)
}
