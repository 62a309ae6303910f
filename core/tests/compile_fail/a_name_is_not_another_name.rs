use hapax_core::ids::{EndpointName, SagaName, Scope};

fn main() {
    let endpoint = EndpointName::parse("shop").unwrap();
    let saga = SagaName::parse("order").unwrap();
    let _ = Scope { endpoint: saga, saga: endpoint };
}
