use std::sync::Mutex;

use hapax_core::Context;

static KEPT: Mutex<Option<&'static mut Context>> = Mutex::new(None);

fn handle(cx: &mut Context) {
    *KEPT.lock().unwrap() = Some(cx);
}

fn main() {
    handle(&mut Context::for_test());
}
