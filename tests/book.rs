//! What the book has its readers write, as they would have written it into a copy of `examples/template`; and that every page shows
//! what is compiled.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

#[path = "book/card.rs"]
mod card;
#[path = "book/restored.rs"]
mod restored;
#[path = "book/shown.rs"]
mod shown;

use template::messages;

/// The reader's copy.
mod my_shop {
    use hapax::endpoint::EndpointBuilder;

    use crate::card::Card as Added;
    pub(super) use crate::{card, messages};

    pub(super) fn shop() -> EndpointBuilder {
        let shop = template::shop();
        shop.saga::<Added>(|card| card.starts::<messages::OrderPaid>())
    }
}

include!("book/card_test.rs");
