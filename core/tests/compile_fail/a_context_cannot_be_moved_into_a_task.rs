use hapax_core::Context;

async fn handle(cx: &mut Context) {
    tokio::spawn(async move { cx.complete() });
}

fn main() {
    drop(handle(&mut Context::for_test()));
}
