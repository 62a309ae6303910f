//! The saga `payment`: one card, charged at most once, though calls to the card company may be cut off anywhere.
//!
//! hapax saves a handler's work once, but cannot call back a request to somebody else. What makes the charge happen once
//! is the idempotency key: the same at every attempt at the same message, so the card company knows a repeat for one.

use std::time::Duration;

use hapax::{Context, Correlation, Handle, HandlerError, Needs, Saga};
use serde::{Deserialize, Serialize};

use crate::{
    card_service::{Answer, CardService},
    messages::{CancelPayment, PaymentRefused, PaymentTaken, TakePayment},
};

/// How long the payment waits for the card company before it gives the message back, to ask again later under the same
/// key. Short: the cancellation waits behind it, and a worker may not live for long.
const CARD_PATIENCE: Duration = Duration::from_millis(250);

/// State of the payment for one order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Payment {
    pub(crate) status: Status,
    /// The order is off.
    pub(crate) cancelled: bool,
    /// Under which key the card company knows the charge.
    pub(crate) key: Option<String>,
    /// What was asked for.
    pub(crate) cents: i64,
    /// For the books: the id of each message, each time it was handled.
    pub(crate) handled: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    /// Nothing is known to have been charged.
    #[default]
    Open,
    /// Charged.
    Taken,
    /// The card company has refused.
    Refused,
    /// Charged, then given back.
    Refunded,
    /// Cancelled before it was known to be charged; the card company has voided whatever there was under the key.
    Voided,
}

impl Saga for Payment {
    const NAME: &'static str = "payment";

    fn needs() -> Needs {
        Needs::default().and::<CardService>()
    }
}

impl Handle<TakePayment> for Payment {
    fn correlate(take: &TakePayment) -> Correlation<'_> {
        Correlation::of("order", &take.order)
    }

    async fn handle(&mut self, take: TakePayment, cx: &mut Context) -> Result<(), HandlerError> {
        self.handled.push(cx.incoming().message_id.to_string());
        let key = cx.idempotency_key("charge");
        self.cents = take.cents;
        self.key = Some(key.clone());
        let cards = cx.get::<CardService>()?.clone();
        if self.cancelled {
            // An earlier attempt may have charged and not lived to save it. Same message, same key: so it can be voided.
            cards.void(&key, &take.order).await?;
            self.status = Status::Voided;
            return Ok(());
        }
        // Silence is an error, which hapax retries: it does not tell whether the card was charged.
        match tokio::time::timeout(CARD_PATIENCE, cards.charge(&key, &take)).await?? {
            Answer::Charged => {
                self.status = Status::Taken;
                cx.publish(PaymentTaken { order: take.order })
            }
            Answer::Refused => {
                self.status = Status::Refused;
                cx.publish(PaymentRefused { order: take.order })
            }
        }
    }
}

/// May overtake [`TakePayment`], so it may start the saga; what is left to do is done when that one arrives, as it will.
impl Handle<CancelPayment> for Payment {
    fn correlate(cancel: &CancelPayment) -> Correlation<'_> {
        Correlation::of("order", &cancel.order)
    }

    async fn handle(&mut self, _: CancelPayment, cx: &mut Context) -> Result<(), HandlerError> {
        self.handled.push(cx.incoming().message_id.to_string());
        self.cancelled = true;
        if let (Status::Taken, Some(key)) = (self.status, &self.key) {
            cx.get::<CardService>()?.clone().refund(key).await?;
            self.status = Status::Refunded;
        }
        Ok(())
    }
}
