//! Any bytes as an image file: bounded time and memory (libFuzzer's limits), no panic outside of
//! the decoders, and a picture as large as its header says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_vision::{DecodeLimits, decode, dimensions};

fuzz_target!(init: rocmforge_fuzz::permit_caught_panics(), |input: &[u8]| {
    let limits = DecodeLimits::default().with_file_bytes(1 << 20).with_side(2048).with_pixels(1 << 18).with_memory_bytes(16 << 20);
    let size = dimensions(input, &limits);
    let Ok(picture) = decode(input, &limits) else { return };
    let [width, height] = picture.size();
    assert_eq!(size.ok(), Some([width, height]));
    assert_eq!(picture.pixels().len(), width * height * 3);
});
