//! The shop as a program: `cargo run -- run` handles what comes. Without arguments it says what else it takes.

use std::{error::Error, process::ExitCode};

use hapax::{endpoint::office::Filter, operator::with_causes};
use my_shop::{
    SHOP,
    messages::{Pay, PlaceOrder},
    place::keep,
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

#[tokio::main]
async fn main() -> ExitCode {
    // RabbitMQ's driver logs bodies, and takes it for an error when a connection ends with its program.
    let heard = Targets::new().with_default(LevelFilter::WARN).with_target("lapin", LevelFilter::OFF);
    // Each try of what fails and is tried again: at WARN it would be heard of when it is given up, seconds later.
    let heard = heard.with_target("hapax_core::deliver", LevelFilter::INFO);
    tracing_subscriber::registry().with(tracing_subscriber::fmt::layer()).with(heard).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match asked(&args).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn asked(args: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    if args.is_empty() {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let (shop, sender) = keep(shop()).await?;
    match *args {
        ["run"] => {
            println!("the shop is open; Ctrl-C closes it");
            shop.run_until(async { drop(tokio::signal::ctrl_c().await) }).await?;
        }
        // Ids that the sender chooses: whoever asks twice has ordered once.
        ["order", order, customer, cups] => {
            let place = PlaceOrder { order: order.into(), customer: customer.into(), cups: cups.parse()? };
            sender.send_as(format!("order-{order}").parse()?, SHOP, &place).await?;
        }
        ["pay", order] => {
            sender.send_as(format!("pay-{order}").parse()?, SHOP, &Pay { order: order.into() }).await?;
        }
        ["letters"] => {
            let office = shop.start().await?.dead_letter_office("me");
            for letter in office.list(&Filter::default(), 0, 50).await? {
                let (id, kind) = (&letter.envelope.message_id, &letter.envelope.message_type);
                println!("{id} {kind}, given {} times: {}", letter.attempts, letter.reason);
                println!("  {}", String::from_utf8_lossy(&letter.envelope.body));
            }
        }
        ["retry", id] => {
            let office = shop.start().await?.dead_letter_office("me");
            let letters = office.show(&id.parse()?).await?;
            if letters.is_empty() {
                return Err("there is no such letter".into());
            }
            let retried = office.retry(&letters).await?;
            println!("{} sent, {} left {:?}", retried.done, retried.left, retried.reasons);
        }
        ["discard", id] => {
            let office = shop.start().await?.dead_letter_office("me");
            println!("{} discarded", office.discard(&office.show(&id.parse()?).await?).await?);
        }
        _ => {
            eprint!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
