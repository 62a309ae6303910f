//! A broker that stays away: who receives is told so, again and again.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use hapax::ports::Receiver;

/// An endpoint counts as ready again a minute after it was told last that its broker is away. So it has to be told sooner, as long as that is so.
const MINUTE: Duration = Duration::from_secs(60);
/// What a busy machine takes beyond what was said.
const MARGIN: Duration = Duration::from_secs(10);
const TIMES: usize = 2;

/// While its broker is away. `within`: how long receiving may take to be told, as its options say.
pub(crate) async fn is_told_again_and_again(receiver: &dyn Receiver, within: Duration) {
    let longest = within + MARGIN;
    assert!(longest < MINUTE);
    for time in 1..=TIMES {
        let told = tokio::time::timeout(longest, receiver.receive(1)).await;
        let told = told.unwrap_or_else(|_| panic!("not a word for {longest:?}, the {time}. time"));
        let error = told.expect_err("a broker that is away gives nothing");
        assert!(error.is_transient(), "the {time}. time: {error:?}");
    }
}
