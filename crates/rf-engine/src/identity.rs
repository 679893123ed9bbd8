//! The identity of a computation, by which saved sequences are recognised.

use rf_graph::Program;
use rf_model::Adapter;
use twox_hash::XxHash3_128;

/// Bytes of each weight that are part of the hash.
const WEIGHT_BYTES: usize = 4096;

/// A hash of the computation: backend, ops, the beginning of every weight, the factors of adapters,
/// and the layout of the cache.
pub(crate) fn identity(backend: &'static str, program: &Program, adapters: &[Adapter]) -> u128 {
    let mut hash = XxHash3_128::new();
    hash.write(backend.as_bytes());
    for op in program.graph.ops() {
        hash.write(format!("{op:?}").as_bytes());
    }
    for weight in &program.weights {
        hash.write(format!("{weight:?}").as_bytes());
        let bytes = weight.bytes();
        hash.write(&bytes[..bytes.len().min(WEIGHT_BYTES)]);
    }
    for adapter in adapters {
        hash.write(&adapter.alpha().to_le_bytes());
    }
    let kv = &program.kv;
    hash.write(format!("{:?}{:?}{}{}", kv.layers, kv.states, kv.page_tokens, kv.dtype).as_bytes());
    hash.finish_128()
}
