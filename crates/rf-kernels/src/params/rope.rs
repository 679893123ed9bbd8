//! Twin of `kernels/include/rf/params/rope.h`.

use bytemuck::{Pod, Zeroable};

use super::{Address, Batch, KvCache, Launch};

/// Largest head size of the kernels.
pub const MAX_HEAD_DIM: usize = 512;

/// Waves of a workgroup; each computes one head.
const HEAD_WAVES: u32 = 4;

/// The table of cos and sin of a RoPE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct RopeTable {
    /// `[positions][dims / 2][2]` f32: cos and sin, magnitude included.
    pub table: Address,
    /// Rotated elements per head.
    pub dims: u32,
    /// Pairing of elements: 0 for neighbours, 1 for a distance of `dims / 2`.
    pub style: u32,
}

/// `out = rope(x)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct RopeParams {
    /// Positions.
    pub batch: Batch,
    /// The RoPE.
    pub rope: RopeTable,
    /// `[tokens, num_heads · head_dim]` f32.
    pub x: Address,
    /// `[tokens, num_heads · head_dim]` f32; may be `x`.
    pub out: Address,
    /// Number of heads per token.
    pub num_heads: u32,
    /// Elements of a head, at most [`MAX_HEAD_DIM`].
    pub head_dim: u32,
}

impl RopeParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        by_head("rope_f32", self.num_heads, &self.batch)
    }
}

/// Stores keys and values in the cache of a layer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct KvAppendParams {
    /// Positions and pages.
    pub batch: Batch,
    /// The layer; its `head_dim` at most [`MAX_HEAD_DIM`].
    pub cache: KvCache,
    /// `[tokens, num_kv_heads · head_dim]` f32.
    pub k: Address,
    /// `[tokens, num_kv_heads · head_dim]` f32.
    pub v: Address,
}

impl KvAppendParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        by_head("kv_append_f32", 2 * self.cache.num_kv_heads, &self.batch)
    }
}

/// Keys and values on their way to the cache, with the norms and RoPE of queries and keys.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct NewHeads {
    /// The RoPE.
    pub rope: RopeTable,
    /// `[tokens, num_kv_heads · head_dim]` f32.
    pub k: Address,
    /// `[tokens, num_kv_heads · head_dim]` f32.
    pub v: Address,
    /// `[head_dim]` f32 or null.
    pub q_norm: Address,
    /// `[head_dim]` f32 or null.
    pub k_norm: Address,
    /// Constant that is added to the mean squares.
    pub eps: f32,
    /// 0.
    pub reserved: u32,
}

impl NewHeads {
    /// Returns true if attention can take heads with this RoPE: its lanes have chunks of eight
    /// elements, and those of a pair are in two whole chunks.
    pub(crate) fn has_whole_chunks(&self) -> bool {
        self.rope.dims.is_multiple_of(16)
    }
}

/// Optional per-head norms of q and k, RoPE of q and k, and the append to the KV cache.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct RopeAppendParams {
    /// Positions and pages.
    pub batch: Batch,
    /// The layer; its `head_dim` at most [`MAX_HEAD_DIM`].
    pub cache: KvCache,
    /// The keys and values.
    pub heads: NewHeads,
    /// `[tokens, num_heads · head_dim]` f32.
    pub q: Address,
    /// `[tokens, num_heads · head_dim]` f32; may be `q`.
    pub q_out: Address,
    /// Query heads.
    pub num_heads: u32,
    /// 0.
    pub reserved: u32,
}

impl RopeAppendParams {
    /// The launch.
    pub fn launch(&self) -> Launch {
        by_head("rope_append_f32", self.num_heads + 2 * self.cache.num_kv_heads, &self.batch)
    }
}

/// A launch with one wave per head; tokens in y.
fn by_head(kernel: &'static str, heads: u32, batch: &Batch) -> Launch {
    let groups = heads.div_ceil(HEAD_WAVES);
    let block = [HEAD_WAVES * 32, 1, 1];
    Launch { kernel, grid: [groups, batch.num_tokens, 1], block, lds_bytes: 0 }
}
