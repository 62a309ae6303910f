use hapax_core::Context;

fn keep(cx: &Context) -> Context {
    cx.clone()
}

fn main() {
    drop(keep(&Context::for_test()));
}
