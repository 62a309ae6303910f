//! How receiving fails and goes on again, as an operator hears of it: once, then once a minute, and when it is over.

use tokio::time::Instant;

use super::warned::Warned;
use crate::{ids::EndpointName, ports::TransportError};

/// Nothing was received since. One that lasts a night says little more than one that lasts a minute.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Lasting>);

#[derive(Debug)]
struct Lasting {
    since: Instant,
    tries: u64,
    warned: Warned,
}

impl Outage {
    /// It has failed once more, and is tried again.
    pub(super) fn failed(&mut self, endpoint: &EndpointName, error: &TransportError) {
        let now = Instant::now();
        let lasting = self.0.get_or_insert_with(|| Lasting { since: now, tries: 0, warned: Warned::default() });
        lasting.tries += 1;
        if let Some(untold) = lasting.warned.came(now) {
            tracing::warn!(
                %endpoint, %error, untold,
                "receiving failed: it is tried again every half second and told of once a minute, and `untold` counts the tries since"
            );
        }
    }

    /// It went well.
    pub(super) fn is_over(&mut self, endpoint: &EndpointName) {
        if let Some(Lasting { since, tries, .. }) = self.0.take() {
            tracing::info!(%endpoint, tries, after = ?since.elapsed(), "receives again");
        }
    }
}
