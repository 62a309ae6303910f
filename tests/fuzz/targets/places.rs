#![no_main]

#[allow(dead_code)] // Those of the other targets.
#[path = "../decoders.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decoders::places(data));
