//! Queues on Kafka: the promises of every transport, and what is Kafka's own.

mod rig;

use rig::*;

mod conformance {
    use super::Queues;

    mod unordered {
        hapax_core::transport_suite!(super::Queues { ordered: false });
    }

    mod in_order {
        hapax_core::transport_suite!(super::Queues { ordered: true });
    }

    mod dead_letters {
        hapax_core::dead_letters_suite!(super::Queues { ordered: false });
    }
}
