//! Parameters and launches. `kernels/include/rf/params/rope.h` is generated from the table.

use super::table::params;
use super::{Batch, KvCache, Launch};

/// Largest head size of the kernels.
pub(crate) const MAX_HEAD_DIM: usize = 512;

/// Waves of a workgroup; each computes one head or several.
const HEAD_WAVES: u32 = 4;

/// Elements of a chunk of a head.
const CHUNK: u32 = 8;

params! {
    /// The rotation of heads by position.
    struct RopeTable {
        /// `[rows][dims / 2][2]`: cos and sin, magnitude included. The first rows are the positions
        /// of text.
        table: *const f32,
        /// Rotated elements of a head; those from here on pass through.
        dims: u32,
        /// Pairing of elements: `RfRopeStyle`.
        style: u32,
    }

    /// `out = rope(x)`.
    struct RopeParams {
        /// Positions.
        batch: Batch,
        /// The RoPE.
        rope: RopeTable,
        /// `[tokens]`: the row of the table for each token.
        rows: *const u32,
        /// `[tokens, num_heads · head_dim]`.
        x: *const f32,
        /// `[tokens, num_heads · head_dim]`; may be `x`.
        out: *mut f32,
        /// Number of heads per token.
        num_heads: u32,
        /// Elements of a head, at most [`MAX_HEAD_DIM`].
        head_dim: u32,
    }

    /// Stores keys and values in the cache of a layer.
    struct KvAppendParams {
        /// Positions and pages.
        batch: Batch,
        /// The layer; its `head_dim` at most [`MAX_HEAD_DIM`].
        cache: KvCache,
        /// `[tokens, num_kv_heads · head_dim]`.
        k: *const f32,
        /// `[tokens, num_kv_heads · head_dim]`.
        v: *const f32,
    }

    /// Keys and values to append to the cache, and what is done to queries and keys before
    /// attention: rope(norm(x)). The norms are per head, x / √(mean(x²) + eps) · w, and optional.
    struct NewHeads {
        /// The RoPE.
        rope: RopeTable,
        /// `[tokens, num_kv_heads · head_dim]`.
        k: *const f32,
        /// `[tokens, num_kv_heads · head_dim]`.
        v: *const f32,
        /// `[head_dim]` or null.
        q_norm: *const f32,
        /// `[head_dim]` or null.
        k_norm: *const f32,
        /// Constant that is added to the mean squares.
        eps: f32,
        /// Zero.
        reserved: u32,
    }

    /// `q_out = rope(norm(q))`, and rope(norm(k)) and v into the cache.
    struct RopeAppendParams {
        /// Positions and pages.
        batch: Batch,
        /// The layer; its `head_dim` at most [`MAX_HEAD_DIM`].
        cache: KvCache,
        /// The keys and values.
        heads: NewHeads,
        /// `[tokens]`: the row of the table of RoPE for each token.
        rows: *const u32,
        /// `[tokens, num_heads · head_dim]`.
        q: *const f32,
        /// `[tokens, num_heads · head_dim]`; may be `q`.
        q_out: *mut f32,
        /// Query heads.
        num_heads: u32,
        /// Zero.
        reserved: u32,
    }
}

impl RopeParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        by_head("rope_f32", self.num_heads, &self.batch)
    }
}

impl KvAppendParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        by_head("kv_append_f32", 2 * self.cache.num_kv_heads, &self.batch)
    }
}

impl NewHeads {
    /// Returns true if lanes can have chunks of eight elements of heads with this RoPE: those of a
    /// pair are in two whole chunks.
    pub(crate) fn has_whole_chunks(&self) -> bool {
        self.rope.dims.is_multiple_of(16)
    }
}

impl RopeAppendParams {
    /// The launch: a wave has several heads where these consist of whole chunks.
    pub(crate) fn launch(&self) -> Launch {
        let heads = self.num_heads + 2 * self.cache.num_kv_heads;
        let head_dim = self.cache.head_dim;
        if !self.heads.has_whole_chunks() || !head_dim.is_multiple_of(CHUNK) {
            return by_head("rope_append_f32", heads, &self.batch);
        }
        // As in `kernels/rope.hip`: the lanes of a head, and the heads of each such group of lanes.
        let (lanes, heads_of_lanes) = match head_dim {
            0..=64 => (8, 4),
            65..=128 => (16, 4),
            129..=256 => (32, 4),
            _ => (32, 2),
        };
        let waves = heads.div_ceil(32 / lanes * heads_of_lanes);
        by_head("rope_append_chunks_f32", waves, &self.batch)
    }
}

/// A launch with one wave per head; tokens in y.
fn by_head(kernel: &'static str, heads: u32, batch: &Batch) -> Launch {
    let groups = heads.div_ceil(HEAD_WAVES);
    let block = [HEAD_WAVES * 32, 1, 1];
    Launch { kernel, grid: [groups, batch.num_tokens, 1], block, lds_bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_have_several_heads_of_whole_chunks() {
        let launch = |head_dim, dims| {
            let rope = RopeTable { dims, ..RopeTable::default() };
            let params = RopeAppendParams {
                batch: Batch { num_tokens: 5, ..Batch::default() },
                cache: KvCache { num_kv_heads: 8, head_dim, ..KvCache::default() },
                heads: NewHeads { rope, ..NewHeads::default() },
                num_heads: 32,
                ..RopeAppendParams::default()
            };
            let launch = params.launch();
            (launch.kernel, launch.grid)
        };
        // 48 heads; 64, 32, 16 or 8 of them per workgroup.
        for (head_dim, groups) in [(64, 1), (80, 2), (128, 2), (256, 3), (512, 6)] {
            assert_eq!(launch(head_dim, 64), ("rope_append_chunks_f32", [groups, 5, 1]));
        }
        assert_eq!(launch(32, 24), ("rope_append_f32", [12, 5, 1]));
        assert_eq!(launch(84, 64), ("rope_append_f32", [12, 5, 1]));
    }
}
