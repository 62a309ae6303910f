//! A saga that holds whatever happens to its messages: `cargo run --example check-good --features check`, and with
//! `-- thorough` at the end when more goes wrong at a time.

use hapax::{
    Context, Correlation, Handle, HandlerError, Message, Registry, Saga,
    check::{Check, World},
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Reserve {
    article: String,
    count: u32,
}

impl Message for Reserve {
    const TYPE: &'static str = "shop.reserve";
}

#[derive(Serialize, Deserialize)]
struct Reserved {
    article: String,
    count: u32,
}

impl Message for Reserved {
    const TYPE: &'static str = "shop.reserved";
}

#[derive(Serialize, Deserialize)]
struct SoldOut {
    article: String,
}

impl Message for SoldOut {
    const TYPE: &'static str = "shop.sold-out";
}

/// Five of an article.
#[derive(Default, Serialize, Deserialize)]
struct Stock {
    reserved: u32,
}

const FIVE: u32 = 5;

impl Saga for Stock {
    const NAME: &'static str = "stock";
}

impl Handle<Reserve> for Stock {
    fn correlate(reserve: &Reserve) -> Correlation<'_> {
        (&reserve.article).into()
    }

    async fn handle(&mut self, reserve: Reserve, cx: &mut Context) -> Result<(), HandlerError> {
        let Reserve { article, count } = reserve;
        if self.reserved + count > FIVE {
            return cx.publish(SoldOut { article });
        }
        self.reserved += count;
        cx.publish(Reserved { article, count })
    }
}

fn main() {
    let reserved = |world: &World<'_>| world.state::<Stock>("mug").unwrap_or_default().reserved;
    let sent = |world: &World<'_>| world.sent::<Reserved>().iter().map(|reserved| reserved.count).sum::<u32>();
    let check = Check::saga(Registry::<Stock>::new().starts::<Reserve>())
        .message(Reserve { article: "mug".into(), count: 4 })
        .message(Reserve { article: "mug".into(), count: 3 })
        .always("never oversold", move |world| reserved(world) <= FIVE)
        .always("nothing is promised that is not reserved", move |world| sent(world) <= reserved(world))
        .at_rest("each has its answer", |world| world.sent::<Reserved>().len() + world.sent::<SoldOut>().len() == 2);
    if std::env::args().any(|arg| arg == "thorough") { check.thorough().run() } else { check.run() }
}
