//! Any bytes as a sound file: bounded time and memory (libFuzzer's limits), no panic outside of the
//! decoders, and samples that are finite and within the limit on length.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_vision::{SoundLimits, decode_sound};

fuzz_target!(init: rocmforge_fuzz::permit_caught_panics(), |input: &[u8]| {
    let limits = SoundLimits::default().with_file_bytes(1 << 20).with_seconds(2);
    let Ok(sound) = decode_sound(input, &limits) else { return };
    assert!(sound.samples().iter().all(|sample| sample.is_finite()));
    // The last sample may be rounded up.
    assert!(sound.seconds() <= 2.1, "{}", sound.seconds());
});
