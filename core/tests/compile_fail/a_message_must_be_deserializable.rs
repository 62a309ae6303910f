use hapax_core::Message;
use serde::Serialize;

#[derive(Serialize)]
struct AddItem {
    order: String,
}

impl Message for AddItem {
    const TYPE: &'static str = "shop.add-item";
}

fn main() {}
