//! What nobody is given: the end of a transaction, and what was aborted. The client library goes past it and says nothing, so that what is committed
//! would stay in front of it until the next message comes, and no mark that lies behind it would pass.

use rdkafka::{Offset, consumer::Consumer};

use super::{asker::Place, dealt::Client, receiver::End};

/// Moves on to where the client library is. It counts what it has handed over, and what it has not to hand over, and no more: whatever came before
/// is in its lane by now. Of a partition that was dealt anew it knows nothing until something has come.
pub(super) fn pass_over(end: &End, consumer: &Client) {
    let Ok(positions) = consumer.position() else { return }; // It is asked again soon.
    let mut state = end.state();
    for element in positions.elements() {
        let Offset::Offset(position) = element.offset() else { continue };
        let place: Place = (element.topic().into(), element.partition());
        if let Some(lane) = state.lanes.get_mut(&place) {
            lane.passed(position);
        }
    }
}
