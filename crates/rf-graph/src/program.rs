//! A graph with all that a backend needs to run it.

use crate::graph::Graph;
use crate::kv::KvLayout;
use crate::weight::Weight;

/// A graph with its weights, KV cache and batch limits: the input of
/// [`Backend::compile`](crate::Backend::compile). Weights are shared, so a clone is cheap.
#[derive(Clone, Debug)]
pub struct Program {
    /// Ops and values.
    pub graph: Graph,
    /// Weights by [`WeightId::index`](crate::WeightId::index).
    pub weights: Vec<Weight>,
    /// Shape of the KV cache.
    pub kv: KvLayout,
    /// Largest number of tokens of a batch.
    pub max_batch_tokens: usize,
    /// Largest number of output rows of a batch.
    pub max_output_rows: usize,
}
