use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::leash::{Leashed, Servant, find, free_port};

/// Who runs it when root starts it, by preference.
const SERVANTS: [&str; 2] = ["rabbitmq", "nobody"];
/// Debian's program in the path is a script for root, around this one.
const DIRECT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// A RabbitMQ server that may be killed and run again. It ends with this; its data stays in its folder.
#[derive(Debug)]
pub struct RabbitMqServer {
    running: Option<Leashed>,
    folder: PathBuf,
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
        let port = || free_port().map_err(|e| format!("there is no free port: {e}"));
        Ok(Self { running: None, folder: folder.to_owned(), ports: [port()?, port()?], settings: String::new() })
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
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        let settings = format!("management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n");
        for (name, text) in [("rabbitmq.conf", settings.as_str()), ("enabled_plugins", "[rabbitmq_management].\n")] {
            let file = self.folder.join(name);
            fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(port)
    }

    /// Has `plugin`, one that comes with it, from its next start on.
    ///
    /// # Errors
    /// Its settings cannot be written.
    pub fn enable(&self, plugin: &str) -> Result<(), String> {
        let file = self.folder.join("enabled_plugins");
        fs::write(&file, format!("[{plugin}].\n")).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Also answers to TLS from its next start on, with `certificate.pem` and `key.pem` of its folder, and believes clients by
    /// `authority.pem` there. Whether they must show a certificate is `asks`. The port.
    ///
    /// # Errors
    /// Its settings cannot be written, or there is no free port.
    pub fn answer_to_tls(&mut self, asks: bool) -> Result<u16, String> {
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        let file = |name: &str| self.folder.join(name).display().to_string();
        let settings = [
            format!("listeners.ssl.default = 127.0.0.1:{port}"),
            format!("ssl_options.cacertfile = {}", file("authority.pem")),
            format!("ssl_options.certfile = {}", file("certificate.pem")),
            format!("ssl_options.keyfile = {}", file("key.pem")),
            "ssl_options.verify = verify_peer".to_owned(),
            format!("ssl_options.fail_if_no_peer_cert = {asks}"),
        ];
        let config = self.folder.join("rabbitmq.conf");
        fs::write(&config, settings.join("\n") + "\n").map_err(|e| format!("{}: {e}", config.display()))?;
        Ok(port)
    }

    /// Runs it, unless it runs. To be called again until it answers.
    ///
    /// # Errors
    /// It cannot be run: one line with the remedy.
    pub fn run(&mut self) -> Result<(), String> {
        if self.running.as_mut().is_some_and(|running| !running.has_ended()) {
            return Ok(());
        }
        let direct = Path::new(DIRECT);
        let program = if direct.is_file() { Some(direct.to_owned()) } else { find("rabbitmq-server") };
        let program = program
            .ok_or("there is no program `rabbitmq-server`: install RabbitMQ (`apt-get install rabbitmq-server`)")?;
        let file = |name: &str| self.folder.join(name);
        let [port, nodes] = self.ports;
        let mut server = Command::new(program);
        server.env("HOME", &self.folder); // Its secret for other nodes goes there.
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
        let servant = Servant::of(&self.folder, &SERVANTS)?;
        let running = Leashed::run(&mut server, &servant, &self.folder);
        self.running = Some(running.map_err(|e| format!("rabbitmq-server cannot be run: {e}"))?);
        Ok(())
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}
