//! A line to a server of AMQP, of either version, on which a test keeps answers back, lets nothing move, and which it cuts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::broadcast,
};

const LOOK: Duration = Duration::from_millis(5);

/// Passes on what comes, until told otherwise.
#[derive(Clone)]
pub(crate) struct Proxy {
    url: String,
    /// What the server says is taken and not passed on.
    is_deaf: Arc<AtomicBool>,
    /// Nothing is taken from either side, as a process that is stopped does.
    is_still: Arc<AtomicBool>,
    cuts: broadcast::Sender<()>,
}

impl Proxy {
    /// To the server at `amqp://USER:PASSWORD@HOST:PORT`.
    pub(crate) async fn to(server: &str) -> Self {
        let (account, place) = server.split_once("//").unwrap().1.rsplit_once('@').unwrap();
        let place = place.split_once('/').map_or(place, |(place, _)| place).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("amqp://{account}@127.0.0.1:{}", listener.local_addr().unwrap().port());
        let proxy = Self { url, is_deaf: Arc::default(), is_still: Arc::default(), cuts: broadcast::channel(4).0 };
        let shared = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(shared.clone().carries(client, place.clone()));
            }
        });
        proxy
    }

    /// Until one side ends it, or it is cut. What stands still hears of that only when it goes on.
    async fn carries(self, client: TcpStream, place: String) {
        let mut cut = self.cuts.subscribe();
        let Ok(server) = TcpStream::connect(place).await else { return };
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        let never = AtomicBool::new(false);
        tokio::select! {
            // First: what comes behind something that was not passed on is not to be passed on just before the line is cut.
            biased;
            _ = cut.recv() => {}
            () = pass(&mut from_client, &mut to_server, &never, &self.is_still) => {}
            () = pass(&mut from_server, &mut to_client, &self.is_deaf, &self.is_still) => {}
        }
        drop((from_server, to_server));
        while self.is_still.load(Ordering::SeqCst) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Of the line.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// From now on nothing comes back.
    pub(crate) fn deafen(&self) {
        self.is_deaf.store(true, Ordering::SeqCst);
    }

    pub(crate) fn stand_still(&self, still: bool) {
        self.is_still.store(still, Ordering::SeqCst);
    }

    /// All connections end; the next ones are whole.
    pub(crate) fn cut(&self) {
        self.is_deaf.store(false, Ordering::SeqCst);
        drop(self.cuts.send(()));
    }
}

async fn pass(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, is_deaf: &AtomicBool, is_still: &AtomicBool) {
    let mut part = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        while is_still.load(Ordering::SeqCst) {
            tokio::time::sleep(LOOK).await;
        }
        if !is_deaf.load(Ordering::SeqCst) && to.write_all(&part[..read]).await.is_err() {
            return;
        }
    }
}
