//! `hapax-kafka PORT FOLDER`: what speaks Kafka's protocol for tests, at that port, with its log in that folder, until it is ended.

use std::{convert::Infallible, path::Path, process::ExitCode, thread, time::Duration};

use hapax_servers::KafkaServer;

const LOOK: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [port, folder] = &args[..] else {
        eprintln!("hapax-kafka PORT FOLDER");
        return ExitCode::FAILURE;
    };
    let Ok(port) = port.parse() else {
        eprintln!("{port} is no port");
        return ExitCode::FAILURE;
    };
    let Err(why) = serve(port, Path::new(folder));
    eprintln!("{why}");
    ExitCode::FAILURE
}

fn serve(port: u16, folder: &Path) -> Result<Infallible, String> {
    let mut server = KafkaServer::at(port, folder)?;
    server.run()?;
    while !server.has_ended() {
        thread::sleep(LOOK);
    }
    Err(format!("Tansu has ended: {}", server.log()))
}
