//! Orders, and a book of them that notes down what happens to it.

use std::sync::{Arc, Mutex};

use hapax::{
    Context, Correlation, Handle, HandlerError, Message, Saga,
    metrics::{Ending, Event, Metrics},
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) order: String,
    pub(crate) count: u32,
}

impl Message for Place {
    const TYPE: &'static str = "middleware.place";
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cancel {
    pub(crate) order: String,
}

impl Message for Cancel {
    const TYPE: &'static str = "middleware.cancel";
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) order: String,
}

impl Message for Placed {
    const TYPE: &'static str = "middleware.placed";
}

/// What middleware sends.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) by: String,
}

impl Message for Stamp {
    const TYPE: &'static str = "middleware.stamp";
}

/// What has happened, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Metrics for Notes {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Dropped(_, rule) => self.add(format!("dropped: {rule}")),
            Event::Ended(_, _, Ending::Dropped) => self.add("ended"),
            _ => {}
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Book {
    pub(crate) placed: u32,
}

impl Saga for Book {
    const NAME: &'static str = "book";
}

impl Handle<Place> for Book {
    fn correlate(place: &Place) -> Correlation<'_> {
        (&place.order).into()
    }

    async fn handle(&mut self, place: Place, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Notes>()?.add("placed");
        self.placed += place.count;
        cx.publish(Placed { order: place.order })?;
        if place.count == 13 { Err(HandlerError::transient("not thirteen")) } else { Ok(()) }
    }
}

impl Handle<Cancel> for Book {
    fn correlate(cancel: &Cancel) -> Correlation<'_> {
        (&cancel.order).into()
    }

    async fn handle(&mut self, _: Cancel, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Notes>()?.add("cancelled");
        cx.complete();
        Ok(())
    }
}

pub(crate) fn place(order: &str, count: u32) -> Place {
    Place { order: order.into(), count }
}
