//! A RabbitMQ of one's own, beside any others: it registers nowhere and starts no daemon that would outlive it.

use std::{path::Path, process::Command};

use crate::{
    leash::{installed, own_port},
    process::Process,
};

/// Who runs it when root starts it, by preference.
const SERVANTS: [&str; 2] = ["rabbitmq", "nobody"];
/// Debian's program in the path is a script for root, around this one.
const DIRECT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// A RabbitMQ server that may be killed and run again. It ends with this; its data stays in its folder.
#[derive(Debug)]
pub struct RabbitMqServer {
    process: Process,
    /// For clients, and for other nodes, of which there are none.
    ports: [u16; 2],
    /// Of its application `rabbit`, as arguments of its machine.
    settings: String,
}

impl RabbitMqServer {
    /// A new server with nothing in it, in `folder`, which is the server's user's from now on. It does not run yet.
    ///
    /// # Errors
    /// There is no free port.
    pub fn create(folder: &Path) -> Result<Self, String> {
        Ok(Self { process: Process::new(folder), ports: [own_port()?, own_port()?], settings: String::new() })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.ports[0])
    }

    /// Sets the number `name` of its application `rabbit` from its next start on: such as `max_message_size`, in bytes, `consumer_timeout` and
    /// `channel_tick_interval`, in milliseconds.
    pub fn set(&mut self, name: &str, number: u64) {
        self.settings.push_str(&format!(" -rabbit {name} {number}"));
    }

    /// Also answers to `rabbitmqadmin` from its next start on. The port.
    ///
    /// # Errors
    /// Its settings cannot be written, or there is no free port.
    pub fn answer_to_tools(&mut self) -> Result<u16, String> {
        let port = own_port()?;
        let settings = format!("management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n");
        self.process.write("rabbitmq.conf", &settings)?;
        self.enable("rabbitmq_management")?;
        Ok(port)
    }

    /// Has `plugin`, one that comes with it, from its next start on.
    ///
    /// # Errors
    /// Its settings cannot be written.
    pub fn enable(&self, plugin: &str) -> Result<(), String> {
        self.process.write("enabled_plugins", &format!("[{plugin}].\n"))
    }

    /// Also answers to TLS from its next start on, with `certificate.pem` and `key.pem` of its folder, and believes clients by
    /// `authority.pem` there. Whether they must show a certificate is `asks`. The port.
    ///
    /// # Errors
    /// Its settings cannot be written, or there is no free port.
    pub fn answer_to_tls(&mut self, asks: bool) -> Result<u16, String> {
        let port = own_port()?;
        let file = |name: &str| self.process.file(name).display().to_string();
        let settings = [
            format!("listeners.ssl.default = 127.0.0.1:{port}"),
            format!("ssl_options.cacertfile = {}", file("authority.pem")),
            format!("ssl_options.certfile = {}", file("certificate.pem")),
            format!("ssl_options.keyfile = {}", file("key.pem")),
            "ssl_options.verify = verify_peer".to_owned(),
            format!("ssl_options.fail_if_no_peer_cert = {asks}"),
        ];
        self.process.write("rabbitmq.conf", &(settings.join("\n") + "\n"))?;
        Ok(port)
    }

    /// Runs it, unless it runs. To be called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line with the remedy.
    pub fn run(&mut self) -> Result<(), String> {
        if self.process.is_up() {
            return Ok(());
        }
        let direct = Path::new(DIRECT);
        let program = match direct.is_file() {
            true => direct.to_owned(),
            false => installed("rabbitmq-server", "RabbitMQ", "rabbitmq-server")?,
        };
        let file = |name: &str| self.process.file(name);
        let [port, nodes] = self.ports;
        let mut server = Command::new(program);
        server.env("HOME", self.process.folder()); // Its secret for other nodes goes there.
        server.env("RABBITMQ_NODENAME", format!("hapax-{port}@localhost"));
        server.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1").env("RABBITMQ_NODE_PORT", port.to_string());
        // It registers nowhere, so that nothing outlives it.
        let arguments = format!("-start_epmd false -erl_epmd_port {nodes}{}", self.settings);
        server.env("RABBITMQ_DIST_PORT", nodes.to_string());
        server.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", arguments);
        server.env("RABBITMQ_MNESIA_BASE", file("mnesia")).env("RABBITMQ_LOG_BASE", file("logs"));
        server.env("RABBITMQ_PID_FILE", file("pid")).env("RABBITMQ_CONFIG_FILE", file("rabbitmq"));
        server.env("RABBITMQ_ENABLED_PLUGINS_FILE", file("enabled_plugins"));
        // Its script becomes the server, instead of being its parent.
        server.env("RUNNING_UNDER_SYSTEMD", "1");
        self.process.run(&mut server, &SERVANTS, "rabbitmq-server")
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
