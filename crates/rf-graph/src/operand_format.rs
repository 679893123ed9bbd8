//! The format of what an op reads besides its rows.

use rf_quant::DType;

use crate::kv::KvType;

/// The format of the weights or of the cache that an op reads. It distinguishes the cases and the
/// kernels of one op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandFormat {
    /// Weights, or the table.
    Weight(DType),
    /// The KV cache.
    Cache(KvType),
    /// Weights of several formats.
    Mixed,
}

impl OperandFormat {
    /// The name in tables: of the weight format, of the KV type, or `mixed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weight(dtype) => dtype.name(),
            Self::Cache(kv) => kv.name(),
            Self::Mixed => "mixed",
        }
    }
}
