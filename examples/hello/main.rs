use hapax::{Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Message, Saga, Sqlite};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct AddItem { order: String, item: String }
impl Message for AddItem { const TYPE: &'static str = "shop.add-item"; }

#[derive(Default, Serialize, Deserialize)]
struct Order { items: Vec<String> }
impl Saga for Order { const NAME: &'static str = "order"; }

impl Handle<AddItem> for Order {
    fn correlate(add: &AddItem) -> Correlation<'_> { (&add.order).into() }
    async fn handle(&mut self, add: AddItem, cx: &mut Context) -> Result<(), HandlerError> {
        self.items.push(add.item);
        println!("order {} now has {:?}", cx.saga_key(), self.items);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = InProcess::new("shop");
    let tea = AddItem { order: "42".into(), item: "tea".into() };
    queue.sender().send_as("tea-for-42".parse()?, "shop", &tea).await?;
    queue.sender().send_as("tea-for-42".parse()?, "shop", &tea).await?; // a duplicate: dropped
    Endpoint::builder("shop").store(Sqlite::open("shop.db").await?).transport(queue.clone())
        .saga::<Order>(|order| order.starts::<AddItem>())
        .run_until(queue.idle()).await?;
    println!("sent twice, handled once; run it again: shop.db remembers");
    Ok(())
}
