//! What several fuzz targets share.

pub mod grammar;

use std::panic;

/// Lets a target catch panics, as the decoders of images and sounds do. libFuzzer's hook would end
/// the process. A panic that reaches libFuzzer still ends it.
pub fn permit_caught_panics() {
    panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}
