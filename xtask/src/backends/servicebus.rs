//! AMQP 1.0 for tests, as far as Azure Service Bus speaks it: RabbitMQ, with the plugin that comes with it.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::machine::Machine;
use super::rabbitmq::{RabbitMq, place};
use super::server::{Origin, Programs, Server};

/// One that needs longer to answer does not do.
const PATIENCE: Duration = Duration::from_secs(5);
/// How a client of AMQP 1.0 begins that has a password; a server that speaks it says the same.
const HELLO: [u8; 8] = *b"AMQP\x03\x01\x00\x00";
/// Makes the folder, in which the server finds which plugins it has.
const PREPARE: &str = r#"mkdir "$0" && echo '[rabbitmq_amqp1_0].' >"$0/enabled_plugins""#;

/// RabbitMQ, by its own program.
#[derive(Debug)]
pub(super) struct ServiceBus;

impl Server for ServiceBus {
    fn name(&self) -> &'static str {
        "RabbitMQ with AMQP 1.0"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_SERVICEBUS"
    }

    fn origin(&self) -> Origin {
        RabbitMq.origin()
    }

    fn servants(&self) -> &'static [&'static str] {
        RabbitMq.servants()
    }

    fn signal(&self) -> &'static str {
        RabbitMq.signal()
    }

    fn usual(&self, machine: &Machine) -> Vec<String> {
        RabbitMq.usual(machine)
    }

    fn ask(&self, machine: &Machine, url: &str) -> Result<String, String> {
        let place = place(url).ok_or("it is not amqp://USER:PASSWORD@HOST:PORT")?;
        speaks(&place).map_err(|error| format!("{place}: {error}"))?;
        RabbitMq.ask(machine, url)
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        let prepare = machine.program(&["sh"]).ok_or("there is no sh")?;
        Ok(Programs { prepare, ..RabbitMq.programs(machine)? })
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        let mut sh = Command::new(&programs.prepare);
        sh.args(["-c", PREPARE]).arg(data);
        sh
    }

    fn serve(&self, programs: &Programs, data: &Path, port: u16) -> Command {
        RabbitMq.serve(programs, data, port)
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("amqp://guest:guest@127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

/// Whether what listens there speaks AMQP 1.0 beside what else it may.
fn speaks(place: &str) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let address = place.to_socket_addrs().map_err(text)?.next().ok_or("there is no such host")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    stream.write_all(&HELLO).map_err(text)?;
    let mut said = [0; HELLO.len()];
    stream.read_exact(&mut said).map_err(text)?;
    match said == HELLO {
        true => Ok(()),
        false => {
            Err("it does not speak AMQP 1.0: enable its plugin (`rabbitmq-plugins enable rabbitmq_amqp1_0`)".into())
        }
    }
}
