//! A proxy before a broker of the test's own, whose clients are told to come to the proxy.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax_tests::KafkaServer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::broadcast,
};

/// Passes on what comes, until told otherwise.
#[derive(Debug)]
pub(crate) struct Proxied {
    _server: KafkaServer,
    port: u16,
    is_away: Arc<AtomicBool>,
    cuts: broadcast::Sender<()>,
}

impl Proxied {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = KafkaServer::behind(port);
        let to = server.port();
        let (is_away, cuts) = (Arc::new(AtomicBool::new(false)), broadcast::channel(4).0);
        let proxied = Self { _server: server, port, is_away: is_away.clone(), cuts: cuts.clone() };
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut cut = cuts.subscribe();
                if is_away.load(Ordering::SeqCst) {
                    continue; // It ends at once.
                }
                tokio::spawn(async move {
                    let mut tries = 0;
                    let mut server = loop {
                        match TcpStream::connect(("127.0.0.1", to)).await {
                            Ok(server) => break server,
                            Err(_) if tries < 100 => tokio::time::sleep(Duration::from_millis(50)).await,
                            Err(_) => return,
                        }
                        tries += 1;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = cut.recv() => {}
                    }
                });
            }
        });
        proxied
    }

    pub(crate) fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.port)
    }

    /// All connections end, and no more are taken.
    pub(crate) fn goes(&self) {
        self.is_away.store(true, Ordering::SeqCst);
        drop(self.cuts.send(())); // There may be none.
    }

    pub(crate) fn comes_back(&self) {
        self.is_away.store(false, Ordering::SeqCst);
    }
}
