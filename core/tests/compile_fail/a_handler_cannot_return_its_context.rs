use hapax_core::{Context, Correlation, Handle, HandlerError, Message, Saga};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct AddItem {
    order: String,
}

impl Message for AddItem {
    const TYPE: &'static str = "shop.add-item";
}

#[derive(Default, Serialize, Deserialize)]
struct Order {
    #[serde(skip)]
    kept: Option<&'static mut Context>,
}

impl Saga for Order {
    const NAME: &'static str = "order";
}

impl Handle<AddItem> for Order {
    fn correlate(add: &AddItem) -> Correlation<'_> {
        (&add.order).into()
    }

    async fn handle(&mut self, _: AddItem, cx: &mut Context) -> Result<(), HandlerError> {
        self.kept = Some(cx);
        Ok(())
    }
}

fn main() {}
