//! The shop as a program: `cargo run -- run` handles what comes. Without arguments it says what else it takes.

use std::{error::Error, process::ExitCode};

use hapax::{MessageId, endpoint::office::Filter, operator::with_causes};
use my_shop::{
    SHOP,
    messages::{Pay, PlaceOrder},
    place::Place,
    shop,
};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

const USAGE: &str = "\
run                          handles messages until Ctrl-C
order ORDER CUSTOMER CUPS    places an order
pay ORDER                    pays for it
letters                      shows what was set aside, and why
retry ID                     sends a message that was set aside again
discard ID                   gives it up
";

/// How it ends where what was asked makes no sense.
const MISUSE: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    // RabbitMQ's driver logs bodies, and takes it for an error when a connection ends with its program.
    let heard = Targets::new().with_default(LevelFilter::WARN).with_target("lapin", LevelFilter::OFF);
    // Each try of what fails and is tried again: at WARN it would be heard of when it is given up, seconds later.
    let heard = heard.with_target("hapax_core::deliver", LevelFilter::INFO);
    tracing_subscriber::registry().with(tracing_subscriber::fmt::layer()).with(heard).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if args.is_empty() {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    // All of it is understood before anything is opened, or made.
    let understood = Asked::parse(&args).and_then(|asked| Ok((asked, Place::of_environment()?)));
    let (asked, place) = match understood {
        Ok(understood) => understood,
        Err(why) => {
            eprintln!("{}", with_causes(&*why));
            return ExitCode::from(MISUSE);
        }
    };
    match asked.done(place).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

/// What the program is to do.
enum Asked {
    Run,
    Order(MessageId, PlaceOrder),
    Pay(MessageId, Pay),
    Letters,
    Retry(MessageId),
    Discard(MessageId),
}

impl Asked {
    fn parse(args: &[&str]) -> Result<Self, Box<dyn Error>> {
        Ok(match *args {
            ["run"] => Self::Run,
            // Ids that the sender chooses: whoever asks twice has ordered once.
            ["order", order, customer, cups] => {
                let cups = cups.parse::<u32>().map_err(|_| format!("`{cups}` is no number of cups"))?;
                let place = PlaceOrder { order: order.into(), customer: customer.into(), cups };
                Self::Order(format!("order-{order}").parse()?, place)
            }
            ["pay", order] => Self::Pay(format!("pay-{order}").parse()?, Pay { order: order.into() }),
            ["letters"] => Self::Letters,
            ["retry", id] => Self::Retry(id.parse()?),
            ["discard", id] => Self::Discard(id.parse()?),
            _ => return Err(USAGE.trim_end().into()),
        })
    }

    async fn done(self, place: Place) -> Result<(), Box<dyn Error>> {
        let (shop, sender) = place.keep(shop()).await?;
        match self {
            Self::Run => {
                println!("the shop is open; Ctrl-C closes it");
                shop.run_until(async { drop(tokio::signal::ctrl_c().await) }).await?;
            }
            Self::Order(id, place) => {
                sender.send_as(id, SHOP, &place).await?;
            }
            Self::Pay(id, pay) => {
                sender.send_as(id, SHOP, &pay).await?;
            }
            Self::Letters => {
                let office = shop.start().await?.dead_letter_office("me");
                for letter in office.list(&Filter::default(), 0, 50).await? {
                    let (id, kind) = (&letter.envelope.message_id, &letter.envelope.message_type);
                    println!("{id} {kind}, given {} times: {}", letter.attempts, letter.reason);
                    println!("  {}", String::from_utf8_lossy(&letter.envelope.body));
                }
            }
            Self::Retry(id) => {
                let office = shop.start().await?.dead_letter_office("me");
                let letters = office.show(&id).await?;
                if letters.is_empty() {
                    return Err(no_letter(&id));
                }
                let retried = office.retry(&letters).await?;
                println!("{} sent, {} left {:?}", retried.done, retried.left, retried.reasons);
            }
            Self::Discard(id) => {
                let office = shop.start().await?.dead_letter_office("me");
                let letters = office.show(&id).await?;
                if letters.is_empty() {
                    return Err(no_letter(&id));
                }
                println!("{} discarded", office.discard(&letters).await?);
            }
        }
        Ok(())
    }
}

fn no_letter(id: &MessageId) -> Box<dyn Error> {
    format!("there is no letter about message {id}: `letters` shows those there are").into()
}
