use hapax_core::{Context, Handler, HandlerError, Message};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Ping;

impl Message for Ping {
    const TYPE: &'static str = "ping";
}

struct Echo;

impl Handler<Ping> for Echo {
    const NAME: &'static str = "echo";

    async fn handle<'a>(&self, _: Ping, cx: &'a mut Context) -> Result<&'a mut Context, HandlerError> {
        Ok(cx)
    }
}

fn main() {}
