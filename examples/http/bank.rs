//! The bank: an endpoint with a saga for each account. It knows nothing of HTTP and nothing of repetitions.

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sqlite, SqliteQueue, endpoint::EndpointBuilder,
};
use serde::{Deserialize, Serialize};

/// Its name.
pub(crate) const BANK: &str = "bank";

/// Pays into an account, or out of it where `cents` are negative.
#[derive(Serialize, Deserialize)]
pub(crate) struct Book {
    pub(crate) account: String,
    pub(crate) cents: i64,
}

impl Message for Book {
    const TYPE: &'static str = "bank.book";
}

/// The answer. That the bank does not want to is an answer too, and stays so: whoever asks again under the same key is told the same, though
/// the account may have more by then.
#[derive(Serialize, Deserialize)]
pub(crate) enum Booked {
    Done {
        /// Which booking of its account it is, the first being 1.
        number: u64,
        balance_cents: i64,
    },
    OutOfCredit,
}

impl Message for Booked {
    const TYPE: &'static str = "bank.booked";
}

/// One account.
#[derive(Default, Serialize, Deserialize)]
struct Account {
    bookings: u64,
    balance_cents: i64,
}

impl Saga for Account {
    const NAME: &'static str = "account";
}

impl Handle<Book> for Account {
    fn correlate(book: &Book) -> Correlation<'_> {
        Correlation::of("account", &book.account)
    }

    async fn handle(&mut self, book: Book, cx: &mut Context) -> Result<(), HandlerError> {
        let Some(balance) = self.balance_cents.checked_add(book.cents).filter(|balance| *balance >= 0) else {
            return cx.reply(Booked::OutOfCredit);
        };
        self.balance_cents = balance;
        self.bookings += 1;
        cx.reply(Booked::Done { number: self.bookings, balance_cents: balance })
    }
}

pub(crate) fn endpoint(store: Sqlite, queue: SqliteQueue) -> EndpointBuilder {
    Endpoint::builder(BANK).store(store).transport(queue).saga::<Account>(|account| account.starts::<Book>())
}
